"""Our gRPC server against grpcio's, under the same load from the same client (grpc_load.c), over TCP on this machine.

figures: grpc-unary-vs-grpcio stream-16k-vs-grpcio

Peer: grpcio's Python server, threaded and asyncio; the faster of the two counts. Rounds alternate between the servers, the
ratio is taken of the medians; in brackets the ratios of the rounds, then the rates and the latencies.
"""
import asyncio
import concurrent.futures
import os
import statistics
import subprocess
import sys

import grpc

B = os.environ.get("B", "build/release")
ONLY = os.environ.get("ONLY", "")
ROUNDS, SECONDS = 5, 1.5
UNARY = ["unary", "200", "4", "32"]         # 200 bytes, 4 connections, 32 calls at once on each
STREAM = ["stream", "16384", "4", "1"]


def numbers(request):
    return map(int, request.split())


class Threads(grpc.GenericRpcHandler):
    @staticmethod
    def repeat(request, context):
        count, size = numbers(request)
        message = bytes(size)
        for _ in range(count):
            yield message

    def service(self, call):
        if call.method == "/test.Echo/Unary":
            return grpc.unary_unary_rpc_method_handler(lambda request, context: request)
        return grpc.unary_stream_rpc_method_handler(self.repeat)


class Coroutines(grpc.GenericRpcHandler):
    @staticmethod
    async def unary(request, context):
        return request

    @staticmethod
    async def repeat(request, context):
        count, size = numbers(request)
        message = bytes(size)
        for _ in range(count):
            yield message

    def service(self, call):
        if call.method == "/test.Echo/Unary":
            return grpc.unary_unary_rpc_method_handler(self.unary)
        return grpc.unary_stream_rpc_method_handler(self.repeat)


def serve_threads():
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(16), handlers=[Threads()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    sys.stdin.read()


async def serve_asyncio():
    server = grpc.aio.server(handlers=[Coroutines()])
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    await server.start()
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


def load(command, shape):
    """One round against a fresh server: rate, p50 and p99 in microseconds."""
    server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        port = server.stdout.readline().strip()
        out = subprocess.run([f"{B}/tests/bench/grpc_load", port, *shape, str(SECONDS)], stdout=subprocess.PIPE, text=True,
                             timeout=60, check=True).stdout
        rate, p50, p99, _ = map(float, out.split())
        return rate, p50, p99
    finally:
        server.kill()
        server.wait()


def main():
    servers = {"ours": [f"{B}/tests/proto/echo_server", "127.0.0.1:0"],
               "threads": [sys.executable, __file__, "threads"], "asyncio": [sys.executable, __file__, "asyncio"]}
    for name, shape in ("grpc-unary-vs-grpcio", UNARY), ("stream-16k-vs-grpcio", STREAM):
        if ONLY not in ("", name):
            continue
        rounds = {s: [] for s in servers}
        for _ in range(ROUNDS):
            for s, command in servers.items():
                rounds[s].append(load(command, shape))
        rate = {s: statistics.median(r[0] for r in rounds[s]) for s in servers}
        peer = max("threads", "asyncio", key=lambda s: rate[s])
        ratios = sorted(a[0] / b[0] for a, b in zip(rounds["ours"], rounds[peer]))
        text = f"{ratios[0]:.1f} … {ratios[-1]:.1f}; {rate['ours']:.0f}/s against {rate[peer]:.0f}/s {peer}"
        if shape is UNARY:
            for s in "ours", peer:
                p50, p99 = (statistics.median(r[i] for r in rounds[s]) / 1000 for i in (1, 2))
                text += f"; {s} p50 {p50:.2f} ms p99 {p99:.2f} ms"
        print(f"{name} {rate['ours'] / rate[peer]:.1f} x ({text})", flush=True)


if __name__ == "__main__":
    if sys.argv[1:] == ["threads"]:
        serve_threads()
    elif sys.argv[1:] == ["asyncio"]:
        asyncio.run(serve_asyncio())
    else:
        main()

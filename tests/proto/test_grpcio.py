"""An unmodified grpcio client against our server, and our client against a grpcio server.

The services are tests/proto/echo.h on our side and Echo below on theirs; messages are plain bytes.
"""
import concurrent.futures
import os
import pathlib
import subprocess
import threading
import time

import grpc
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("ASSAY_BIN", ROOT / "build/bin"))
BUILD = ROOT / "build/release" if BIN == ROOT / "build/bin" else BIN.parent
HELPERS = BUILD / "tests/proto"


@pytest.fixture(params=["tcp", "unix"])
def echo(request, tmp_path):
    """Address of a running echo server; at the end it must close by itself with every call closed."""
    address = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path}/s"
    server = subprocess.Popen([HELPERS / "echo_server", address], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    port = server.stdout.readline().strip()
    yield f"127.0.0.1:{port}" if request.param == "tcp" else address
    server.stdin.close()
    assert server.wait(timeout=20) == 0, server.stdout.read()


@pytest.fixture
def channel(echo):
    with grpc.insecure_channel(echo) as c:
        yield c


def test_unary(channel):
    call = channel.unary_unary("/test.Echo/Unary")
    for text in (b"", b"hello", bytes(range(256)) * 1000, b"x" * (3 << 20)):
        assert call(text, timeout=20) == text


def test_metadata_is_tolerated(channel):
    answer, call = channel.unary_unary("/test.Echo/Unary").with_call(
        b"x", timeout=20, metadata=[("x-request", "a" * 3000), ("x-bin-bin", b"\0\xff" * 100), ("authorization", "Bearer y")])
    assert answer == b"x"
    assert call.code() == grpc.StatusCode.OK


def test_too_much_metadata_is_refused(channel):
    with pytest.raises(grpc.RpcError):
        channel.unary_unary("/test.Echo/Unary")(b"x", timeout=20, metadata=[("x-request", "a" * 20000)])
    assert channel.unary_unary("/test.Echo/Unary")(b"x", timeout=20) == b"x"


def test_server_stream(channel):
    sizes = [len(m) for m in channel.unary_stream("/test.Echo/Repeat")(b"1000 16384", timeout=60)]
    assert sizes == [16384] * 1000
    assert list(channel.unary_stream("/test.Echo/Repeat")(b"0 0", timeout=20)) == []


def test_slow_reader(channel):
    n = 0
    for message in channel.unary_stream("/test.Echo/Repeat")(b"60 1000000", timeout=60):
        n += len(message)
        if n < 5000000:
            time.sleep(0.05)
    assert n == 60 * 1000000


def test_bidi(channel):
    call = channel.stream_stream("/test.Echo/Bidi")
    sent = [b"message %d" % i for i in range(500)] + [b"y" * 100000]
    assert list(call(iter(sent), timeout=20)) == sent
    assert list(call(iter([]), timeout=20)) == []
    assert list(call(iter([b"a", b"last"]), timeout=20)) == [b"a", b"last"]


def test_bidi_ping_pong(channel):
    ready = threading.Semaphore(1)

    def requests():
        for i in range(50):
            ready.acquire()
            yield b"%d" % i
    for i, answer in enumerate(channel.stream_stream("/test.Echo/Bidi")(requests(), timeout=20)):
        assert answer == b"%d" % i
        ready.release()


def test_deadline(channel):
    start = time.monotonic()
    with pytest.raises(grpc.RpcError) as e:
        channel.unary_unary("/test.Echo/Hold")(b"x", timeout=0.2)
    assert e.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert 0.19 < time.monotonic() - start < 10
    assert channel.unary_unary("/test.Echo/Unary")(b"x", timeout=20) == b"x"


def test_cancel(channel):
    calls = [channel.unary_unary("/test.Echo/Hold").future(b"x") for _ in range(20)]
    stream = channel.unary_stream("/test.Echo/Repeat")(b"100000 100000")
    next(stream)
    for c in calls:
        c.cancel()
    stream.cancel()
    assert all(c.cancelled() for c in calls)
    assert channel.unary_unary("/test.Echo/Unary")(b"x", timeout=20) == b"x"


@pytest.mark.parametrize("name,code", [
    ("not_found", grpc.StatusCode.NOT_FOUND), ("busy", grpc.StatusCode.RESOURCE_EXHAUSTED),
    ("bad_input", grpc.StatusCode.INVALID_ARGUMENT), ("corrupt", grpc.StatusCode.DATA_LOSS)])
def test_error_status(channel, name, code):
    text = "Größe 100% \U0001f642 «ok»\n"
    with pytest.raises(grpc.RpcError) as e:
        channel.unary_unary("/test.Echo/Unary")(f"err:{name}:{text}".encode(), timeout=20)
    assert e.value.code() == code
    assert e.value.details() == text
    assert dict(e.value.trailing_metadata())["assay-code"] == name


def test_unknown_method(channel):
    with pytest.raises(grpc.RpcError) as e:
        channel.unary_unary("/test.Other/Unary")(b"x", timeout=20)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_too_long_a_message(channel):
    with pytest.raises(grpc.RpcError) as e:
        channel.unary_unary("/test.Echo/Unary")(b"x" * (5 << 20), timeout=20)
    assert e.value.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert dict(e.value.trailing_metadata())["assay-code"] == "limit"
    assert channel.unary_unary("/test.Echo/Unary")(b"x", timeout=20) == b"x"


def test_compression_is_refused(echo):
    with grpc.insecure_channel(echo) as channel, pytest.raises(grpc.RpcError) as e:
        channel.unary_unary("/test.Echo/Unary")(b"x" * 100000, timeout=20, compression=grpc.Compression.Gzip)
    assert e.value.code() == grpc.StatusCode.UNIMPLEMENTED


def test_64_calls_at_once(channel):
    call = channel.unary_unary("/test.Echo/Unary")
    futures = [call.future(b"sleep:%d" % (50 + i), timeout=20) for i in range(64)]
    assert [f.result() for f in futures] == [b"sleep:%d" % (50 + i) for i in range(64)]


def test_many_threads(channel):
    call = channel.unary_unary("/test.Echo/Unary")

    def work(n):
        return all(call(b"%d %d" % (n, i), timeout=60) == b"%d %d" % (n, i) for i in range(50))
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        assert all(pool.map(work, range(16)))


def test_keepalive_pings(echo):
    options = [("grpc.keepalive_time_ms", 1000), ("grpc.keepalive_timeout_ms", 5000),
               ("grpc.keepalive_permit_without_calls", 1), ("grpc.http2.max_pings_without_data", 0)]
    with grpc.insecure_channel(echo, options=options) as channel:
        assert channel.unary_unary("/test.Echo/Unary")(b"sleep:2500", timeout=20) == b"sleep:2500"


def test_server_closes_in_mid_call(echo):
    with grpc.insecure_channel(echo) as channel:
        held = channel.unary_unary("/test.Echo/Hold").future(b"x")
        with pytest.raises(grpc.RpcError) as e:
            channel.unary_unary("/test.Echo/Unary")(b"close", timeout=20)
        assert e.value.code() == grpc.StatusCode.UNAVAILABLE
        assert held.code() == grpc.StatusCode.UNAVAILABLE


# ---- our client, their server ----

class Echo(grpc.GenericRpcHandler):
    @staticmethod
    def unary(request, context):
        if request.startswith(b"err:"):
            context.abort(grpc.StatusCode[request[4:].decode().split(":")[0]], request.decode().split(":")[2])
        if request.startswith(b"sleep:"):
            time.sleep(float(request[6:]))
        return request

    @staticmethod
    def repeat(request, context):
        count, size = map(int, request.split())
        for _ in range(count):
            yield bytes(size)

    @staticmethod
    def bidi(requests, context):
        for request in requests:
            yield request
            if request == b"last":
                return

    def service(self, call):
        return {"/test.Echo/Unary": grpc.unary_unary_rpc_method_handler(self.unary),
                "/test.Echo/Repeat": grpc.unary_stream_rpc_method_handler(self.repeat),
                "/test.Echo/Bidi": grpc.stream_stream_rpc_method_handler(self.bidi)}.get(call.method)


@pytest.fixture(scope="module", params=["tcp", "unix"])
def theirs(request, tmp_path_factory):
    server = grpc.server(concurrent.futures.ThreadPoolExecutor(8), handlers=[Echo()])
    address = "127.0.0.1:0" if request.param == "tcp" else f"unix:{tmp_path_factory.mktemp('grpc')}/s"
    port = server.add_insecure_port(address)
    server.start()
    yield f"127.0.0.1:{port}" if request.param == "tcp" else address
    server.stop(0)


def ours(address, method, *messages, timeout_ms=20000):
    done = subprocess.run([HELPERS / "grpc_call", address, f"/test.Echo/{method}", str(timeout_ms), *messages],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_our_client_unary(theirs):
    assert ours(theirs, "Unary", "hello") == ["5 hello", "ok"]
    assert ours(theirs, "Unary", "@3000000")[0].startswith("3000000 ")


def test_our_client_streams(theirs):
    assert [line.split()[0] for line in ours(theirs, "Repeat", "300 20000")] == ["20000"] * 300 + ["ok"]
    assert ours(theirs, "Bidi", "a", "b", "c") == ["1 a", "1 b", "1 c", "ok"]
    assert ours(theirs, "Bidi", "a", "last")[:2] == ["1 a", "4 last"]
    assert ours(theirs, "Bidi") == ["ok"]


def test_our_client_reports_status(theirs):
    assert ours(theirs, "Unary", "err:NOT_FOUND:grün 100%") == ["not_found: grün 100%"]
    assert ours(theirs, "Unary", "err:UNAVAILABLE:x") == ["unavailable: x"]
    assert ours(theirs, "Nothing", "x")[0].startswith("unsupported: ")
    assert ours(theirs, "Unary", "@5000000")[0].startswith("limit: ")       # more than grpcio takes


def test_our_client_deadline(theirs):
    start = time.monotonic()
    assert ours(theirs, "Unary", "sleep:0.5", timeout_ms=100)[0].startswith("deadline: ")
    assert time.monotonic() - start < 10

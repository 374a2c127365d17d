"""A stand-in for assayd, for tests of how the command line starts, finds, shares and loses a server.

It speaks the real protocol and judges nothing: what an evaluation comes to is said by the patch's
first word. Episodes go to STATE/stub.log, so that a repeat of a request id is known after a crash.
"""
import argparse
import concurrent.futures
import json
import os
import signal
import sys
import threading
import time

import grpc

sys.path.insert(0, os.environ["STUB_PROTO"])
from assay.v1 import catalog_pb2, catalog_pb2_grpc, rollout_pb2, rollout_pb2_grpc  # noqa: E402
from assay.v1 import trajectory_pb2, trajectory_pb2_grpc, verdict_pb2  # noqa: E402

ap = argparse.ArgumentParser()
ap.add_argument("--state", required=True)
for name in ("--ready-fd", "--lifeline-fd", "--slots"):
    ap.add_argument(name, type=int, default=-1)
args = ap.parse_args()
ready = os.fdopen(args.ready_fd, "w")
LOG = os.path.join(args.state, "stub.log")
lock = threading.Lock()
active = 0
tasks = {}


def refuse(message, status):
    ready.write(message + "\n")
    ready.close()
    sys.exit(status)


if os.path.exists(os.path.join(args.state, "refuse")):
    refuse("denied: no rights to make a sandbox", 69)
starts = os.path.join(args.state, "starts")
with open(starts, "a") as f:
    f.write(f"{os.getpid()} slots={args.slots}\n")
time.sleep(0.2)


def episodes():
    try:
        with open(LOG) as f:
            return [json.loads(line) for line in f]
    except FileNotFoundError:
        return []


def verdict(words):
    v = verdict_pb2.Verdict(outcome=verdict_pb2.OUTCOME_RESOLVED, reason="all required tests passed", patch_status="applied",
                            run_end="exit 0", reader="pytest/1", attempts=1, output=b"\xff\x1b[31mred\n", output_bytes=10)
    v.tests.add(id="t::a", status=verdict_pb2.TEST_STATUS_PASSED, required=True, evidence="report_file")
    v.reward.value = 1
    if words and words[0] == "infra":
        v = verdict_pb2.Verdict(outcome=verdict_pb2.OUTCOME_INFRA_ERROR, reason="sandbox lost", patch_status="not_tried",
                                fault="sandbox", retryable=True, attempts=3)
    elif words and words[0] == "wrong":
        v.outcome, v.reward.value, v.reason = verdict_pb2.OUTCOME_UNRESOLVED, 0, "1 of 2 required tests did not pass"
        v.tests.add(id="t::b\x1b[2J\u202e", status=verdict_pb2.TEST_STATUS_FAILED, required=True, message="assert \x07 1 == 2")
    return v


def trajectory(e):
    return trajectory_pb2.Trajectory(episode_id=bytes.fromhex(e["episode"]), request_id=e["request"], task_id=e["task"],
                                     patch=e["patch"].encode(), verdict=verdict(e["patch"].split()), cursor=e["cursor"],
                                     labels=e["labels"], timeout_s=e.get("timeout_s", 0), accepted_unix_ns=1, finished_unix_ns=2)


class Rollout(rollout_pb2_grpc.RolloutServicer):
    def Evaluate(self, q, ctx):
        if q.task_id == "nope":
            ctx.set_trailing_metadata((("assay-code", "not_found"),))
            ctx.abort(grpc.StatusCode.NOT_FOUND, "task nope: not in the catalog; near: t1")
        words = q.patch.decode().split()
        if words and words[0] == "slow":
            time.sleep(float(words[1]))
        with lock:
            e = next((e for e in episodes() if e["request"] == q.request_id), None)
            if e is None:
                all_ = episodes()
                e = {"episode": os.urandom(16).hex(), "request": q.request_id, "task": q.task_id, "patch": q.patch.decode(),
                     "cursor": len(all_) + 1, "labels": dict(q.labels), "timeout_s": q.timeout_s}
                with open(LOG, "a") as f:
                    f.write(json.dumps(e) + "\n")
                if words and words[0] == "crash":       # logged, never answered
                    os.kill(os.getpid(), signal.SIGKILL)
        return rollout_pb2.EvaluateResponse(request_id=q.request_id, episode_id=bytes.fromhex(e["episode"]), task_id=q.task_id,
                                            verdict=verdict(words), cursor=e["cursor"])

    def Status(self, q, ctx):
        return rollout_pb2.StatusResponse(slots=2, queue_max=7, log_next_cursor=len(episodes()) + 1, version="stub")


class Catalog(catalog_pb2_grpc.CatalogServicer):
    def Import(self, q, ctx):
        out = catalog_pb2.ImportResponse()
        if not os.path.isabs(q.repos_dir) or len(q.jsonl) > 3 << 20:
            ctx.abort(grpc.StatusCode.INVALID_ARGUMENT, "bad import call")
        for number, line in enumerate(q.jsonl.split(b"\n"), q.first_line):
            if not line.strip():
                continue
            try:
                r = json.loads(line)
                tasks[r["instance_id"]] = r
                out.added += 1
            except (ValueError, KeyError):
                out.failures.add(line=number, id="", code="bad_input", message="task record is not one JSON object")
        return out

    def List(self, q, ctx):
        names = sorted(n for n in tasks if n > q.after and n.startswith(q.prefix))[:3]
        out = catalog_pb2.ListTasksResponse(next=names[-1] if len(names) == 3 else "")
        for n in names:
            out.tasks.add(id=n, repo="r", base_commit="0" * 40, reader="auto", timeout_s=1.5)
        return out


class Trajectories(trajectory_pb2_grpc.TrajectoriesServicer):
    def Subscribe(self, q, ctx):
        at = max(q.cursor, 1)
        while ctx.is_active():
            for e in episodes()[at - 1:]:
                at += 1
                yield trajectory(e)
            if not q.follow:
                return
            time.sleep(0.05)

    def Get(self, q, ctx):
        for e in episodes():
            if bytes.fromhex(e["episode"]) == q.episode_id:
                return trajectory(e)
        ctx.set_trailing_metadata((("assay-code", "not_found"),))
        ctx.abort(grpc.StatusCode.NOT_FOUND, "no such episode")

    def List(self, q, ctx):
        at, limit = max(q.cursor, 1), q.limit or 100
        rest = [e for e in episodes()[at - 1:] if q.task_id in ("", e["task"])]
        some = rest[:limit]
        return trajectory_pb2.ListTrajectoriesResponse(trajectories=[trajectory(e) for e in some],
                                                       next_cursor=some[-1]["cursor"] + 1 if len(rest) > limit else 0)


class Count(grpc.ServerInterceptor):
    """Calls in work: with the lifeline cut, the end comes when there are none."""
    last = time.monotonic()

    def intercept_service(self, go_on, details):
        Count.last = time.monotonic()
        return go_on(details)


pool = concurrent.futures.ThreadPoolExecutor(16)
server = grpc.server(pool, interceptors=[Count()], options=[("grpc.max_receive_message_length", 8 << 20)])
rollout_pb2_grpc.add_RolloutServicer_to_server(Rollout(), server)
catalog_pb2_grpc.add_CatalogServicer_to_server(Catalog(), server)
trajectory_pb2_grpc.add_TrajectoriesServicer_to_server(Trajectories(), server)
path = os.path.join(args.state, "assayd.sock")
if os.path.exists(path):
    os.unlink(path)                                     # stale, or its server is just going
if len(path) > 107:                                     # more than a socket address holds
    path = f"/proc/self/fd/{os.open(args.state, os.O_RDONLY)}/assayd.sock"
server.add_insecure_port("unix:" + path)
server.start()
ready.write("ready\n")
ready.close()
os.read(args.lifeline_fd, 1)                            # returns when nobody holds the other end
server.stop(grace=None if os.path.exists(os.path.join(args.state, "rude")) else 10).wait()

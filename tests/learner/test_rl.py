"""The real assay-learner against a grpcio server that plays assayd: rewards are known, faults are planted.

The server keeps to the rules of the real one: a request id runs once, its record is in the log once and
on the stream once, what is refused leaves no record.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

import grpc
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("ASSAY_BIN", ROOT / "build/bin"))
sys.path.insert(0, str(ROOT / "build/py"))
from assay.v1 import (catalog_pb2, catalog_pb2_grpc, policy_pb2, policy_pb2_grpc, rollout_pb2, rollout_pb2_grpc,  # noqa: E402
                      trajectory_pb2, trajectory_pb2_grpc, verdict_pb2)

LEARNER = str(BIN / "assay-learner")
OPTIONS = [f"return x {op} {n}" for op in "+-*%" for n in (1, 2, 3, 4)]
NAMES = ["area", "clamp", "median", "gcd"]
RIGHT = {f"demo-{n}": OPTIONS[(i * 5 + 3) % len(OPTIONS)] for i, n in enumerate(NAMES)}


class Server(rollout_pb2_grpc.RolloutServicer, trajectory_pb2_grpc.TrajectoriesServicer, policy_pb2_grpc.PolicyServicer,
             catalog_pb2_grpc.CatalogServicer):
    def __init__(self, fault=None):
        self.log, self.requests, self.policies, self.order = [], {}, [], []
        self.lock = threading.Condition()
        self.fault = fault or (lambda request, nth: None)
        self.seen = {}
        self.cut_at = None                      # cut the streams once when the log has so many records
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(16))
        for add in (rollout_pb2_grpc.add_RolloutServicer_to_server, trajectory_pb2_grpc.add_TrajectoriesServicer_to_server,
                    policy_pb2_grpc.add_PolicyServicer_to_server, catalog_pb2_grpc.add_CatalogServicer_to_server):
            add(self, self.server)
        self.address = f"127.0.0.1:{self.server.add_insecure_port('127.0.0.1:0')}"
        self.server.start()

    # tasks
    def List(self, request, context):
        if isinstance(request, trajectory_pb2.ListTrajectoriesRequest):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        tasks = [catalog_pb2.Task(id=t.id) for t in self.tasks() if t.id.startswith(request.prefix) and t.id > request.after]
        page = tasks[:2]                        # small pages, so that paging is used
        return catalog_pb2.ListTasksResponse(tasks=page, next=page[-1].id if len(tasks) > 2 else "")

    def Get(self, request, context):
        if isinstance(request, trajectory_pb2.GetTrajectoryRequest):
            context.abort(grpc.StatusCode.UNIMPLEMENTED, "")
        return next(t for t in self.tasks() if t.id == request.id)

    @staticmethod
    def tasks():
        tasks = []
        for name in NAMES:
            choice = dict(prompt=f"lib/{name}.py: the function {name} is wrong, pick the line that mends it.\n", options=OPTIONS,
                          prefix=f"--- a/{name}.py\n+++ b/{name}.py\n@@ -1 +1 @@\n-x\n+", suffix="\n")
            tasks.append(catalog_pb2.Task(id=f"demo-{name}", extra_json=json.dumps({"choice": choice, "other": 1})))
        tasks.append(catalog_pb2.Task(id="demo-plain", extra_json='{"other": 1}'))
        return sorted(tasks, key=lambda t: t.id)

    # rollout
    def Status(self, request, context):
        return rollout_pb2.StatusResponse(log_next_cursor=len(self.log) + 1)

    def judge(self, r):
        with self.lock:
            self.order.append(r.request_id)
            nth = self.seen[r.request_id] = self.seen.get(r.request_id, 0) + 1
            if r.request_id not in self.requests:
                fault = self.fault(r, nth)
                if fault == "busy":
                    verdict = verdict_pb2.Verdict(outcome=verdict_pb2.OUTCOME_INFRA_ERROR, fault="busy", retryable=True,
                        reason="queue full")
                    return rollout_pb2.EvaluateResponse(request_id=r.request_id, task_id=r.task_id, verdict=verdict)
                verdict = verdict_pb2.Verdict(outcome=verdict_pb2.OUTCOME_INFRA_ERROR, fault="sandbox")
                if fault != "infra":
                    good = RIGHT[r.task_id] + "\n" in r.patch.decode()
                    outcome = verdict_pb2.OUTCOME_RESOLVED if good else verdict_pb2.OUTCOME_UNRESOLVED
                    verdict = verdict_pb2.Verdict(reward=verdict_pb2.Reward(value=float(good)), outcome=outcome)
                t = trajectory_pb2.Trajectory(request_id=r.request_id, task_id=r.task_id, group=r.group, sample=r.sample,
                    verdict=verdict, patch=r.patch, labels=r.labels, cursor=len(self.log) + 1)
                self.log.append(t)
                self.requests[r.request_id] = (r, t)
                self.lock.notify_all()
            first, t = self.requests[r.request_id]
            assert first == r, f"{r.request_id} was sent twice with different content"
            return rollout_pb2.EvaluateResponse(request_id=r.request_id, task_id=r.task_id, verdict=t.verdict, cursor=t.cursor)

    def EvaluateMany(self, requests, context):
        for r in requests:
            if self.cut_now():
                context.abort(grpc.StatusCode.UNAVAILABLE, "going down")      # this request is lost
            yield self.judge(r)

    def cut_now(self):
        with self.lock:
            cut = self.cut_at is not None and len(self.log) >= self.cut_at
            if cut:
                self.cut_at = None
            return cut

    def Subscribe(self, request, context):
        at = max(request.cursor, 1)
        while context.is_active():
            with self.lock:
                while at > len(self.log) and context.is_active():
                    self.lock.wait(0.1)
                records = self.log[at - 1:]
            for t in records:
                if t.task_id.startswith(request.task_prefix):
                    yield t
            at += len(records)

    # policy
    def Publish(self, request, context):
        p = request.policy
        with self.lock:
            last = self.policies[-1] if self.policies else policy_pb2.PolicyVersion()
            if (p.version, p.manifest_sha256) == (last.version, last.manifest_sha256):
                return policy_pb2.PublishResponse(version=p.version)
            if p.version != len(self.policies) + 1:
                context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"want version {len(self.policies) + 1}")
            self.policies.append(p)
        return policy_pb2.PublishResponse(version=p.version)

    def Current(self, request, context):
        return self.policies[-1] if self.policies else policy_pb2.PolicyVersion()


@pytest.fixture
def make_server():
    made = []

    def make(fault=None):
        made.append(Server(fault))
        return made[-1]
    yield make
    for s in made:
        s.server.stop(0)


def command(server, out, *more, steps=16):
    return [LEARNER, "rl", "--server", server.address, "--tasks", "demo-", "--run", "t1", "--out", str(out), "--steps",
        str(steps), "--group", "8", "-o", "json", *more]


def learn(server, out, *more, steps=16, expect=0):
    p = subprocess.run(command(server, out, *more, steps=steps), capture_output=True, text=True, timeout=200)
    assert p.returncode == expect, p.stderr
    return json.loads(p.stdout) if expect == 0 else p.stderr


def mean(xs):
    return sum(xs) / len(xs)


def test_learns_and_every_token_names_its_version(make_server, tmp_path):
    s = make_server()
    r = learn(s, tmp_path / "o", steps=24)
    assert r["tasks"] == 4 and r["steps"] == 24 and r["run"] == "t1" and r["policy_version"] == 25
    assert r["scored"] == [32] * 24 and r["absent"] == [0] * 24 and len(r["loss"]) == 24
    assert mean(r["reward_mean"][-6:]) > mean(r["reward_mean"][:6]) + 0.2, r["reward_mean"]
    assert [p.version for p in s.policies] == list(range(1, 26))
    for p in s.policies:                        # what is announced is on disk and is what it says
        manifest = pathlib.Path(p.manifest_path).read_bytes()
        assert hashlib.sha256(manifest).hexdigest() == p.manifest_sha256
        shard = json.loads(manifest)["shards"][0]
        weights = (pathlib.Path(p.manifest_path).parent / shard["file"]).read_bytes()
        assert hashlib.sha256(weights).hexdigest() == shard["sha256"] and len(weights) == shard["bytes"]
    assert s.policies[-1].trained_to_cursor == len(s.log) + 1
    assert len(s.log) == 24 * 32
    for i, t in enumerate(s.log):
        smp = t.sample
        assert t.labels["run"] == "t1" and smp.choice_first == 0 and smp.choice_count == 16
        assert smp.loss_mask == b"\0" * (len(smp.tokens) - 1) + b"\1" and smp.logprobs[-1] < 0
        assert [(x.start, x.end, x.version) for x in smp.spans] == [(len(smp.tokens) - 1, len(smp.tokens), i // 32 + 1)]
        assert OPTIONS[smp.tokens[-1]] + "\n" in t.patch.decode()
        assert t.group.want == 8 and len(t.group.id) == 16
    groups = {}
    for t in s.log:
        groups.setdefault(t.group.id, []).append((t.group.index, t.task_id))
    assert all(sorted(i for i, _ in g) == list(range(8)) and len({n for _, n in g}) == 1 for g in groups.values())
    assert len(groups) == 24 * 4


def test_without_learning_there_is_one_version(make_server, tmp_path):
    s = make_server()
    r = learn(s, tmp_path / "o", "--no-learning")
    assert r["policy_version"] == 1 and [p.version for p in s.policies] == [1]
    assert mean(r["reward_mean"][-4:]) < mean(r["reward_mean"][:4]) + 0.1


def test_a_refused_episode_is_sent_again_and_an_absent_reward_is_counted(make_server, tmp_path):
    def fault(r, nth):
        h = hashlib.sha256(r.request_id.encode()).digest()[0]
        return "busy" if h % 5 == 0 and nth < 3 else "infra" if h % 7 == 1 else None
    s = make_server(fault)
    r = learn(s, tmp_path / "o", steps=4)
    want = [sum(1 for t in s.log[i * 32:(i + 1) * 32] if not t.verdict.HasField("reward")) for i in range(4)]
    assert r["absent"] == want and sum(want) > 5 and [a + b for a, b in zip(r["absent"], r["scored"])] == [32] * 4
    assert len(s.log) == 128 and max(s.seen.values()) == 3


def test_a_lost_connection_costs_no_episode(make_server, tmp_path):
    s = make_server()
    s.cut_at = 50
    r = learn(s, tmp_path / "o", steps=4)
    assert r["scored"] == [32] * 4 and len(s.log) == 128
    assert s.cut_at is None and len(s.requests) == 128      # it was cut, and the lost one came again


def test_killed_and_resumed_equals_a_run_in_one_piece(make_server, tmp_path):
    whole = learn(make_server(), tmp_path / "whole", steps=10)
    s = make_server()
    p = subprocess.Popen(command(s, tmp_path / "o", steps=10), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while len(s.log) < 32 * 4 + 7 and time.monotonic() < deadline:
        time.sleep(0.002)
    p.send_signal(signal.SIGKILL)
    p.wait()
    p.stdout.close()
    assert 32 * 4 < len(s.log) < 320
    again = learn(s, tmp_path / "o", steps=10, expect=65)
    assert "--resume" in again                  # not by accident
    r = learn(s, tmp_path / "o", "--resume", steps=10)
    for key in ("reward_mean", "loss", "scored", "policy_version"):
        assert r[key] == whole[key]
    assert len(s.log) == 320                    # nothing ran twice
    assert [p.version for p in s.policies] == list(range(1, 12))


def test_two_ranks_learn_as_one(make_server, tmp_path):
    one = learn(make_server(), tmp_path / "one", steps=6)
    two = learn(make_server(), tmp_path / "two", "--ranks", "2", steps=6)
    assert one["reward_mean"] == two["reward_mean"]
    assert one["loss"] == pytest.approx(two["loss"], abs=1e-4)


def test_a_rank_lost_while_verdicts_are_awaited_ends_the_run(make_server, tmp_path):
    s = make_server(lambda r, nth: "busy" if len(s.log) >= 40 else None)        # the second round never ends
    p = subprocess.Popen(command(s, tmp_path / "o", "--ranks", "2"), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    assert "step 1/" in p.stderr.readline()
    rank1 = int(pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()[0])
    os.kill(rank1, signal.SIGKILL)
    start = time.monotonic()
    said = p.communicate(timeout=30)[1]
    assert p.returncode == 70 and time.monotonic() - start < 5
    assert f"rank 0, step 2: rank 1 (pid {rank1})" in said


def test_a_run_name_that_was_used_is_refused(make_server, tmp_path):
    s = make_server()
    learn(s, tmp_path / "deep" / "a", "--seed", "9223372036854775807", steps=1)      # folders are made
    assert "t1" in learn(s, tmp_path / "b", steps=1, expect=65)


def test_no_task_with_choices(make_server, tmp_path):
    s = make_server()
    assert "demo-plain" in learn(s, tmp_path / "a", "--tasks", "demo-plain", steps=1, expect=65)


@pytest.mark.parametrize("args, word", [
    ([], "verb"), (["rll"], "rll"), (["rl", "--what"], "--what"), (["rl", "--steps", "x"], "--steps"), (["rl", "--steps"],
        "--steps"),
    (["rl", "--steps", "0"], "--steps"), (["rl", "--server", "a", "--tasks", "b", "--run", "c"], "--out"), (["sft"], "--data"),
    (["rl", "--server", "a", "--tasks", "b", "--run", "c", "--out", "d", "-o", "xml"], "xml"), (["rl", "--lr", "nan"], "--lr"),
    (["rl", "--resume=1"], "--resume"),
])
def test_bad_flags_exit_64_with_one_line(args, word):
    p = subprocess.run([LEARNER, *args], capture_output=True, text=True, timeout=20)
    assert p.returncode == 64 and p.stdout == "" and p.stderr.count("\n") == 1 and word in p.stderr


def test_nobody_listens(tmp_path):
    p = subprocess.run([LEARNER, "rl", "--server", f"unix:{tmp_path}/none", "--tasks", "a", "--run", "b", "--out",
        f"{tmp_path}/o"], capture_output=True, text=True, timeout=20)
    assert p.returncode == 69 and p.stderr.count("\n") == 1


@pytest.mark.parametrize("how, within", [(signal.SIGKILL, 3), (signal.SIGSTOP, 8)])
def test_a_lost_rank_ends_the_run_and_leaves_a_whole_checkpoint(tmp_path, how, within):
    data = tmp_path / "d.jsonl"
    data.write_text("".join(json.dumps(dict(prompt=f"{i}+{i}=", completion=f"{2 * i}.")) + "\n" for i in range(40)))
    p = subprocess.Popen([LEARNER, "sft", "--data", str(data), "--out", str(tmp_path / "o"), "--steps", "100000", "--ranks", "2",
                          "--peer-limit", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    lines = queue.Queue()
    reader = threading.Thread(target=lambda: [lines.put(x) for x in p.stderr])
    reader.start()
    while "step 5/" not in lines.get(timeout=30):
        pass
    rank1 = int(pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()[0])
    os.kill(rank1, how)
    start = time.monotonic()
    assert p.wait(timeout=30) == 70
    assert time.monotonic() - start < within
    reader.join()
    said = list(lines.queue)
    assert "rank 0, step " in said[-1] and f"rank 1 (pid {rank1})" in said[-1]
    last = max([5] + [int(x.split("step ")[1].split("/")[0]) for x in said if "loss" in x])
    assert not pathlib.Path(f"/proc/{rank1}").exists()
    q = subprocess.run([LEARNER, "sft", "--data", str(data), "--out", str(tmp_path / "o"), "--steps", str(last + 3), "--resume"],
                       capture_output=True, text=True, timeout=60)
    assert q.returncode == 0, q.stderr
    steps = [int(x.split("step ")[1].split("/")[0]) for x in q.stderr.splitlines()]
    assert steps[-1] == last + 3 and steps[0] in (last, last + 1)       # the last whole step, nothing half-done

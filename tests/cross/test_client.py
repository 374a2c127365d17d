"""An unmodified grpcio client: one evaluation and its trajectory, and 64 at once."""
import os
import subprocess
import sys
import threading
import uuid

import grpc
import pytest

from conftest import BIN

HERE = os.path.dirname(os.path.abspath(__file__))


def stubs():
    from assay.v1 import rollout_pb2, rollout_pb2_grpc, trajectory_pb2, trajectory_pb2_grpc, verdict_pb2
    return rollout_pb2, rollout_pb2_grpc, trajectory_pb2, trajectory_pb2_grpc, verdict_pb2


def test_twenty_lines(server, project, tmp_path):
    (tmp_path / "fix.patch").write_text(project.fix)
    env = dict(os.environ, PYTHONPATH=os.path.join(HERE, "../../build/py"))
    out = subprocess.run([sys.executable, os.path.join(HERE, "evaluate.py"), server.address, "scale-1", str(tmp_path / "fix.patch")],
                         check=True, stdout=subprocess.PIPE, env=env, timeout=120).stdout.decode()
    first, second = out.splitlines()
    assert first.startswith("scale-1: OUTCOME_RESOLVED reward 1.0"), out
    assert second.split()[:2] == ["1", "scale-1"], out
    with open(os.path.join(HERE, "evaluate.py"), encoding="utf-8") as f:
        code = f.read().split('"""')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 20


def test_64_in_flight(server, project):
    rollout_pb2, rollout_grpc, trajectory_pb2, trajectory_grpc, verdict_pb2 = stubs()
    with grpc.insecure_channel(server.address) as channel:
        rollout = rollout_grpc.RolloutStub(channel)
        seen, done = [], threading.Event()

        def follow():
            stream = trajectory_grpc.TrajectoriesStub(channel).Subscribe(trajectory_pb2.SubscribeRequest(follow=True))
            for t in stream:
                seen.append(t)
                if len(seen) == 65:
                    done.set()
                    stream.cancel()
                    return
        follower = threading.Thread(target=follow)
        follower.start()
        calls = {}
        for i in range(64):
            rid = f"c{i}-{uuid.uuid4()}"
            calls[rid] = (i, rollout.Evaluate.future(rollout_pb2.EvaluateRequest(
                request_id=rid, task_id="scale-1", patch=project.change(i).encode()), timeout=300))
        one = rollout.Evaluate(rollout_pb2.EvaluateRequest(task_id="scale-1", patch=project.fix.encode()), timeout=300)
        assert one.verdict.reward.value == 1.0
        for rid, (i, call) in calls.items():
            answer = call.result()
            assert answer.request_id == rid
            want = {2: verdict_pb2.OUTCOME_PATCH_EMPTY, 3: verdict_pb2.OUTCOME_RESOLVED}.get(i, verdict_pb2.OUTCOME_UNRESOLVED)
            assert answer.verdict.outcome == want, (i, answer.verdict)
            assert answer.verdict.HasField("reward") and answer.verdict.reward.value == (1.0 if i == 3 else 0.0)
        assert done.wait(60)
        follower.join()
        assert [t.cursor for t in seen] == list(range(1, 66))
        assert {t.request_id for t in seen} >= set(calls)


def test_evaluate_many(server, project):
    rollout_pb2, rollout_grpc, _, _, verdict_pb2 = stubs()
    with grpc.insecure_channel(server.address) as channel:
        requests = [rollout_pb2.EvaluateRequest(request_id=f"m{i}", task_id="scale-1" if i != 5 else "no-such-task",
                                                patch=project.change(3 if i % 2 else 4).encode()) for i in range(10)]
        answers = {a.request_id: a for a in rollout_grpc.RolloutStub(channel).EvaluateMany(iter(requests), timeout=300)}
        assert len(answers) == 10
        for i in range(10):
            v = answers[f"m{i}"].verdict
            if i == 5:
                assert not v.HasField("reward") and v.outcome == verdict_pb2.OUTCOME_INFRA_ERROR and "no-such-task" in v.reason
            else:
                assert v.reward.value == (1.0 if i % 2 else 0.0)


@pytest.mark.parametrize("request_, code", [
    (dict(task_id="no-such-task", patch=b""), grpc.StatusCode.NOT_FOUND),
    (dict(task_id="", patch=b""), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(task_id="scale-1", patch=b"x" * ((1 << 20) + 1)), grpc.StatusCode.INVALID_ARGUMENT),
    (dict(task_id="scale-1", patch=b"", priority=9), grpc.StatusCode.INVALID_ARGUMENT),
])
def test_bad_requests_are_named(server, request_, code):
    rollout_pb2, rollout_grpc, *_ = stubs()
    with grpc.insecure_channel(server.address) as channel:
        with pytest.raises(grpc.RpcError) as e:
            rollout_grpc.RolloutStub(channel).Evaluate(rollout_pb2.EvaluateRequest(**request_), timeout=60)
        assert e.value.code() == code, e.value
        assert e.value.details()


def test_same_request_twice_runs_once(server, project):
    rollout_pb2, rollout_grpc, trajectory_pb2, trajectory_grpc, _ = stubs()
    with grpc.insecure_channel(server.address) as channel:
        rollout = rollout_grpc.RolloutStub(channel)
        request = rollout_pb2.EvaluateRequest(request_id="r-77", task_id="scale-1", patch=project.fix.encode())
        cut = rollout.Evaluate.future(request)
        cut.cancel()
        first, second = rollout.Evaluate(request, timeout=120), rollout.Evaluate(request, timeout=120)
        assert first.episode_id == second.episode_id and first.cursor == second.cursor
        request.patch = project.change(4).encode()
        with pytest.raises(grpc.RpcError) as e:
            rollout.Evaluate(request, timeout=60)
        assert e.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        log = list(trajectory_grpc.TrajectoriesStub(channel).Subscribe(trajectory_pb2.SubscribeRequest()))
        assert [t.request_id for t in log] == ["r-77"]


def test_a_long_log_is_read_to_its_end_while_nothing_else_happens(server):
    """A stream that paused for its reader went on only when something else woke the server."""
    rollout_pb2, rollout_grpc, *_ = stubs()
    with grpc.insecure_channel(server.address) as channel:
        requests = [rollout_pb2.EvaluateRequest(request_id=f"n{i}", task_id="scale-1", patch=(f"no patch {i}\n" * 400).encode())
                    for i in range(500)]
        assert len(list(rollout_grpc.RolloutStub(channel).EvaluateMany(iter(requests), timeout=300))) == 500
    for _ in range(60):
        p = subprocess.run([os.path.join(BIN, "assay"), "log", "cat", "--cursor", "1", "-o", "json", "--server", server.address],
                           stdout=subprocess.PIPE, timeout=60)
        assert p.returncode == 0 and p.stdout.count(b"\n") == 500


def test_policy_versions(server):
    from assay.v1 import policy_pb2, policy_pb2_grpc
    with grpc.insecure_channel(server.address) as channel:
        policy = policy_pb2_grpc.PolicyStub(channel)
        publish = lambda v, digest: policy.Publish(policy_pb2.PublishRequest(policy=policy_pb2.PolicyVersion(
            version=v, made_by="run-a", manifest_path="/x", manifest_sha256=digest * 32)))
        assert policy.Current(policy_pb2.CurrentRequest(made_by="run-a")).version == 0
        assert publish(1, "ab").version == 1
        assert publish(1, "ab").version == 1        # the repeat of a lost reply
        with pytest.raises(grpc.RpcError) as e:
            publish(1, "cd")
        assert e.value.code() == grpc.StatusCode.FAILED_PRECONDITION and "must be 2" in e.value.details()
        assert policy.Current(policy_pb2.CurrentRequest(made_by="run-b")).version == 0
        assert publish(2, "cd").version == 2

"""kill -9 in the midst of 100 evaluations: what was acknowledged is in the log once; the kernel keeps nothing of ours."""
import threading
import time

import grpc

from conftest import Server, family, left, mounts, wait_until


def test_kill_9_during_100_evaluations(tmp_path, project):
    from assay.v1 import rollout_pb2, rollout_pb2_grpc, trajectory_pb2, trajectory_pb2_grpc
    before = mounts()
    server = Server(tmp_path / "state").start()
    server.assay("tasks", "import", project.tasks, "--repos", project.repos)
    requests = [rollout_pb2.EvaluateRequest(request_id=f"k{i}", task_id="scale-1", patch=project.change(i + 10).encode(), fresh=True)
                for i in range(100)]
    acknowledged, lock, kills = {}, threading.Lock(), 0

    def send(channel, chunk):
        """Ask for all; note what came back; the connection may break at any moment."""
        try:
            for a in rollout_pb2_grpc.RolloutStub(channel).EvaluateMany(iter(chunk), timeout=300):
                with lock:
                    had = acknowledged.setdefault(a.request_id, a)
                    assert had.episode_id == a.episode_id and had.cursor == a.cursor
        except grpc.RpcError:
            pass

    while len(acknowledged) < 100:
        with grpc.insecure_channel(server.address) as channel:
            open_ones = [r for r in requests if r.request_id not in acknowledged]
            thread = threading.Thread(target=send, args=(channel, open_ones))
            had = len(acknowledged)
            thread.start()
            if kills < 3:       # three kills, each once a few more answers are out
                assert wait_until(lambda: len(acknowledged) >= had + 12, 120)
                members = family(server.process.pid)
                assert sum(b"assay-jail" in line for _, line in members.values()) >= 2, members
                server.kill()
                kills += 1
                thread.join()
                # Nothing may stay behind before anybody starts again: the kernel and the guardian took it all.
                assert wait_until(lambda: left(members) == ([], [])), left(members)
                assert mounts() == before
                server.start()
            else:
                thread.join()
    assert kills == 3
    with grpc.insecure_channel(server.address) as channel:
        log = list(trajectory_pb2_grpc.TrajectoriesStub(channel).Subscribe(trajectory_pb2.SubscribeRequest()))
    assert [t.cursor for t in log] == list(range(1, len(log) + 1))
    for rid, a in acknowledged.items():
        mine = [t for t in log if t.request_id == rid]
        assert len(mine) == 1, (rid, len(mine))
        assert mine[0].episode_id == a.episode_id and mine[0].cursor == a.cursor
        assert mine[0].verdict.reward.value == a.verdict.reward.value
    assert len(log) == 100
    members = family(server.process.pid)
    assert server.stop() == 0
    assert wait_until(lambda: left(members) == ([], [])), left(members)
    assert mounts() == before


def test_a_lost_jail_is_our_failure_and_never_a_zero(tmp_path, project):
    """Kill the jail under running evaluations: they run again on a new one, none comes out as a reward of 0 for our fault."""
    import os
    import signal
    from assay.v1 import rollout_pb2, rollout_pb2_grpc, verdict_pb2
    server = Server(tmp_path / "state").start()
    server.assay("tasks", "import", project.tasks, "--repos", project.repos)

    def parent(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
            return int(f.read().rsplit(")", 1)[1].split()[1])

    def jails():
        own = family(server.process.pid)
        return [pid for pid, (_, line) in own.items() if b"assay-jail" in line and parent(pid) == server.process.pid]
    with grpc.insecure_channel(server.address) as channel:
        call = rollout_pb2_grpc.RolloutStub(channel).Evaluate.future(
            rollout_pb2.EvaluateRequest(task_id="scale-1", patch=project.fix.encode(), fresh=True), timeout=120)
        time.sleep(0.15)
        for pid in jails():
            os.kill(pid, signal.SIGKILL)
        answer = call.result()
        if answer.verdict.HasField("reward"):
            assert answer.verdict.reward.value == 1.0
        else:
            assert answer.verdict.outcome == verdict_pb2.OUTCOME_INFRA_ERROR and answer.verdict.fault
        again = rollout_pb2_grpc.RolloutStub(channel).Evaluate(
            rollout_pb2.EvaluateRequest(task_id="scale-1", patch=project.fix.encode(), fresh=True), timeout=120)
        assert again.verdict.reward.value == 1.0
    assert server.stop() == 0

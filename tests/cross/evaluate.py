"""The whole client in twenty lines: unmodified grpcio, one verdict, then the trajectories of the log.
usage: PYTHONPATH=build/py build/venv/bin/python tests/cross/evaluate.py ADDRESS TASK PATCH_FILE   (ADDRESS: unix:/path or host:port)"""
import sys
import uuid

import grpc
from assay.v1 import rollout_pb2, rollout_pb2_grpc, trajectory_pb2, trajectory_pb2_grpc, verdict_pb2

if len(sys.argv) != 4:
    sys.exit(__doc__)
address, task, patch = sys.argv[1:]
with grpc.insecure_channel(address) as channel:
    rollout = rollout_pb2_grpc.RolloutStub(channel)
    with open(patch, "rb") as f:
        request = rollout_pb2.EvaluateRequest(request_id=str(uuid.uuid4()), task_id=task, patch=f.read())
    answer = rollout.Evaluate(request, timeout=600)
    reward = answer.verdict.reward.value if answer.verdict.HasField("reward") else None
    print(f"{task}: {verdict_pb2.Outcome.Name(answer.verdict.outcome)} reward {reward}: {answer.verdict.reason}")
    trajectories = trajectory_pb2_grpc.TrajectoriesStub(channel)
    for t in trajectories.Subscribe(trajectory_pb2.SubscribeRequest(cursor=answer.cursor)):
        print(t.cursor, t.task_id, t.request_id, t.episode_id.hex())

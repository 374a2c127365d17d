"""Every real upstream task through `assay eval`: the true fix earns 1, an empty patch 0, one that does not apply is named."""
import json
import os

import pytest

from conftest import ROOT, Server

UPSTREAM = os.path.join(ROOT, "build/upstream")
TASKS = []
if os.path.exists(f"{UPSTREAM}/tasks.jsonl"):
    with open(f"{UPSTREAM}/tasks.jsonl", encoding="utf-8") as f:
        TASKS = [json.loads(line) for line in f if line.strip()]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    server = Server(tmp_path_factory.mktemp("upstream") / "state").start()
    server.assay("tasks", "import", f"{UPSTREAM}/tasks.jsonl", "--repos", f"{UPSTREAM}/repos")
    yield server
    assert server.stop() == 0


def test_there_are_enough():
    if not TASKS:
        pytest.skip("build/upstream is not there: make upstream")
    assert len(TASKS) >= 6 and len({t["repo"] for t in TASKS}) >= 4
    assert any("pytest" not in t["test_cmd"] for t in TASKS), "at least one is not Python"


@pytest.mark.parametrize("task", TASKS, ids=lambda t: t["instance_id"])
def test_task(house, task):
    judge = lambda patch: json.loads(house.assay("eval", "--task", task["instance_id"], "--patch", "-", "-o", "json", stdin=patch).stdout)
    fixed = judge(task["patch"].encode())
    assert (fixed["outcome"], fixed["reward"]) == ("resolved", 1), fixed
    assert all(fixed["tests"][i] == "PASSED" for i in task["FAIL_TO_PASS"] + task["PASS_TO_PASS"])
    empty = judge(b"")
    assert (empty["outcome"], empty["reward"], empty["patch_status"]) == ("patch_empty", 0, "empty"), empty
    # A change that does not fit, after one that does: nothing of it may be applied.
    path = next(line[6:] for line in task["patch"].split("\n") if line.startswith("--- a/"))
    bad = task["patch"] + f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -3,1 +3,1 @@\n-this line is not there, nor was it ever\n+x\n"
    refused = judge(bad.encode())
    assert (refused["outcome"], refused["reward"], refused["patch_status"]) == ("patch_failed", 0, "failed"), refused
    assert path in refused["reason"] and any(c.isdigit() for c in refused["reason"].replace(path, "")), refused["reason"]
    again = judge(task["patch"].encode())
    assert again["reward"] == 1     # the shared tree is as it was

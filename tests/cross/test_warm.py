"""Warm starts through `assay eval`: real suites come to the same results warm and cold, with a fix and without."""
import json
import re

import pytest

from conftest import Project, Server
from test_upstream_tasks import TASKS, UPSTREAM

PYTHON = [t for t in TASKS if t["test_cmd"].startswith("python3 -m pytest ")]


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    folder = tmp_path_factory.mktemp("warm")
    server = Server(folder / "state", slots=1).start()
    with open(folder / "tasks.jsonl", "w", encoding="utf-8") as f:
        for t in PYTHON:
            f.write(json.dumps(t) + "\n")
            f.write(json.dumps(dict(t, instance_id=t["instance_id"] + "-cold", warm=[])) + "\n")
    if PYTHON:
        server.assay("tasks", "import", str(folder / "tasks.jsonl"), "--repos", f"{UPSTREAM}/repos")
    yield server
    assert server.stop() == 0


def judge(server, task, patch, want=None, tries=8):
    """The verdict; with `want`, of the first run that began so. The first of its kind in a slot is cold, its successors not."""
    for _ in range(tries):
        out = server.assay("eval", "--task", task, "--patch", "-", "--fresh", "-o", "json", stdin=patch.encode()).stdout
        v = json.loads(out)
        if want is None or v["start"] == want:
            return v
        assert v["start"] == "cold: the first of its kind here", v["start"]
    raise AssertionError(f"{task}: never {want}: {v['start']}")


def steady(text):
    return re.sub(r"in [0-9.]+s|0x[0-9a-f]+|[0-9.]+s (call|setup|teardown)", "", text)


def test_there_are_enough():
    if not TASKS:
        pytest.skip("build/upstream is not there: make upstream")
    assert len({t["repo"] for t in PYTHON}) >= 3


@pytest.mark.parametrize("task", PYTHON, ids=lambda t: t["instance_id"])
def test_same_results(house, task):
    path = next(line[6:] for line in task["patch"].split("\n") if line.startswith("--- a/"))
    for patch in task["patch"], f"diff --git a/{path}.note b/{path}.note\nnew file mode 100644\n--- /dev/null\n+++ b/{path}.note\n@@ -0,0 +1 @@\n+x\n":
        cold = judge(house, task["instance_id"] + "-cold", patch)
        assert cold["start"] == ""
        warm = judge(house, task["instance_id"], patch, want="warm")
        assert warm["tests"] == cold["tests"] and len(warm["tests"]) > 10
        for key in "outcome", "reward", "run_end", "limits_hit", "findings":
            assert warm[key] == cold[key], key
        assert steady(warm["output"]) == steady(cold["output"])
        unsteady = set(cold["tests"]) - set(task["FAIL_TO_PASS"]) - set(task["PASS_TO_PASS"])
        assert cold["reward"] == (patch is task["patch"]) or unsteady


def test_what_is_declared_and_what_is_not(tmp_path):
    """A plain pytest command declares itself; what a shell has to read does not; a wrong field is named."""
    project = Project(tmp_path / "repos")
    records = {
        "plain": project.record(), "none": project.record(warm=[]), "shell": project.record(test_cmd="cd . && python3 -m pytest test_scale.py"),
        "script": project.record(test_cmd="pytest test_scale.py"), "given": project.record(warm=["python3", "-m", "pytest"]),
        "other": project.record(test_cmd="python3 -m unittest -q test_scale", reader="exit", warm=["python3", "-m", "unittest"],
                                FAIL_TO_PASS=[], PASS_TO_PASS=[]),
    }
    tasks = project.write(*(dict(r, instance_id=name) for name, r in records.items()))
    server = Server(tmp_path / "state", slots=1).start()
    server.assay("tasks", "import", str(tasks), "--repos", str(project.repos))
    for name, want in ("plain", "warm"), ("none", ""), ("shell", ""), ("given", "warm"):
        assert judge(server, name, project.fix, want=want)["reward"] == 1, name
    for name in "script", "other":              # another beginning than the one before: a second run of its kind in a slot asks for it
        v = judge(server, name, project.fix, want="warm", tries=16)
        assert v["run_end"] in ("exit 0", "exit 5"), v
    text = server.assay("eval", "--task", "plain", "--patch", "-", "--fresh", stdin=project.fix.encode()).stdout.decode()
    assert re.search(r"run +exit 0, .*, start (warm|cold: )", text), text
    project.write(project.record(warm="python3 -m pytest"))
    refused = server.assay("tasks", "import", str(tasks), "--repos", str(project.repos), check=False)
    assert refused.returncode != 0 and b"field warm: want a list of words" in refused.stdout + refused.stderr
    assert server.stop() == 0

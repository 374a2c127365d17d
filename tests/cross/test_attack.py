"""Attacks over the whole way from patch to reward, and hostile clients against a real server.

Code under test shares pytest's process, so a patch that means to can always act as pytest; what is held here is the
cheap half: whatever a patch leaves lying in the tree or writes after the session earns nothing.
"""
import json
import os
import socket
import struct
import subprocess
import threading

import grpc
import pytest

from conftest import Project, Server, git, run, wait_until
from assay.v1 import catalog_pb2, catalog_pb2_grpc, rollout_pb2, rollout_pb2_grpc, trajectory_pb2, trajectory_pb2_grpc, verdict_pb2

WRONG = "def scale(x):\n    return x * 4\n\n\ndef shift(x):\n    return x + 2\n"
CASE = '<testcase classname="test_scale" name="{0}" file="test_scale.py" line="3" time="0.001"/>'
FORGED = ('<testsuites><testsuite name="pytest" errors="0" failures="0" skipped="0" tests="2" time="0.01">'
          + CASE.format("test_scale") + CASE.format("test_shift") + "</testsuite></testsuites>")
PRINTED = ("=========================== short test summary info ============================\n"
           "PASSED test_scale.py::test_scale\nPASSED test_scale.py::test_shift\n"
           "============================== 2 passed in 0.01s ===============================\n")
FORGE = f"""
import atexit, os, sys
def report():
    open('/assay/report/junit.xml', 'w').write({FORGED!r})
def say():
    os.write(1, {PRINTED!r}.encode())
"""
EVIL = FORGE + "report()\nsay()\nos._exit(0)\n"
PLUGIN = ("import pytest\n@pytest.hookimpl(hookwrapper=True)\ndef pytest_runtest_makereport(item, call):\n"
          "    call.excinfo = None\n    (yield).get_result().outcome = 'passed'\n")
SKIPS = WRONG.replace("return x * 4", "import pytest; pytest.skip('x')")


def compiled(source):
    """A module that the interpreter takes without a look at the source beside it (PEP 552, unchecked)."""
    code = ("import importlib.util, marshal, struct, sys; sys.stdout.buffer.write(importlib.util.MAGIC_NUMBER + struct.pack('<III', 1, 0, 0)"
            " + marshal.dumps(compile(sys.stdin.read(), 'scale.py', 'exec')))")
    return subprocess.run(["/usr/bin/python3", "-c", code], input=source.encode(), stdout=subprocess.PIPE, check=True).stdout


TAG = "import sys; print(sys.implementation.cache_tag)"
PYC = "__pycache__/scale." + run("/usr/bin/python3", "-c", TAG).decode().strip() + ".pyc"

TRICKS = {
    "report at import": {"scale.py": WRONG + FORGE + "report()\n"},
    "report at exit": {"scale.py": WRONG + FORGE + "atexit.register(report)\n"},
    "report and no more": {"scale.py": WRONG + FORGE + "report()\nos._exit(0)\n"},
    "report and status 0 at exit": {"scale.py": WRONG + FORGE + "atexit.register(lambda: (report(), os._exit(0)))\n"},
    "report, summary, status 0 at exit": {"scale.py": WRONG + FORGE + "atexit.register(lambda: (report(), say(), os._exit(0)))\n"},
    "summary at exit": {"scale.py": WRONG + FORGE + "atexit.register(say)\n"},
    "report that cannot be replaced": {"scale.py": WRONG + FORGE + "report()\nos.chmod('/assay/report/junit.xml', 0o400)\n"},
    "report by a process left behind": {"scale.py": WRONG + FORGE + "if os.fork() == 0:\n    import time\n    os.setsid()\n    time.sleep(1)\n"
                                                                   "    report()\n    os._exit(0)\n"},
    "runner killed": {"scale.py": WRONG + FORGE + "report()\nos.kill(os.getppid(), 9)\n"},
    "skip, then report": {"scale.py": SKIPS + FORGE + "atexit.register(report)\n"},
    "xfail, then report": {"scale.py": SKIPS.replace("skip(", "xfail(") + FORGE + "atexit.register(report)\n"},
    "skip": {"scale.py": SKIPS},
    "xfail": {"scale.py": SKIPS.replace("skip(", "xfail(")},
    "leave with 0": {"scale.py": "import os\nos._exit(0)\n"},
    "end the session": {"scale.py": WRONG.replace("return x * 4", "import pytest; pytest.exit('x', 0)")},
    "the test file at import": {"scale.py": WRONG + "open('test_scale.py', 'w').write('def test_scale(): pass\\ndef test_shift(): pass\\n')\n"},
    "a package of the test's name": {"scale.py": WRONG, "test_scale/__init__.py": "def test_scale(): pass\ndef test_shift(): pass\n"},
    "the same ids elsewhere": {"scale.py": WRONG, "test_other.py": "def test_scale(): pass\ndef test_shift(): pass\n"},
    "conftest.py": {"scale.py": WRONG, "conftest.py": PLUGIN},
    "pytest.ini": {"scale.py": WRONG, "pytest.ini": "[pytest]\naddopts = -p evil\n", "evil.py": PLUGIN},
    "sitecustomize": {"scale.py": WRONG, "sitecustomize.py": EVIL},
    "entry point of a distribution": {"scale.py": WRONG, "evil.py": PLUGIN, "evil-1.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n",
                                      "evil-1.dist-info/METADATA": "Metadata-Version: 2.1\nName: evil\nVersion: 1\n"},
    "entry point of an egg": {"scale.py": WRONG, "evil.py": PLUGIN, "evil.EGG-INFO/entry_points.txt": "[pytest11]\nevil = evil\n",
                              "evil.EGG-INFO/PKG-INFO": "Metadata-Version: 2.1\nName: evil\nVersion: 1\n"},
    "a module called pytest": {"scale.py": WRONG, "pytest.py": EVIL},
    "a package called pytest": {"scale.py": WRONG, "pytest/__init__.py": "", "pytest/__main__.py": EVIL},
    "a package called _pytest": {"scale.py": WRONG, "_pytest/__init__.py": EVIL},
    "compiled module": {"scale.py": WRONG, PYC: compiled("def scale(x): return 9\ndef shift(x): return 3\n")},
}


class House:
    def __init__(self, folder):
        self.project = Project(folder / "repos")
        self.server = Server(folder / "state").start()
        self.repo = self.project.repos / "scale"
        git(self.repo, "checkout", "-q", "--detach", self.project.base)
        self.add(self.project.record())

    def add(self, *records):
        self.project.write(*records)
        self.server.assay("tasks", "import", self.project.tasks, "--repos", self.project.repos)

    def patch(self, files):
        for path, content in files.items():
            file = self.repo / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        git(self.repo, "add", "-A", "-f")
        patch = run("git", "-C", str(self.repo), "diff", "--cached", "--binary", "HEAD")
        git(self.repo, "reset", "-q", "--hard")
        git(self.repo, "clean", "-qfdx")
        return patch

    def eval(self, files, task="scale-1"):
        return json.loads(self.server.assay("eval", "--task", task, "--patch", "-", "-o", "json", stdin=self.patch(files)).stdout)

    def channel(self):
        return grpc.insecure_channel(self.server.address, options=[("grpc.use_local_subchannel_pool", 1)])

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    h = House(tmp_path_factory.mktemp("attack"))
    yield h
    assert h.server.stop() == 0


@pytest.mark.parametrize("trick", TRICKS)
def test_a_trick_earns_nothing(house, trick):
    v = house.eval(TRICKS[trick])
    assert v["reward"] == 0, (trick, v)


def test_the_honest_twin_earns_one(house):
    """The true fix beside a file of each protected kind, which changes nothing."""
    fix = WRONG.replace("x * 4", "x * 3")
    assert house.eval({"scale.py": fix})["reward"] == 1
    v = house.eval({"scale.py": fix, "conftest.py": "raise SystemExit(3)\n", "pytest.py": "raise SystemExit(3)\n",
                    "evil-1.dist-info/entry_points.txt": "[pytest11]\nevil = evil\n", PYC: compiled("raise SystemExit(3)")})
    assert v["reward"] == 1 and len(v["findings"]) == 4, v


def test_required_tests_of_the_base_are_not_the_patchs(house):
    """test_shift is required and no hidden test brings its file: the base's own copy judges."""
    house.add(house.project.record(instance_id="kept-1", test_patch="", FAIL_TO_PASS=[], PASS_TO_PASS=["test_scale.py::test_shift"]))
    broken = WRONG.replace("x + 2", "x + 5")
    for test in ("def test_shift():\n    pass\n", "import pytest\n@pytest.mark.xfail\ndef test_shift():\n    assert 0\n"):
        v = house.eval({"scale.py": broken, "test_scale.py": test}, "kept-1")
        assert v["reward"] == 0 and any("holds required tests" in f for f in v["findings"]), v


# --- hostile clients ---

def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def headers(path):
    out = b""
    for k, v in ((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x"), ("content-type", "application/grpc"), ("te", "trailers")):
        out += b"\0" + bytes([len(k)]) + k.encode() + bytes([len(v)]) + v.encode()
    return out


EVALUATE, MANY = "/assay.v1.Rollout/Evaluate", "/assay.v1.Rollout/EvaluateMany"
WIRE = {
    "not http/2": None,
    "data before headers": frame(0, 0, 1, b"x"),
    "a message of 4 GiB": frame(1, 4, 1, headers(EVALUATE)) + frame(0, 0, 1, b"\0\xff\xff\xff\xff"),
    "an unknown compression": frame(1, 4, 1, headers(EVALUATE)) + frame(0, 1, 1, b"\xff\0\0\0\0"),
    "half a prefix": frame(1, 4, 1, headers(EVALUATE)) + frame(0, 1, 1, b"\0\0"),
    "no message": frame(1, 5, 1, headers(EVALUATE)),
    "continuations without end": frame(1, 0, 1, headers(EVALUATE)) + frame(9, 0, 1) * 20000,
    "settings without end": frame(4, 0, 0) * 20000,
    "empty data": frame(1, 4, 1, headers(EVALUATE)) + frame(0, 0, 1) * 20000,
    "opened and reset": b"".join(frame(1, 4, i, headers(EVALUATE)) + frame(3, 0, i, b"\0\0\0\x08") for i in range(1, 8001, 2)),
    "streams without end": b"".join(frame(1, 4, i, headers(MANY)) for i in range(1, 8001, 2)),
}


@pytest.mark.parametrize("what", WIRE)
def test_foreign_frames_harm_only_their_own_connection(house, what):
    def status():
        with house.channel() as c:
            return rollout_pb2_grpc.RolloutStub(c).Status(rollout_pb2.StatusRequest(), timeout=30)
    status()
    before = house.descriptors()
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(10)
        s.connect(house.server.address.removeprefix("unix:"))
        try:
            s.sendall(b"GET / HTTP/1.1\r\n\r\n" if WIRE[what] is None else
                      b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0) + WIRE[what])
        except OSError:
            pass                        # the server hung up on us
        assert status().queue_len == 0
    assert wait_until(lambda: house.descriptors() <= before), what


def test_one_request_id_in_parallel_is_one_episode(house):
    answers = []

    def ask(i):
        patch = house.project.change(7) if i % 4 else house.project.change(8)
        with house.channel() as c:
            try:
                request = rollout_pb2.EvaluateRequest(request_id="same", task_id="scale-1", patch=patch.encode())
                answers.append((i % 4 == 0, rollout_pb2_grpc.RolloutStub(c).Evaluate(request, timeout=60).episode_id))
            except grpc.RpcError as e:
                answers.append((i % 4 == 0, e.code()))

    threads = [threading.Thread(target=ask, args=(i,)) for i in range(32)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    won = {who for who, a in answers if isinstance(a, bytes)}
    assert len(won) == 1 and len({a for _, a in answers if isinstance(a, bytes)}) == 1, answers
    assert {a for who, a in answers if who not in won} == {grpc.StatusCode.FAILED_PRECONDITION}, answers


def test_callers_that_go_away_leave_nothing(house):
    """Calls cancelled at any moment, and streams whose connection is dropped half open."""
    before = house.descriptors()
    with house.channel() as c:
        stub = rollout_pb2_grpc.RolloutStub(c)
        calls = [stub.Evaluate.future(rollout_pb2.EvaluateRequest(task_id="scale-1", patch=house.project.change(100 + i).encode(),
                                                                 priority=i % 3)) for i in range(300)]
        for call in calls:
            call.cancel()
    never = threading.Event()
    channels = [house.channel() for _ in range(10)]

    def half(i):
        yield rollout_pb2.EvaluateRequest(task_id="scale-1", patch=house.project.change(1000 + i).encode())
        never.wait()

    streams = [rollout_pb2_grpc.RolloutStub(c).EvaluateMany(half(i)) for c in channels for i in range(5)]
    subscriptions = [trajectory_pb2_grpc.TrajectoriesStub(c).Subscribe(trajectory_pb2.SubscribeRequest(cursor=1, follow=True)) for c in channels]
    assert next(subscriptions[0]).cursor == 1
    for c in channels:
        c.close()
    never.set()
    del streams

    def idle():
        with house.channel() as c:
            s = rollout_pb2_grpc.RolloutStub(c).Status(rollout_pb2.StatusRequest(), timeout=30)
        return s.slots_busy == 0 and s.queue_len == 0
    assert wait_until(idle, 60)
    assert wait_until(lambda: house.descriptors() <= before)
    assert house.eval({"scale.py": WRONG.replace("x * 4", "x * 3")})["reward"] == 1


def test_a_flood_is_refused_without_a_reward(house):
    """More requests than the queue holds on one unread stream: each is answered, and a refusal is never a zero."""
    want = 6000
    with house.channel() as c:
        requests = (rollout_pb2.EvaluateRequest(request_id=f"flood-{i}", task_id="scale-1", patch=house.project.fix.encode()) for i in range(want))
        seen = {}
        for a in rollout_pb2_grpc.RolloutStub(c).EvaluateMany(requests, timeout=300):
            seen[a.request_id] = a.verdict
    assert len(seen) == want
    for v in seen.values():
        if v.outcome == verdict_pb2.OUTCOME_RESOLVED:
            assert v.reward.value == 1
        else:
            assert v.outcome == verdict_pb2.OUTCOME_INFRA_ERROR and not v.HasField("reward"), v


def test_an_import_without_end_goes_with_its_caller(house, tmp_path):
    """A git object cut short keeps the object reader busy for ever; the next import must not wait for that."""
    damaged = Project(tmp_path / "repos")
    for folder, _, names in os.walk(damaged.repos / "scale/.git/objects"):
        for name in names:
            os.chmod(os.path.join(folder, name), 0o644)
            os.truncate(os.path.join(folder, name), 5)

    def add(project, id, seconds):
        line = json.dumps(project.record(instance_id=id)).encode()
        with house.channel() as c:
            request = catalog_pb2.ImportRequest(jsonl=line, repos_dir=str(project.repos), source="x", first_line=1)
            return catalog_pb2_grpc.CatalogStub(c).Import(request, timeout=seconds)
    try:
        assert add(damaged, "damaged-1", 3).added == 0
    except grpc.RpcError as e:
        assert e.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    assert add(house.project, "after-1", 60).added == 1

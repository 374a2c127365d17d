"""Real servers for the cross-room tests: a small real repository, an imported task, an assayd of our own."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("ASSAY_BIN", os.path.join(ROOT, "build/bin"))
sys.path.insert(0, os.path.join(ROOT, "build/py"))

SOURCE = "def scale(x):\n    return x * 2\n\n\ndef shift(x):\n    return x + 2\n"
TESTS = "from scale import scale, shift\n\n\ndef test_scale():\n    assert scale(3) == 9\n\n\ndef test_shift():\n    assert shift(1) == 3\n"
OLD_TESTS = "from scale import shift\n\n\ndef test_shift():\n    assert shift(1) == 3\n"


def run(*args, **kw):
    p = subprocess.run(args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    assert p.returncode == 0, f"{args}: exit {p.returncode}: {p.stderr.decode(errors='replace')}"
    return p.stdout


def git(repo, *args):
    env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_AUTHOR_NAME="t", GIT_AUTHOR_EMAIL="t@example.org",
               GIT_COMMITTER_NAME="t", GIT_COMMITTER_EMAIL="t@example.org",
               GIT_AUTHOR_DATE="2026-01-01T00:00:00Z", GIT_COMMITTER_DATE="2026-01-01T00:00:00Z")
    return run("git", "-C", str(repo), *args, env=env).decode()


class Project:
    """A repository `scale` of two revisions: head fixes a bug and adds a test for it."""

    def __init__(self, folder):
        self.repos = folder
        repo = folder / "scale"
        repo.mkdir(parents=True)
        git(repo, "init", "-q", "-b", "main")
        (repo / "scale.py").write_text(SOURCE)
        (repo / "test_scale.py").write_text(OLD_TESTS)
        git(repo, "add", ".")
        git(repo, "commit", "-qm", "base")
        self.base = git(repo, "rev-parse", "HEAD").strip()
        (repo / "scale.py").write_text(SOURCE.replace("x * 2", "x * 3"))
        self.fix = git(repo, "diff", "--", "scale.py")
        (repo / "test_scale.py").write_text(TESTS)
        self.test_patch = git(repo, "diff", "--", "test_scale.py")
        git(repo, "commit", "-qam", "fix")
        self.head = git(repo, "rev-parse", "HEAD").strip()
        self.tasks = folder / "tasks.jsonl"
        self.write()

    def record(self, **more):
        r = dict(instance_id="scale-1", repo="scale", base_commit=self.base, problem_statement="scale must triple",
                 patch=self.fix, test_patch=self.test_patch, FAIL_TO_PASS=["test_scale.py::test_scale"],
                 PASS_TO_PASS=["test_scale.py::test_shift"], test_cmd="python3 -m pytest test_scale.py", timeout_s=60)
        r.update(more)
        return r

    def write(self, *records):
        with open(self.tasks, "w", encoding="utf-8") as f:
            for r in records or (self.record(),):
                f.write(json.dumps(r) + "\n")
        return self.tasks

    def change(self, factor):
        """A patch that makes scale() multiply by `factor`: another tree for every factor."""
        return self.fix.replace("+    return x * 3", f"+    return x * {factor}")


class Server:
    """An assayd with its state; may be killed and started again."""

    def __init__(self, state, slots=2):
        self.state, self.slots, self.process = state, slots, None
        self.address = f"unix:{state}/test.sock"

    def start(self):
        r, w = os.pipe()
        self.process = subprocess.Popen([os.path.join(BIN, "assayd"), "--state", str(self.state), "--listen", self.address,
                                         "--slots", str(self.slots), "--ready-fd", str(w)], pass_fds=[w],
                                        stderr=open(f"{self.state}.stderr", "ab"))
        os.close(w)
        with os.fdopen(r, "rb") as f:
            line = f.readline()
        if line != b"ready\n":
            raise RuntimeError(f"assayd did not start: {line!r} " + open(f"{self.state}.stderr").read()[-2000:])
        return self

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            return self.process.wait(timeout=30)
        return None

    def assay(self, *args, stdin=None, check=True):
        p = subprocess.run([os.path.join(BIN, "assay"), *map(str, args), "--server", self.address], input=stdin,
                           stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and p.returncode != 0:
            raise AssertionError(f"assay {args}: exit {p.returncode}: {p.stderr.decode()}{p.stdout.decode()}")
        return p


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "repos")


@pytest.fixture
def server(tmp_path, project):
    s = Server(tmp_path / "state").start()
    s.assay("tasks", "import", project.tasks, "--repos", project.repos)
    yield s
    assert s.stop() in (0, None), open(f"{s.state}.stderr").read()[-3000:]


def family(pid):
    """{process id: (start time, command line)} of `pid` and everything below it."""
    seen = {}
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{p}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rsplit(")", 1)[1].split()
            with open(f"/proc/{p}/cmdline", "rb") as f:
                seen[int(p)] = (int(fields[1]), int(fields[19]), f.read())
        except OSError:
            continue
    inside = {pid}
    while True:
        more = {p for p, (parent, _, _) in seen.items() if parent in inside} - inside
        if not more:
            return {p: seen[p][1:] for p in inside if p in seen}
        inside |= more


def left(members):
    """What is left in the kernel of a family that should be gone: processes, cgroups of its jails. Other servers may live here."""
    procs = []
    for pid, (start, line) in members.items():
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as f:
                fields = f.read().rsplit(")", 1)[1].split()
        except OSError:
            continue
        if int(fields[19]) == start and fields[0] != "Z":
            procs.append((pid, line))
    namespace, groups = os.stat("/proc/self/ns/pid").st_ino, []
    names = tuple(f"assay-jail.{pid}.n{namespace}." for pid in members)
    for folder, inner, _ in os.walk("/sys/fs/cgroup"):
        groups += [os.path.join(folder, n) for n in inner if n.startswith(names)]
    return procs, groups


def mounts():
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as f:
        return [m for m in f if "assay" in m]


def wait_until(what, seconds=20):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.1)
    return False

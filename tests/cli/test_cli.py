"""The command line as its users call it: what it refuses, and one small repository from import to replay."""
import json
import os
import pty
import signal
import subprocess
import time

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("ASSAY_BIN", os.path.join(ROOT, "build/bin"))


def assay(*args, state=None, stdin=b"", cwd=None):
    env = {k: v for k, v in os.environ.items() if k != "ASSAY_STATE"}
    if state is not None:
        env["ASSAY_STATE"] = str(state)
    p = subprocess.run([os.path.join(BIN, "assay"), *map(str, args)], input=stdin, stdout=subprocess.PIPE,
                       stderr=subprocess.PIPE, env=env, cwd=cwd, timeout=300)
    return p.returncode, p.stdout.decode(), p.stderr.decode()


# --- usage: refused before anything is done ---

@pytest.mark.parametrize("args, says", [
    ([], "usage: assay"),
    (["evla"], "did you mean `eval`?"),
    (["tasks"], "tasks import     bring tasks in"),
    (["log"], "log cat          print"),
    (["--state", "x", "tasks", "ls"], "`--state`: options come after the command: assay COMMAND [OPTIONS]"),
    (["-o", "json", "status"], "`-o`: options come after the command"),
    (["tasks", "--state", "x", "ls"], "options come after the command: assay tasks COMMAND [OPTIONS]"),
    (["tasks", "improt"], "did you mean `tasks import`?"),
    (["eval", "--tsk", "x"], "did you mean `--task`?"),
    (["eval", "--task"], "--task needs a value"),
    (["eval", "--patch", "-"], "--task ID is needed"),
    (["eval", "--task", "x"], "--patch FILE is needed"),
    (["eval", "--task", "x", "--patch", "-", "--fix"], "exclude each other"),
    (["eval", "--task", "x", "--patch", "-", "--fresh=1"], "--fresh takes no value"),
    (["eval", "--task", "x", "--patch", "-", "--timeout", "0"], "want seconds"),
    (["eval", "--task", "x", "--patch", "-", "--timeout", "nan"], "want seconds"),
    (["eval", "--task", "x", "--patch", "-", "--label", "k"], "want NAME=VALUE"),
    (["eval", "--task", "x", "--patch", "-", "-o", "xml"], "want text or json"),
    (["eval", "--task", "x", "--patch", "-", "extra\x1b"], "`extra\\x1b` is one argument too many"),
    (["tasks", "import"], "missing argument: FILE.jsonl|-"),
    (["tasks", "import", "x.jsonl"], "--repos DIR is needed"),
    (["tasks", "ls", "--slots", "-1"], "want a whole number"),
    (["log", "ls", "--limit", "0"], "want a whole number"),
    (["log", "ls", "--tail", "3", "--cursor", "1"], "--tail goes without"),
    (["log", "cat", "x", "-f"], "needs no --cursor"),
    (["mine", "--repo", "."], "--base is needed"),
    (["learn", "--run", "x"], "--tasks PREFIX and --run NAME"),
    (["learn", "--tasks", "x", "--run", "../x"], "plain name"),
    (["learn", "--tasks", "x", "--run", "x", "--lr", "0"], "want a rate above 0"),
    (["eval", "--task", "x", "--patch", "-", "--timeout", "0.09"], "want seconds from 0.1 to 86400"),
    (["replay", "1", "--timeout", "86401"], "want seconds from 0.1 to 86400"),
    (["mine", "--repo", ".", "--base", "x", "--head", "y", "--cmd", "z", "--timeout", "1e9"], "want seconds from 0.1 to 86400"),
    (["status", "-x"], "unknown option `-x`"),
    (["help", "lerned"], "did you mean `learn`?"),
])
def test_usage_errors_are_64_and_touch_nothing(args, says, tmp_path):
    rc, out, err = assay(*args, cwd=tmp_path)
    assert rc == 64 and out == "" and says in err, err
    assert "\x1b" not in err
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("args", [["help"], ["--help"], ["help", "eval"], ["eval", "--help"], ["help", "tasks"],
                                  ["tasks", "--help"], ["log", "-h"],
                                  ["help", "tasks", "import"], ["version"], ["--version"]])
def test_help_is_data_and_0(args, tmp_path):
    rc, out, err = assay(*args, cwd=tmp_path)
    assert rc == 0 and out and err == ""
    assert os.listdir(tmp_path) == []


def test_a_noun_lists_its_commands():
    for args in (["tasks", "--help"], ["tasks", "-h"], ["help", "tasks"]):
        lines = assay(*args)[1].splitlines()
        assert [line.split()[1] for line in lines if line.startswith("  tasks ")] == ["import", "ls", "show", "duplicates"]
        assert lines[0] == "usage: assay tasks COMMAND [OPTIONS]" and len(lines) < 10


def test_every_command_has_its_help():
    listed = [line[2:18].strip() for line in assay("help")[1].splitlines() if line.startswith("  ") and line[2] not in " -"]
    assert len(listed) >= 13
    for name in listed:
        rc, out, _ = assay("help", *name.split())
        assert rc == 0 and out.startswith(f"usage: assay {name}")


def test_bad_files_are_65_before_a_server_is_asked(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * ((1 << 20) + 1))
    for path, says in (("nowhere", "nowhere: No such file"), (".", "is a directory"), ("big", "larger than 1048576 bytes")):
        rc, out, err = assay("eval", "--task", "t", "--patch", path, cwd=tmp_path)
        assert rc == 65 and out == "" and says in err
    rc, _, err = assay("tasks", "import", "nowhere", "--repos", ".", cwd=tmp_path)
    assert rc == 65 and "nowhere" in err
    rc, _, err = assay("tasks", "import", "big", "--repos", "nowhere", cwd=tmp_path)
    assert rc == 65 and "--repos nowhere" in err
    assert sorted(os.listdir(tmp_path)) == ["big"]


def test_nobody_at_the_named_server_is_69(tmp_path):
    for args in (["tasks", "ls"], ["eval", "--task", "t", "--patch", "/dev/null"], ["status"]):
        rc, out, err = assay(*args, "--server", f"unix:{tmp_path}/none", "-o", "json", cwd=tmp_path)
        assert rc == 69 and out == "" and "none" in err


def test_doctor_says_what_is_enforced(tmp_path):
    rc, out, _ = assay("doctor", "-o", "json", cwd=tmp_path)
    d = json.loads(out)
    assert rc == (0 if d["ok"] else 69)
    assert {"namespaces", "overlay", "seccomp", "landlock", "assayd", "assay-jail"} <= {c["name"] for c in d["checks"]}
    assert all(c["advice"] for c in d["checks"] if c["status"] != "ok")
    assert {"wall", "memory", "pids", "cpu", "output", "disk"} <= set(d["limits"])
    assert assay("doctor", cwd=tmp_path)[0] == rc
    assert os.listdir(tmp_path) == []


# --- the whole way, on one small repository ---

SOURCE = "def scale(x):\n    return x * 2\n\n\ndef shift(x):\n    return x + 2\n"
TESTS = "from scale import scale, shift\n\n\ndef test_scale():\n    assert scale(3) == 9\n\n\n" \
        "def test_shift():\n    assert shift(1) == 3\n"
RANDOM_TESTS = "import os\nimport pytest\n\n\n" \
               "@pytest.mark.parametrize('n', range(20))\ndef test_coin(n):\n    assert os.urandom(1)[0] & 1\n"


class Project:
    """`scale`: revision 1 has a bug, revision 2 fixes it and tests it, 3 only adds a coin toss, 4 only changes source."""

    def __init__(self, folder):
        self.repos, self.repo, self.state = folder / "repos", folder / "repos" / "scale", folder / "state"
        self.repo.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.write("scale.py", SOURCE)
        self.write("test_scale.py", TESTS.replace("3) == 9", "0) == 0"))
        self.base = self.commit()
        self.write("scale.py", SOURCE.replace("x * 2", "x * 3"))
        self.fix = self.git("diff")
        self.write("test_scale.py", TESTS)
        self.test_patch = self.git("diff", "--", "test_scale.py")
        self.head = self.commit()
        self.write("test_coin.py", RANDOM_TESTS)
        self.write("scale.py", SOURCE.replace("x * 2", "3 * x"))
        self.coin = self.commit()
        self.write("scale.py", SOURCE.replace("x * 2", "x + x + x"))
        self.source_only = self.commit()

    def git(self, *args):
        env = dict(os.environ, GIT_CONFIG_GLOBAL="/dev/null", GIT_AUTHOR_NAME="t", GIT_AUTHOR_EMAIL="t@example.org",
                   GIT_COMMITTER_NAME="t", GIT_COMMITTER_EMAIL="t@example.org")
        return subprocess.run(["git", "-C", str(self.repo), *args], check=True, stdout=subprocess.PIPE, env=env).stdout.decode()

    def write(self, name, text):
        (self.repo / name).write_text(text)

    def commit(self):
        self.git("add", ".")
        self.git("commit", "-qm", "change")
        return self.git("rev-parse", "HEAD").strip()

    def record(self, **more):
        r = dict(instance_id="scale-1", repo="scale", base_commit=self.base, problem_statement="scale must triple",
                 patch=self.fix, test_patch=self.test_patch, FAIL_TO_PASS=["test_scale.py::test_scale"],
                 PASS_TO_PASS=["test_scale.py::test_shift"], test_cmd="python3 -m pytest test_scale.py", timeout_s=60,
                 difficulty="low")
        return dict(r, **more)

    def assay(self, *args, **kw):
        return assay(*args, state=self.state, **kw)

    def eval(self, patch, *more):
        if isinstance(patch, str):
            patch = patch.encode()
        rc, out, err = self.assay("eval", "--task", "scale-1", "--patch", "-", "-o", "json", *more, stdin=patch)
        assert rc == 0, err
        return json.loads(out)

    def mine(self, base, head, *more):
        return self.assay("mine", "--repo", self.repo, "--base", base, "--head", head, "--cmd", "python3 -m pytest", *more)


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    if not os.path.exists(os.path.join(BIN, "assayd")):
        pytest.skip("assayd is not built: run `make`")
    p = Project(tmp_path_factory.mktemp("project"))
    rc, out, err = p.assay("tasks", "import", "-", "--repos", p.repos, stdin=json.dumps(p.record()).encode())
    assert rc == 0 and out.startswith("1 added, 0 unchanged, 0 replaced"), err
    return p


def test_import_again_and_bad_records(project, tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text("\n".join([json.dumps(project.record()), "{broken", "",
                               json.dumps(project.record(instance_id="no-repo", repo="none"))]))
    rc, out, err = project.assay("tasks", "import", file, "--repos", project.repos)
    assert rc == 65 and out.startswith("0 added, 1 unchanged, 0 replaced")
    assert f"{file}:2: " in err and f"{file}:4: no-repo: " in err and err.count("no-repo") == 1 and "2 bad records" in err
    bad = json.dumps(project.record(instance_id="no-memory", memory_mb=1 << 22))
    rc, out, err = project.assay("tasks", "import", "-", "--repos", project.repos, stdin=bad.encode())
    assert rc == 65 and "stdin:1: no-memory: field memory_mb: 4194304, want a whole number in 16..1048576\n" in err, err
    listed = json.loads(project.assay("tasks", "ls", "--prefix", "scale-", "-o", "json")[1])["tasks"]
    assert [t["instance_id"] for t in listed] == ["scale-1"]


@pytest.fixture(scope="module")
def zoo(project, tmp_path_factory):
    """A state of its own with six tasks of one commit."""
    state = tmp_path_factory.mktemp("zoo") / "state"
    of = lambda n, split, language, words, **more: project.record(instance_id=f"zoo-{n}", split=split, language=language,
                                                                 problem_statement=words, FAIL_TO_PASS=[f"t::{n}"], **more)
    records = [of(5, "train", "Python", "the lion roars"), of(4, "train", None, "an owl"), of(3, "test", "go", "owl and lion"),
               of(2, "draft", "go", "lions"), of(1, "test", "go", "nothing"),
               dict(of(6, "test", "go", "again"), FAIL_TO_PASS=["t::1"])]
    rc, out, err = assay("tasks", "import", "-", "--repos", project.repos, state=state,
                         stdin="\n".join(map(json.dumps, records)).encode())
    assert rc == 0 and out.startswith("6 added") and "note: task zoo-6: same base tree and same tests as task zoo-1\n" in err, err
    return state


@pytest.mark.parametrize("args, ids", [
    ([], [1, 3, 4, 5, 6]), (["--drafts"], [1, 2, 3, 4, 5, 6]),
    (["--language", "python"], [5, 4]),         # as the record says it, and by what its patch changes
    (["--split", "test"], [3, 1, 6]), (["--split", "draft"], [2]), (["--split", "test", "--language", "go", "--repo", "scale"], [1, 3, 6]),
    (["--task-state", "imported", "--split", "train"], [5, 4]), (["--task-state", "quarantined"], []),
    (["--search", "owl"], [4, 3]), (["--search", "Lion owl"], [3]), (["--search", "lion*", "--drafts"], [5, 3, 2]),
    (["--search", "scale", "--language", "go"], [3, 1, 6]), (["--search", "zoo-4"], [4]),
    (["--limit", "2"], [1, 3]), (["--after", "zoo-3"], [4, 5, 6]), (["--limit", "1", "--after", "zoo-5", "--split", "train"], [4]),
])
def test_ls_filters_and_searches(zoo, args, ids):
    rc, out, err = assay("tasks", "ls", *args, "-o", "json", state=zoo)
    assert rc == 0, err
    assert [t["instance_id"] for t in json.loads(out)["tasks"]] == [f"zoo-{n}" for n in ids]
    assert [line.split()[0] for line in assay("tasks", "ls", *args, state=zoo)[1].splitlines()] == [f"zoo-{n}" for n in ids]


def test_ls_pages_and_refuses(zoo):
    seen, after = [], []
    while after is not None:
        page = json.loads(assay("tasks", "ls", "--split", "test", "--limit", "1", *after, "-o", "json", state=zoo)[1])
        seen += [t["instance_id"] for t in page["tasks"]]
        after = ["--after", page["next"]] if "next" in page else None
    assert seen == ["zoo-3", "zoo-1", "zoo-6"]
    rc, _, err = assay("tasks", "ls", "--task-state", "good", state=zoo)
    assert rc == 65 and 'state: "good", want imported, validated, quarantined or refused' in err
    rc, _, err = assay("tasks", "ls", "--search", "?!", state=zoo)
    assert rc == 65 and "holds no word" in err
    t = json.loads(assay("tasks", "show", "zoo-5", "-o", "json", state=zoo)[1])
    assert (t["language"], t["state"]) == ("python", "imported")


def test_duplicates_are_listed(zoo):
    assert json.loads(assay("tasks", "duplicates", "-o", "json", state=zoo)[1]) == {"groups": [{"ids": ["zoo-1", "zoo-6"], "count": 2}]}
    assert assay("tasks", "duplicates", state=zoo)[1] == "2 tasks  zoo-1, zoo-6\n"


def test_an_import_that_was_killed_goes_on(project, tmp_path):
    """The command and its server die at once; what was told is kept, and the rest comes in, without a second look at the first."""
    state, file, count = tmp_path / "state", tmp_path / "many.jsonl", 4000
    with open(file, "w") as f:
        for n in range(count):
            f.write(json.dumps(project.record(instance_id=f"many-{n:05}", problem_statement="p" * 8000, FAIL_TO_PASS=[f"t::{n}"])) + "\n")
            if n == 1234:
                f.write('{"instance_id": "bad", "repo": 5}\n')
    words = ["tasks", "import", file, "--repos", project.repos, "--resume"]
    here = lambda: json.loads(assay("tasks", "ls", "--limit", "1", "-o", "json", state=state)[1] or '{"tasks": []}')["tasks"]
    p = subprocess.Popen([os.path.join(BIN, "assay"), *map(str, words)], env=dict(os.environ, ASSAY_STATE=str(state)),
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    until = time.monotonic() + 60
    while not here():                           # the first batch is in
        assert p.poll() is None and time.monotonic() < until
        time.sleep(0.05)
    for child in [pid for pid in os.listdir("/proc") if pid.isdigit() and state_of(pid) == str(state)]:
        try:
            os.kill(int(child), signal.SIGKILL)
        except ProcessLookupError:
            pass
    p.kill()
    p.wait()
    rc, out, err = assay(*words, state=state)
    added, skipped = int(out.split()[0]), int(out.split(", ")[3].split()[0])
    assert rc == 65 and added + skipped == count and 0 < skipped < count, out + err
    assert f"{file}:1236: bad: " in err and "field repo" in err
    rc, out, err = assay(*words, state=state)
    assert rc == 65 and out.strip() == f"0 added, 0 unchanged, 0 replaced, {count} skipped", out
    assert len(json.loads(assay("tasks", "ls", "-o", "json", state=state)[1])["tasks"]) == count


def state_of(pid):
    """The state a server or an importer of it works on."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as f:
            words = f.read().decode(errors="replace").split("\0")
    except OSError:
        return None
    if os.path.basename(words[0]) == "assayd" and "--state" in words:
        return words[words.index("--state") + 1]
    return os.path.dirname(words[2]) if os.path.basename(words[0]) == "assay-worker" and words[1:2] == ["import"] else None


def test_import_shows_how_far_it_is_on_a_terminal_only(project, tmp_path):
    file = tmp_path / "t.jsonl"
    file.write_text("".join(json.dumps(project.record(instance_id=f"bar-{n}", problem_statement="p" * (1 << 20))) + "\n" for n in range(7)))
    words = ["tasks", "import", file, "--repos", project.repos]
    rc, out, err = assay(*words, state=tmp_path / "a")
    assert rc == 0 and out == "7 added, 0 unchanged, 0 replaced; no bad records\n" and "%" not in err and "\r" not in err
    ours, theirs = pty.openpty()
    p = subprocess.Popen([os.path.join(BIN, "assay"), *map(str, words)], env=dict(os.environ, ASSAY_STATE=str(tmp_path / "b")),
                         stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:                         # nobody holds the other end
            break
        shown += more
    os.close(ours)
    assert p.communicate()[0] == b"7 added, 0 unchanged, 0 replaced; no bad records\n" and p.returncode == 0
    assert b"[####" in shown and b"/s  " in shown and b" left" in shown, shown[-300:]
    assert b"%" not in shown.rsplit(b"\r\x1b[K", 1)[1], shown[-300:]          # notes may follow, no bar is left


@pytest.mark.parametrize("depth", [1, 40])
def test_a_server_started_by_hand_is_used(project, tmp_path, depth):
    """Whatever its state's path is like: one longer than a socket address holds needs no care either."""
    state = tmp_path.joinpath(*["d" * 8] * depth)
    state.parent.mkdir(parents=True, exist_ok=True)
    read, write = os.pipe()
    server = subprocess.Popen([os.path.join(BIN, "assayd"), "--state", str(state), "--ready-fd", str(write)], pass_fds=[write],
                              stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as ready:
            assert ready.readline() == "ready\n"
        record = json.dumps(project.record()).encode()
        assert assay("tasks", "import", "-", "--repos", project.repos, state=state, stdin=record)[0] == 0
        rc, out, err = assay("eval", "--task", "scale-1", "--fix", "-o", "json", state=state)
        assert rc == 0 and json.loads(out)["reward"] == 1.0, err
        assert json.loads(assay("status", "-o", "json", state=state)[1])["running"] is True
        assert not (state / "assayd.log").exists() and server.poll() is None      # no other was started
    finally:
        server.terminate()
        assert server.wait(timeout=60) == 0
    assert json.loads(assay("status", "-o", "json", state=state)[1])["running"] is False


def test_show_tells_the_fix_only_when_asked(project):
    rc, out, _ = project.assay("tasks", "show", "scale-1", "-o", "json")
    t = json.loads(out)
    assert rc == 0 and "patch" not in t and "test_patch" not in t and t["difficulty"] == "low" and len(t["snapshot"]) == 64
    assert "x * 3" not in project.assay("tasks", "show", "scale-1")[1]
    t = json.loads(project.assay("tasks", "show", "scale-1", "--with-fix", "-o", "json")[1])
    assert t["patch"] == project.fix and t["test_patch"] == project.test_patch
    assert t["FAIL_TO_PASS"] == ["test_scale.py::test_scale"]


def test_the_true_fix_is_worth_1(project):
    v = project.eval(project.fix)
    assert (v["task_id"], v["outcome"], v["reward"]) == ("scale-1", "resolved", 1.0)
    assert (v["patch_status"], v["run_end"]) == ("applied", "exit 0")
    assert v["tests"] == {"test_scale.py::test_scale": "PASSED", "test_scale.py::test_shift": "PASSED"}
    assert v["limits_hit"] == [] and v["peak_memory_bytes"] > 0 and v["timings_ms"]["run"] > 0 and v["attempts"] >= 1
    assert project.eval(project.fix)["cached"] is True
    assert project.eval(project.fix, "--fresh")["cached"] is False
    rc, out, _ = project.assay("eval", "--task", "scale-1", "--fix")
    assert rc == 0 and "resolved, reward 1" in out and "2 of 2 required" in out


def test_an_empty_patch_is_worth_0(project):
    v = project.eval(b"")
    assert (v["reward"], v["patch_status"]) == (0.0, "empty")


def test_a_wrong_patch_is_worth_0_and_the_failing_test_is_named(project):
    wrong = project.fix.replace("+    return x * 3", "+    return x * 4")
    v = project.eval(wrong)
    assert (v["outcome"], v["reward"], v["patch_status"]) == ("unresolved", 0.0, "applied")
    assert v["tests"]["test_scale.py::test_scale"] == "FAILED"
    rc, out, _ = project.assay("eval", "--task", "scale-1", "--patch", "-", stdin=wrong.encode())
    assert rc == 0 and "FAILED   test_scale.py::test_scale" in out


def test_a_patch_that_does_not_apply_says_where(project):
    v = project.eval(project.fix.replace("-    return x * 2", "-    return y * 2"))
    assert (v["outcome"], v["reward"], v["patch_status"]) == ("patch_failed", 0.0, "failed")
    assert "scale.py:" in v["reason"]


def test_a_request_id_is_carried_out_once(project):
    first = project.eval(project.fix, "--request-id", "once-1")
    assert project.eval(project.fix, "--request-id", "once-1")["episode_id"] == first["episode_id"]
    rc, _, err = project.assay("eval", "--task", "scale-1", "--patch", "-", "--request-id", "once-1", stdin=b"other")
    assert rc == 65 and "once-1" in err


def test_an_unknown_task_is_65_and_near_ones_are_named(project):
    rc, out, err = project.assay("eval", "--task", "scale-2", "--patch", "-", "-o", "json")
    assert rc == 65 and out == "" and "scale-1" in err


def test_mine_finds_what_the_change_is_worth(project, tmp_path):
    out_file = tmp_path / "mined.jsonl"
    rc, out, err = project.mine(project.base, project.head, "--id", "mined-1", "--out", out_file, "-o", "json")
    assert rc == 0, err
    t = json.loads(out)
    assert t == json.loads(out_file.read_text())
    assert (t["instance_id"], t["repo"], t["base_commit"]) == ("mined-1", "scale", project.base)
    assert t["FAIL_TO_PASS"] == ["test_scale.py::test_scale"] and t["PASS_TO_PASS"] == ["test_scale.py::test_shift"]
    assert "x * 3" in t["patch"] and "== 9" in t["test_patch"] and "test_scale" not in t["patch"]
    for args, reward in ((["--fix"], 1.0), (["--patch", "/dev/null"], 0.0)):
        rc, out, err = project.assay("eval", "--task", "mined-1", *args, "-o", "json")
        assert rc == 0 and json.loads(out)["reward"] == reward, err
    rc, out, err = project.assay("tasks", "import", out_file, "--repos", project.repos)
    assert rc == 0 and "1 unchanged" in out


def test_mine_leaves_unsteady_tests_out(project):
    """Twenty coins tossed twice: that none of them differs has a chance of one in a million."""
    rc, out, err = project.mine(project.base, project.coin, "-o", "json")
    assert rc == 0 and "left out" in err and "test_coin" in err
    t = json.loads(out)
    assert "test_scale.py::test_scale" in t["FAIL_TO_PASS"]
    named = [line for line in err.splitlines() if "test_coin" in line]
    assert not any(i in line for i in t["FAIL_TO_PASS"] + t["PASS_TO_PASS"] if "coin" in i for line in named if line.endswith(i))


def test_mine_makes_no_record_of_a_change_no_test_sees(project, tmp_path):
    rc, out, err = project.mine(project.coin, project.source_only, "--id", "scale-1", "--out", tmp_path / "none", "--cmd",
                                "python3 -m pytest test_scale.py")
    assert rc == 65 and out == "" and "no test fails before the change" in err
    assert not (tmp_path / "none").exists()
    t = json.loads(project.assay("tasks", "show", "scale-1", "--with-fix", "-o", "json")[1])
    assert t["patch"] == project.fix            # what stood under the id stands there again
    rc, _, err = project.mine(project.base, "nowhere")
    assert rc == 65 and "nowhere" in err


def test_mine_shows_how_a_run_ended_in_which_nothing_passes(project, tmp_path):
    for cmd, reader, says in (("printf 'no such \\033[31mrunner\\n'; exit 3", "pytest", "exit 3"),
                              ("python3 -m pytest nowhere.py", "auto", "exit 4"), ("echo not today; false", "exit", "exit 1")):
        rc, out, err = project.mine(project.base, project.head, "--id", "mined-none", "--cmd", cmd, "--reader", reader)
        assert rc == 65 and out == "" and says in err and "\x1b" not in err, err
        assert "the output ended so:" in err and ("no such \\x1b[31mrunner" in err or "nowhere.py" in err or "| not today" in err)
        if reader == "pytest":                  # afterwards the first draft is put back, and nothing is said
            assert "the draft stays in the catalog as mined-none" in err
    rc, out, err = project.assay("tasks", "ls")
    assert rc == 0 and "mined-none" not in out and "scale-1" in out and "1 draft left out; --drafts has them" in err
    row = [line for line in project.assay("tasks", "ls", "--drafts")[1].splitlines() if line.startswith("mined-none")]
    assert row and row[0].endswith("  draft")
    listed = json.loads(project.assay("tasks", "ls", "--drafts", "--prefix", "mined-none", "-o", "json")[1])["tasks"]
    assert [(t["instance_id"], t["split"]) for t in listed] == [("mined-none", "draft")]


def test_the_log_holds_every_episode_and_replay_agrees(project):
    episode = project.eval(project.fix)["episode_id"]
    listed = json.loads(project.assay("log", "ls", "--task", "scale-1", "--limit", "1000", "-o", "json")[1])["episodes"]
    assert episode in [e["episode_id"] for e in listed]
    assert len({e["cursor"] for e in listed}) == len(listed)
    one = json.loads(project.assay("log", "cat", episode)[1])
    assert one["patch"] == project.fix and one["sample"] is None and one["reward"] == 1.0
    every = [json.loads(line) for line in project.assay("log", "cat")[1].splitlines()]
    assert one in every and [e["cursor"] for e in every] == sorted(e["cursor"] for e in every)
    assert json.loads(project.assay("log", "cat", one["cursor"])[1]) == one
    rc, out, err = project.assay("replay", episode, "-o", "json")
    assert rc == 0 and json.loads(out)["same"] is True, err
    limited = project.eval(project.fix, "--timeout", "45", "--fresh")["episode_id"]
    again = json.loads(project.assay("replay", limited, "-o", "json")[1])["replay_episode_id"]
    assert [json.loads(project.assay("log", "cat", e)[1])["timeout_s"] for e in (episode, limited, again)] == [None, 45, 45]


def test_two_at_once_on_one_state(project):
    def start(factor):
        patch = project.fix.replace("+    return x * 3", f"+    return x * {factor}")
        p = subprocess.Popen([os.path.join(BIN, "assay"), "eval", "--task", "scale-1", "--patch", "-", "-o", "json", "--state",
                              str(project.state)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        p.stdin.write(patch.encode())
        p.stdin.close()
        return p

    running = [start(n) for n in (30, 31, 32)]
    for p in running:
        assert p.wait(timeout=120) == 0, p.stderr.read()
        assert json.loads(p.stdout.read())["outcome"] == "unresolved"
        p.stdout.close(), p.stderr.close()

"""Small failing inputs known from this field, through the real command and a real sandbox.

Each names the public report it is taken from; what is judged is the whole way from patch bytes to reward. Where the tree
must be looked at, the task's own command looks (`sha256sum -c`, `find`), for only inside does the patched tree exist.
"""
import base64
import hashlib
import json
import os
import textwrap

import pytest

from conftest import Server, git

CMD_ONLY = dict(FAIL_TO_PASS=[], PASS_TO_PASS=[], reader="exit", test_patch="", patch="", timeout_s=60)


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """One server for all cases of this file; each case imports a task of its own."""
    server = Server(tmp_path_factory.mktemp("cases") / "state").start()
    yield server
    assert server.stop() == 0


class Case:
    def __init__(self, server, folder):
        self.server, self.repos, self.count = server, folder, 0

    def repo(self, files, name="r", dirty=None, below=None):
        repo = self.repos / name
        repo.mkdir()
        git(repo, "init", "-q", "-b", "main")
        git(repo, "config", "core.autocrlf", "false")
        for path, content in files.items():
            file = repo / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content if isinstance(content, bytes) else content.encode())
        git(repo, "add", "-A")
        git(repo, "commit", "-qm", "base")
        for path, content in (dirty or {}).items():
            (repo / path).write_bytes(content.encode())
        self.commit = git(repo, "rev-parse", "HEAD").strip()
        self.name = name if below is None else f"{name}/{below}"

    def eval(self, patch, **task):
        """Import a task of these fields and evaluate the patch: the printed object."""
        self.count += 1
        record = dict(CMD_ONLY, instance_id=f"{self.repos.name}-{self.count}", repo=self.name, base_commit=self.commit,
                      problem_statement="", **{k: v for k, v in task.items() if k not in CMD_ONLY})
        record.update({k: v for k, v in task.items() if k in CMD_ONLY})
        file = self.repos / f"{self.count}.jsonl"
        file.write_text(json.dumps(record) + "\n")
        self.server.assay("tasks", "import", file, "--repos", self.repos)
        patch = patch if isinstance(patch, bytes) else patch.encode()
        p = self.server.assay("eval", "--task", record["instance_id"], "--patch", "-", "-o", "json", stdin=patch)
        return json.loads(p.stdout)


@pytest.fixture
def case(house, tmp_path):
    return Case(house, tmp_path)


def want_files(files):
    """A command that holds when exactly these tracked-tree files are there, byte for byte."""
    lines = "".join(f"{hashlib.sha256(c if isinstance(c, bytes) else c.encode()).hexdigest()}  {n}\n" for n, c in sorted(files.items()))
    b64 = base64.b64encode(lines.encode()).decode()
    return (f"echo {b64} | base64 -d | sha256sum -c && test $(find . -type f -not -path './.git/*' | wc -l) = {len(files)} "
            "&& test $(find . -type l | wc -l) = 0")


def diff(path, *lines):
    return f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n" + "\n".join(lines)


# H01: SWE-bench/SWE-bench #345
GAUGE = 'def level(mm):\n    return mm / 10\n\n\nUNIT = "cm"\n'


@pytest.mark.parametrize("patch, line", [
    (diff("tank/gauge.py", "@@ -1,5 +1,5 @@", " def level(mm):", "-    return mm / 10",
          "+    return mm / 10.0 if mm > 0 else 0.0", " ", " ", ' UNIT = "cm"'), "    return mm / 10.0 if mm > 0 else 0.0"),
    (diff("tank/gauge.py", "@@ -1,3 +1,3 @@", " def level(mm):", "-    return mm / 10", "+    return mm // 10", " ", ""),
     "    return mm // 10"),
])
def test_h01_the_last_newline_is_lost(case, patch, line):
    case.repo({"tank/gauge.py": GAUGE})
    v = case.eval(patch, test_cmd=want_files({"tank/gauge.py": GAUGE.replace("    return mm / 10", line)}))
    assert (v["patch_status"], v["outcome"], v["reward"]) == ("applied", "resolved", 1), v


# H02: SWE-agent/SWE-agent #702
CRLF = base64.b64decode("ZGlmZiAtLWdpdCBhL2NmZy5pbmkgYi9jZmcuaW5pCi0tLSBhL2NmZy5pbmkKKysrIGIvY2ZnLmluaQpAQCAtMSw0ICsxLDUgQEAKIFtwdW1wXQ0K"
                        "LXJhdGU9Mw0KK3JhdGU9NA0KK2J1cnN0PTkNCiBtb2RlPWF1dG8NCiB1bml0PWwNCg==")


def test_h02_crlf_is_kept(case):
    case.repo({"cfg.ini": "[pump]\r\nrate=3\r\nmode=auto\r\nunit=l\r\n"})
    want = "test $(sha256sum cfg.ini | cut -c1-64) = 0f82d7acf3493de0161629535adff2d00c491ab5ee1be5a890f0a7210e9af99c"
    v = case.eval(CRLF, test_cmd=want)
    assert (v["patch_status"], v["reward"]) == ("applied", 1), v
    v = case.eval(CRLF.replace(b"\r", b""), test_cmd=want)
    assert v["outcome"] == "patch_failed" or v["reward"] == 1, v
    if v["outcome"] == "patch_failed":
        assert "cfg.ini" in v["reason"] and v["reward"] == 0


# H03: libgit2/libgit2 #6294
def test_h03_spaces_quotes_rename_and_new_file(case):
    case.repo({"my docs/read me.txt": "one\ntwo\n", "größe.txt": "x\n"})
    patch = textwrap.dedent('''\
        diff --git a/my docs/new page.txt b/my docs/new page.txt
        new file mode 100644
        --- /dev/null
        +++ b/my docs/new page.txt
        @@ -0,0 +1 @@
        +hello
        diff --git a/my docs/read me.txt b/my docs/read it.txt
        similarity index 100%
        rename from my docs/read me.txt
        rename to my docs/read it.txt
        diff --git "a/gr\\303\\266\\303\\237e.txt" "b/gr\\303\\266\\303\\237e.txt"
        --- "a/gr\\303\\266\\303\\237e.txt"
        +++ "b/gr\\303\\266\\303\\237e.txt"
        @@ -1 +1 @@
        -x
        +y
        ''')
    v = case.eval(patch, test_cmd=want_files({"my docs/new page.txt": "hello\n", "my docs/read it.txt": "one\ntwo\n", "größe.txt": "y\n"}))
    assert (v["patch_status"], v["reward"]) == ("applied", 1), v


# H04: scaleapi/SWE-bench_Pro-os #74
SHAPE = ("diff --git a/shape.py b/shape.py\nindex 35e6ce2..a3c3c78 100644\n--- a/shape.py\n+++ b/shape.py\n@@ -1,2 +1,2 @@\n"
         " def area(w, h):\n-    return w + h\n+    return w * h\n")


@pytest.mark.parametrize("section, icon, dropped", [
    ("diff --git a/icon.bin b/icon.bin\nindex eaf36c1..5005dcb 100644\nBinary files a/icon.bin and b/icon.bin differ\n",
     bytes([0, 1, 2, 3]), True),
    ("diff --git a/icon.bin b/icon.bin\nindex eaf36c1daccfdf325514461cd1a2ffbc139b5464..5005dcb40305e2bf0f706c2e955732fdc4907ec2 100644\n"
     "GIT binary patch\nliteral 6\nNcmeBV_|L`b1ONxJ0pb7v\n\nliteral 4\nLcmZQzWMT#Y01f~L\n\n", bytes([0x89, 0, 0xff, 10, 13, 0x42]), False),
])
def test_h04_a_binary_section_beside_the_fix(case, section, icon, dropped):
    case.repo({"shape.py": "def area(w, h):\n    return w + h\n", "icon.bin": bytes([0, 1, 2, 3])})
    v = case.eval(section + SHAPE, test_cmd='python3 -c "from shape import area; assert area(3, 4) == 12" && '
                  f"test $(sha256sum icon.bin | cut -c1-64) = {hashlib.sha256(icon).hexdigest()}")
    assert (v["patch_status"], v["reward"]) == ("applied", 1), v
    assert any("icon.bin" in f for f in v["findings"]) == dropped, v


# H05: SWE-bench/SWE-bench #538
H05_TESTS = ("diff --git a/tests/test_slug_space.py b/tests/test_slug_space.py\nnew file mode 100644\n--- /dev/null\n"
             "+++ b/tests/test_slug_space.py\n@@ -0,0 +1,4 @@\n+from slug import slug\n+\n+def test_space():\n+    assert slug(\"A B\") == \"a-b\"\n")
H05_BAD = ("diff --git a/tests/test_slug_space.py b/tests/test_slug_space.py\nnew file mode 100644\n--- /dev/null\n"
           "+++ b/tests/test_slug_space.py\n@@ -0,0 +1,2 @@\n+def test_space():\n+    assert True\n")
H05_FIX = ('diff --git a/slug.py b/slug.py\n--- a/slug.py\n+++ b/slug.py\n@@ -1,2 +1,2 @@\n def slug(s):\n-    return s.lower()\n'
           '+    return s.lower().replace(" ", "-")\n')


@pytest.mark.parametrize("patch, space, reward", [(H05_BAD, "FAILED", 0), (H05_FIX + H05_BAD, "PASSED", 1)])
def test_h05_the_hidden_test_file_wins(case, patch, space, reward):
    case.repo({"slug.py": "def slug(s):\n    return s.lower()\n", "setup.cfg": "[tool:pytest]\npythonpath = .\n",
               "tests/test_slug.py": 'from slug import slug\n\ndef test_lower():\n    assert slug("AB") == "ab"\n'},
              dirty={"setup.cfg": "[tool:pytest]\npythonpath = .\naddopts = -rA\n"})
    v = case.eval(patch, test_cmd="grep -q addopts setup.cfg && grep -q a-b tests/test_slug_space.py && python3 -m pytest -q",
                  test_patch=H05_TESTS, FAIL_TO_PASS=["tests/test_slug_space.py::test_space"],
                  PASS_TO_PASS=["tests/test_slug.py::test_lower"], reader="pytest")
    assert v["tests"]["tests/test_slug.py::test_lower"] == "PASSED", v
    assert v["tests"]["tests/test_slug_space.py::test_space"] == space and v["reward"] == reward, v


# H06: openai/codex #1705
@pytest.mark.parametrize("patch, path", [
    ("diff --git a/out b/out\nnew file mode 120000\n--- /dev/null\n+++ b/out\n@@ -0,0 +1 @@\n+../h06_outside\n\\ No newline at end of file\n"
     "diff --git a/out/note.txt b/out/note.txt\nnew file mode 100644\n--- /dev/null\n+++ b/out/note.txt\n@@ -0,0 +1 @@\n+written through a link\n",
     "out"),
    ("--- a/../h06_outside/note.txt\n+++ b/../h06_outside/note.txt\n@@ -0,0 +1 @@\n+dotdot\n", "../h06_outside/note.txt"),
    ("diff --git a/.git/hooks/post-checkout b/.git/hooks/post-checkout\nnew file mode 100755\n--- /dev/null\n"
     "+++ b/.git/hooks/post-checkout\n@@ -0,0 +1,2 @@\n+#!/bin/sh\n+echo hooked\n", ".git/hooks/post-checkout"),
    ("--- a//etc/passwd\n+++ b//etc/passwd\n@@ -0,0 +1 @@\n+x::0:0::/:/bin/sh\n", "etc/passwd"),
    ("diff --git a/.GIT/config b/.GIT/config\nnew file mode 100644\n--- /dev/null\n+++ b/.GIT/config\n@@ -0,0 +1 @@\n+x\n", ".GIT"),
])
def test_h06_outside_the_tree_is_refused(case, patch, path):
    case.repo({"a.txt": "ok\n"})
    v = case.eval(patch, test_cmd="true")
    assert (v["outcome"], v["reward"], v["patch_status"]) == ("patch_failed", 0, "failed"), v
    assert path in v["reason"], v


# H07: oven-sh/bun #35099
def test_h07_a_task_below_another_repository(case):
    case.repo({"pool/job1/app.cfg": "v=1\n", "app.cfg": "outer\n"}, below="pool/job1")
    v = case.eval(diff("app.cfg", "@@ -1 +1 @@", "-v=1", "+v=2", ""), test_cmd="test $(cat app.cfg) = v=2")
    assert (v["patch_status"], v["reward"]) == ("applied", 1), v


# H08: SWE-bench/SWE-bench #279
def test_h08_parametrised_ids_are_whole(case):
    test = textwrap.dedent('''\
        import pytest

        @pytest.mark.parametrize("s", ["2 + 2", "[x]", "na\\u00efve \\u2713", "tab\\there", "line\\nbreak", "FAILED y::z", "a - b"])
        def test_echo(s):
            if s == "a - b":
                raise AssertionError("left - right")
        ''')
    case.repo({"test_ids.py": test})
    ids = ["2 + 2", "[x]", "na\\xefve \\u2713", "tab\\there", "line\\nbreak", "FAILED y::z"]
    required = [f"test_ids.py::test_echo[{i}]" for i in ids]
    v = case.eval(diff("NOTES", "@@ -0,0 +1 @@", "+x", "").replace("--- a/NOTES", "new file mode 100644\n--- /dev/null"),
                  test_cmd="python3 -m pytest test_ids.py", PASS_TO_PASS=required, reader="pytest")
    assert v["tests"] == {**{i: "PASSED" for i in required}, "test_ids.py::test_echo[a - b]": "FAILED"}, v
    assert v["reward"] == 1


# H09: SWE-bench/SWE-bench #197
def test_h09_marks_and_errors(case):
    case.repo({"test_marks.py": textwrap.dedent('''\
        import pytest

        def test_plain(): pass

        @pytest.fixture
        def unplugs():
            yield
            raise RuntimeError("unplug")

        def test_teardown(unplugs): pass

        @pytest.fixture
        def no_board():
            raise RuntimeError("no board")

        def test_setup(no_board): pass

        @pytest.mark.xfail(reason="known")
        def test_known_bad(): assert False

        @pytest.mark.xfail(run=False, reason="never run")
        def test_not_run(): assert False

        @pytest.mark.xfail(reason="was bad")
        def test_now_good(): pass

        @pytest.mark.xfail(strict=True, reason="was bad")
        def test_now_good_strict(): pass

        @pytest.mark.skip(reason="no gpu")
        def test_skipped(): pass
        ''')})
    new = "diff --git a/N b/N\nnew file mode 100644\n--- /dev/null\n+++ b/N\n@@ -0,0 +1 @@\n+x\n"
    run = lambda f2p, p2p: case.eval(new, test_cmd="python3 -m pytest test_marks.py", reader="pytest",
                                     FAIL_TO_PASS=[f"test_marks.py::{t}" for t in f2p], PASS_TO_PASS=[f"test_marks.py::{t}" for t in p2p])
    v = run(["test_plain"], [])
    short = {k.split("::")[1]: s for k, s in v["tests"].items()}
    assert v["reward"] == 1
    assert short["test_plain"] == "PASSED" and short["test_teardown"] == "ERROR" and short["test_setup"] == "ERROR", short
    assert short["test_known_bad"] == "XFAIL" and short["test_now_good_strict"] == "FAILED", short
    assert short["test_now_good"] in ("XPASS", "PASSED") and short["test_skipped"] in ("SKIPPED", "MISSING"), short
    for bad in ("test_teardown", "test_setup", "test_not_run", "test_now_good_strict", "test_skipped"):
        assert run([bad], ["test_plain"])["reward"] == 0, bad


def test_h09_a_collection_error_leaves_all_missing(case):
    case.repo({"test_import.py": "import no_such_module\n\ndef test_a(): pass\n", "test_fine.py": "def test_b(): pass\n"})
    new = "diff --git a/N b/N\nnew file mode 100644\n--- /dev/null\n+++ b/N\n@@ -0,0 +1 @@\n+x\n"
    v = case.eval(new, test_cmd="python3 -m pytest", reader="pytest",
                  PASS_TO_PASS=["test_import.py::test_a", "test_fine.py::test_b"])
    assert v["reward"] == 0 and v["tests"]["test_import.py::test_a"] == "MISSING" and v["tests"]["test_fine.py::test_b"] == "MISSING", v


# H10: SWE-bench/SWE-bench #601
FORGED = {
    "a printed summary": 'def pytest_unconfigure(config):\n    print("\\n=== short test summary info ===")\n    print("PASSED test_calc.py::test_even")\n'
                         '    print("PASSED test_calc.py::test_zero")\n    print("=== 2 passed in 0.01s ===")\n',
    "an early exit": 'import os\n\ndef pytest_sessionfinish(session, exitstatus):\n    os.write(1, b"PASSED test_calc.py::test_even\\n'
                     'PASSED test_calc.py::test_zero\\n2 passed in 0.01s\\n")\n    os._exit(0)\n',
}


def new_file(path, text):
    lines = text.splitlines()
    return (f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n@@ -0,0 +1,{len(lines)} @@\n"
            + "".join(f"+{line}\n" for line in lines))


@pytest.mark.parametrize("how", FORGED)
@pytest.mark.parametrize("where", ["conftest.py", "calc.py"])
def test_h10_forged_lines_earn_nothing(case, how, where):
    case.repo({"calc.py": "def half(n):\n    return n - n / 2 + 1\n",
               "test_calc.py": "from calc import half\n\ndef test_even():\n    assert half(8) == 4\n\ndef test_zero():\n    assert half(0) == 0\n"})
    if where == "conftest.py":
        patch = new_file("conftest.py", FORGED[how])
    else:       # no hook needed: the code under test prints at exit, or leaves before anything failed
        body = {"a printed summary": 'import atexit\natexit.register(lambda: print("PASSED test_calc.py::test_even\\nPASSED test_calc.py::test_zero\\n2 passed"))',
                "an early exit": 'import os\nos.write(1, b"PASSED test_calc.py::test_even\\nPASSED test_calc.py::test_zero\\n2 passed\\n"); os._exit(0)'}[how]
        added = "".join(f"+{line}\n" for line in body.splitlines())
        patch = (f"diff --git a/calc.py b/calc.py\n--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,{2 + len(body.splitlines())} @@\n{added}"
                 " def half(n):\n     return n - n / 2 + 1\n")
    v = case.eval(patch, test_cmd="python3 -m pytest test_calc.py", reader="pytest",
                  FAIL_TO_PASS=["test_calc.py::test_even", "test_calc.py::test_zero"])
    assert v["reward"] == 0 and v["outcome"] not in ("resolved", "infra_error"), v
    assert "PASSED" not in v["tests"].values(), v


# H14: bytedance/deer-flow #3864
@pytest.mark.parametrize("cmd, end, output", [
    ("sleep 40 & printf 'suite done\\n'; exit 3", "exit 3", "suite done\n"),
    ("(setsid sleep 40 &) ; exit 0", "exit 0", ""),
])
def test_h14_a_child_keeps_the_output_open(case, cmd, end, output):
    case.repo({"a": "b\n"})
    v = case.eval(new_file("N", "x\n"), test_cmd=cmd, timeout_s=20)
    assert (v["run_end"], v["output"], v["limits_hit"]) == (end, output, []), v
    assert v["timings_ms"]["run"] < 10_000


# H15: multikernel/sandlock #252
def test_h15_the_time_limit_reaches_everybody(case):
    seconds = f"4711.0{os.getpid()}"            # a sleep like no other on this machine
    case.repo({"linger.py": textwrap.dedent('''\
        import os, signal, sys, time

        def settle():
            os.setsid()
            for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(s, signal.SIG_IGN)
            if os.fork():
                os._exit(0)
            os.execvp("sleep", ["sleep", "SECONDS"])

        if os.fork() == 0:
            settle()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("tests running", flush=True)
        while True:
            time.sleep(1)
        ''').replace("SECONDS", seconds)})
    v = case.eval(new_file("N", "x\n"), test_cmd="python3 linger.py", timeout_s=2)
    assert (v["outcome"], v["reward"], v["run_end"], v["output"]) == ("time_limit", 0, "time_limit", "tests running\n"), v
    import subprocess
    assert subprocess.run(["pgrep", "-f", f"^sleep {seconds}$"], stdout=subprocess.PIPE).stdout == b""


# H16: criyle/go-judge #186
@pytest.mark.parametrize("cmd, end, hit", [
    ("python3 grow.py", "memory_limit", True),
    ('python3 grow.py; echo "child said $?"; exit 1', "exit 1", True),
    ("kill -9 $$", "signal 9", False),
    ('python3 -c "raise MemoryError"', "exit 1", False),
])
def test_h16_out_of_memory_is_told_apart(case, cmd, end, hit):
    case.repo({"grow.py": 'blocks = []\nwhile True:\n    blocks.append(bytearray(b"x" * (4 << 20)))\n'})
    v = case.eval(new_file("N", "x\n"), test_cmd=cmd, timeout_s=30, memory_mb=128)
    assert (v["run_end"], "memory_limit" in v["limits_hit"]) == (end, hit), v
    assert v["reward"] == 0
    if hit:
        assert 120 << 20 <= v["peak_memory_bytes"] <= 128 << 20, v


# H17: moby/moby #42680, canonical/snapd #8211
def test_h17_threads_and_loopback(case):
    case.repo({"t.c": textwrap.dedent('''\
        #define _GNU_SOURCE
        #include <errno.h>
        #include <pthread.h>
        #include <stdio.h>
        #include <unistd.h>
        #include <sys/syscall.h>
        static void *work(void *p) { *(int *)p = 42; return NULL; }
        int main(void)
        {
            long r = syscall(435, NULL, 0);
            int e = r == -1 ? errno : 0;
            pthread_t t;
            int got = 0, rc = pthread_create(&t, NULL, work, &got);
            if (rc == 0)
                pthread_join(t, NULL);
            return !((e == ENOSYS || e == EINVAL) && rc == 0 && got == 42);
        }
        '''), "net.py": textwrap.dedent('''\
        import socket

        def talk(family, host):
            srv = socket.socket(family, socket.SOCK_STREAM)
            srv.bind((host, 0))
            srv.listen(1)
            cli = socket.create_connection((host, srv.getsockname()[1]), timeout=3)
            peer, _ = srv.accept()
            cli.sendall(b"ping")
            return peer.recv(4) == b"ping"

        print("v4", talk(socket.AF_INET, "127.0.0.1"))
        print("v6", talk(socket.AF_INET6, "::1"))
        print("name", talk(socket.AF_INET, "localhost"))
        print("self", socket.gethostbyname(socket.gethostname()) != "")
        try:
            socket.create_connection(("192.0.2.1", 80), timeout=2)
            print("out", "REACHED")
        except OSError:
            print("out", "closed")
        ''')})
    v = case.eval(new_file("N", "x\n"), test_cmd="gcc -O1 -pthread -o /tmp/t t.c && /tmp/t && python3 net.py")
    assert v["reward"] == 1 and v["output"] == "v4 True\nv6 True\nname True\nself True\nout closed\n", v


# H19: modelscope/evalscope #1608
def test_h19_our_failure_is_not_the_models(house, tmp_path):
    """One group of four: a pass, a fail, a sandbox that cannot be made, a fail. The third has no reward anywhere."""
    import grpc
    from assay.v1 import rollout_pb2, rollout_pb2_grpc, trajectory_pb2, trajectory_pb2_grpc, verdict_pb2
    case = Case(house, tmp_path)
    case.repo({"a.txt": "1\n"})
    records = []
    for name, environment in (("h19-host", "host"), ("h19-no-image", "sha256:" + "0" * 64)):
        records.append(dict(CMD_ONLY, instance_id=name, repo="r", base_commit=case.commit, problem_statement="",
                            test_cmd="grep -q 2 a.txt", environment=environment))
    file = tmp_path / "h19.jsonl"
    file.write_text("".join(json.dumps(r) + "\n" for r in records))
    house.assay("tasks", "import", file, "--repos", tmp_path)
    patch = lambda v: diff("a.txt", "@@ -1 +1 @@", "-1", f"+{v}", "").encode()
    asked = [("h19-host", patch(2)), ("h19-host", patch(3)), ("h19-no-image", patch(2)), ("h19-host", patch(4))]
    with grpc.insecure_channel(house.address) as channel:
        requests = [rollout_pb2.EvaluateRequest(request_id=f"h19-{i}", task_id=t, patch=p,
                                                group=trajectory_pb2.Group(id=b"g" * 16, want=4, index=i))
                    for i, (t, p) in enumerate(asked)]
        answers = {a.request_id: a.verdict for a in rollout_pb2_grpc.RolloutStub(channel).EvaluateMany(iter(requests), timeout=120)}
        log = {t.request_id: t for t in trajectory_pb2_grpc.TrajectoriesStub(channel).Subscribe(
            trajectory_pb2.SubscribeRequest(task_prefix="h19-"))}
    reward = lambda v: v.reward.value if v.HasField("reward") else None
    assert [reward(answers[f"h19-{i}"]) for i in range(4)] == [1.0, 0.0, None, 0.0]
    assert [reward(log[f"h19-{i}"].verdict) for i in range(4)] == [1.0, 0.0, None, 0.0]
    lost = log["h19-2"].verdict
    assert lost.outcome == verdict_pb2.OUTCOME_INFRA_ERROR and lost.fault and "0000" in lost.reason, lost
    p = house.assay("eval", "--task", "h19-no-image", "--patch", "-", "-o", "json", stdin=patch(5), check=False)
    printed = json.loads(p.stdout)
    assert p.returncode == 70 and printed["reward"] is None and printed["outcome"] == "infra_error", printed

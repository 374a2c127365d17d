"""An ordinary user, without any right but to make user namespaces, judges patches; and what is weaker then is said."""
import json
import os
import shutil
import subprocess
import tempfile

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("ASSAY_BIN", os.path.join(ROOT, "build/bin"))
USER = 1000
FIXED = "--- a/calc.py\n+++ b/calc.py\n@@ -1,2 +1,2 @@\n def half(x):\n-    return x\n+    return x / 2\n"


@pytest.fixture
def user():
    """A function that runs a command as the user, in a home that holds our programs."""
    home = tempfile.mkdtemp(prefix="assay-user.", dir="/tmp")
    for name in ("assay", "assayd", "assay-jail", "assay-worker"):
        shutil.copy(os.path.join(BIN, name), home)
    env = {"PATH": "/usr/bin:/bin", "HOME": home, "ASSAY_STATE": home + "/state", "LANG": "C.UTF-8"}
    become = []
    if os.geteuid() == 0:
        become = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]
        subprocess.run(["chown", "-R", f"{USER}:{USER}", home], check=True)

    def run(*command, **kw):
        p = subprocess.run([*become, *command], env=env, cwd=home, capture_output=True, text=True, timeout=120, **kw)
        return p.returncode, p.stdout, p.stderr

    run.home = home
    if run("unshare", "--user", "true")[0] != 0:
        shutil.rmtree(home)
        pytest.skip("an ordinary user may make no user namespaces here")
    yield run
    shutil.rmtree(home)


def test_a_user_judges_patches_and_is_told_what_is_weaker(user):
    def git(*args):
        rc, out, err = user("git", "-C", "repos/calc", "-c", "user.name=n", "-c", "user.email=e@example.org", *args)
        assert rc == 0, err
        return out

    user("mkdir", "-p", "repos/calc")
    for name, text in (("calc.py", "def half(x):\n    return x\n"),
                       ("test_calc.py", "from calc import half\n\n\ndef test_half():\n    assert half(4) == 2\n")):
        assert user("sh", "-c", 'cat >"$0"', f"repos/calc/{name}", input=text)[0] == 0
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "base")
    record = {"instance_id": "calc-1", "repo": "calc", "base_commit": git("rev-parse", "HEAD").strip(),
              "problem_statement": "half() is wrong", "patch": FIXED, "test_patch": "",
              "FAIL_TO_PASS": ["test_calc.py::test_half"], "PASS_TO_PASS": [],
              "test_cmd": "/usr/bin/python3 -m pytest test_calc.py"}
    assert user("sh", "-c", "cat >tasks.jsonl", input=json.dumps(record) + "\n")[0] == 0
    rc, out, err = user("./assay", "tasks", "import", "tasks.jsonl", "--repos", "repos")
    assert rc == 0, err
    for patch, outcome, reward in ((FIXED, "resolved", 1), (FIXED.replace("x / 2", "x * 2"), "unresolved", 0)):
        rc, out, err = user("./assay", "eval", "--task", "calc-1", "--patch", "-", "-o", "json", input=patch)
        assert rc == 0, err
        verdict = json.loads(out)
        assert (verdict["outcome"], verdict["reward"]) == (outcome, reward), out
        assert verdict["peak_memory_bytes"] > 1 << 20, "measured by what the kernel tells of processes"
    log = open(f"{user.home}/state/assayd.log").read()
    assert "not run by root" in log

    rc, out, err = user("./assay", "doctor", "-o", "json")
    answer = json.loads(out)
    checks = {c["name"]: c for c in answer["checks"]}
    assert rc == 0 and answer["ok"]
    assert checks["privileges"]["status"] == "weak" and "counts per user" in checks["privileges"]["effect"]
    assert ("no control groups" in log) == (answer["limits"]["memory"] == "rlimit")

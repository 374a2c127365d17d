"""`assay doctor` on machines that lack something (without.py takes it away): it names what is missing, what follows, and
what to do; nothing else of its answer changes; and the jail agrees with it on whether sandboxes can be made."""
import functools
import json
import os
import socket
import struct
import subprocess
import sys

import pytest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN = os.environ.get("ASSAY_BIN", os.path.join(ROOT, "build/bin"))
WITHOUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "without.py")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make sandboxes")


def doctor(feature, *args):
    p = subprocess.run([sys.executable, WITHOUT, feature, os.path.join(BIN, "assay"), "doctor", *args], capture_output=True,
                       text=True, timeout=60)
    assert p.stderr == ""
    return p.returncode, p.stdout


@functools.cache
def whole():
    """This machine as it is, without what may change from one call to the next."""
    return stable(json.loads(doctor("nothing", "-o", "json")[1]))


def stable(answer):
    return {c["name"]: c for c in answer["checks"] if c["name"] not in ("memory", "state")}, answer["limits"]


def jail_says(feature):
    """The first word of a jail: 0 when it could make a sandbox, else its reason."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        n = theirs.fileno()
        p = subprocess.Popen(["bash", "-c", f'exec "$@" 3<&{n} {n}<&-', "bash", sys.executable, WITHOUT, feature,
                              os.path.join(BIN, "assay-jail"), "1"], pass_fds=[n], stderr=subprocess.DEVNULL)
        theirs.close()
        ours.settimeout(30)
        hello = ours.recv(65536)
        ours.close()
        p.wait(30)
    kind, _, _, _, rc, _ = struct.unpack_from("<IIIIii", hello)
    assert kind == 64, kind                     # GRANT_HELLO
    return rc, hello[struct.calcsize("<IIIIii"):].decode(errors="replace")


CASES = [
    # feature, check, status, words of what was found, effect, remedy
    ("landlock", "landlock", "weak", "not implemented", "workers", "lsm=landlock"),
    ("pidfd", "pidfd", "missing", "not implemented", "no sandbox can be made", "pidfd_open"),
    ("user-namespaces", "namespaces", "missing", "user namespaces: their number", "no sandbox can be made",
     "sysctl user.max_user_namespaces"),
    ("user-namespaces-filtered", "namespaces", "missing", "user namespaces: operation not permitted", "no sandbox can be made",
     "seccomp profile that permits unshare"),
    ("cgroups", "cgroup controllers", "weak", "missing: memory pids cpu", "per process, not for a run", "mount cgroup2"),
    ("overlay", "overlay", "missing", "no overlay file system", "no sandbox can be made", "modprobe overlay"),
    ("mounts", "mounts", "missing", "not implemented", "no sandbox can be made", "fsopen"),
]


@pytest.mark.parametrize("feature, name, status, found, effect, remedy", CASES, ids=[c[0] for c in CASES])
def test_what_is_missing_is_named_with_effect_and_remedy(feature, name, status, found, effect, remedy):
    before, limits = whole()
    if before[name]["status"] != "ok":
        pytest.skip(f"this machine has no {name} to take away")
    rc, out = doctor(feature, "-o", "json")
    answer = json.loads(out)
    after, limits_now = stable(answer)
    got = after.pop(name)
    assert got["status"] == status
    assert found in got["detail"].lower() and effect in got["effect"] and remedy in got["advice"], got
    assert rc == (69 if status == "missing" else 0) and answer["ok"] == (status != "missing")
    gone = {"mounts": {"overlay"}, "user-namespaces": {"cgroup controllers", "profiles"},
            "user-namespaces-filtered": {"profiles"}}.get(feature, set())
    assert {n: c for n, c in after.items() if n not in gone} == {n: c for n, c in before.items() if n not in gone | {name}}
    if feature == "cgroups":
        assert {limits_now[k] for k in ("memory", "pids", "cpu")} == {"rlimit"}
    elif feature != "user-namespaces":
        assert limits_now == limits

    text = doctor(feature)[1].splitlines()
    at = next(i for i, line in enumerate(text) if line.split()[:1] == [status] and line[9:].startswith(name))
    assert text[at + 1].strip() == got["effect"] and text[at + 2].strip() == "-> " + got["advice"]
    assert text[-1].startswith("evaluations cannot run here" if status == "missing" else "evaluations can run here")


@pytest.mark.parametrize("feature", ["nothing", *(c[0] for c in CASES)])
def test_the_jail_agrees(feature):
    usable = doctor(feature, "-o", "json")[0] == 0
    rc, why = jail_says(feature)
    assert (rc == 0) == usable, (rc, why)

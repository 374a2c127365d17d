"""How `assay` finds, starts, shares and loses its private server; a stub stands in for assayd.

The stub speaks the real protocol through grpcio, so this is also a check of our client against it.
"""
import fcntl
import json
import os
import shlex
import shutil
import stat
import subprocess
import sys
import time

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN = os.environ.get("ASSAY_BIN", os.path.join(ROOT, "build/bin"))
PROTOS = [f"assay/v1/{n}.proto" for n in ("verdict", "trajectory", "rollout", "catalog", "policy")]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """A directory with the real assay and a stub in assayd's place."""
    d = tmp_path_factory.mktemp("bin")
    shutil.copy(os.path.join(BIN, "assay"), d / "assay")
    (d / "py").mkdir()
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", f"-I{ROOT}/proto", f"--python_out={d}/py",
                    f"--grpc_python_out={d}/py", *PROTOS], check=True, cwd=os.path.join(ROOT, "proto"))
    (d / "assayd").write_text(f"#!/bin/sh\nSTUB_PROTO={d}/py exec {sys.executable} {HERE}/stub_assayd.py \"$@\"\n")
    (d / "assayd").chmod(0o755)
    return d


@pytest.fixture
def cli(programs, tmp_path):
    class Cli:
        state = tmp_path / "state"
        program = programs / "assay"

        def start(self, *args, **kw):
            env = dict(os.environ, ASSAY_STATE=str(self.state), **kw.pop("env", {}))
            return subprocess.Popen([str(programs / "assay"), *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                    stderr=subprocess.PIPE, env=env, cwd=tmp_path, **kw)

        def finish(self, p, stdin=b""):
            out, err = p.communicate(stdin, timeout=60)
            return p.returncode, out.decode(), err.decode()

        def __call__(self, *args, stdin=b"", **kw):
            return self.finish(self.start(*args, **kw), stdin)

        def servers(self):
            """One line per server that was ever started for this state."""
            try:
                return (self.state / "starts").read_text().splitlines()
            except FileNotFoundError:
                return []

        def episodes(self):
            return [json.loads(line) for line in (self.state / "stub.log").read_text().splitlines()]

    c = Cli()
    (c.state / "log").mkdir(parents=True)       # what makes a directory a state
    yield c
    for line in c.servers():                    # none may be left, whatever the test did
        pid = int(line.split()[0])
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), f"server {pid} is still there")


def wait_for(what, message, seconds=20):
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, message
        time.sleep(0.02)


def test_one_command_starts_and_ends_a_server(cli):
    rc, out, err = cli("eval", "--task", "t1", "--patch", "-", "-o", "json", "--slots", "3", stdin=b"fine")
    assert rc == 0, err
    v = json.loads(out)
    for key in ("task_id", "outcome", "reward", "tests", "patch_status", "reason", "limits_hit", "timings_ms",
                "peak_memory_bytes", "episode_id", "cursor", "run_end", "reader", "cached", "findings", "output", "fault",
                "retryable", "attempts"):
        assert key in v
    assert (v["task_id"], v["outcome"], v["reward"], v["tests"]) == ("t1", "resolved", 1.0, {"t::a": "PASSED"})
    assert v["output"].startswith("\ufffd\x1b[31m")
    assert cli.servers()[0].endswith("slots=3")


def test_only_commands_that_bring_something_in_make_a_state(cli, tmp_path):
    (tmp_path / "empty").mkdir()
    for dir_ in ("none", "empty"):
        cli.state = tmp_path / dir_
        for args in (["eval", "--task", "t1", "--patch", "-"], ["tasks", "ls"], ["tasks", "show", "t1"], ["log", "ls"],
                     ["log", "cat"], ["replay", "1"], ["status"]):
            rc, out, err = cli(*args)
            assert (rc, out) == (65, "") and f"no state at {cli.state}: `assay tasks import` makes one\n" in err, err
        assert not cli.state.exists() or os.listdir(cli.state) == []
    cli.state = tmp_path / "new" / "state"
    assert cli("tasks", "import", "-", "--repos", "/", stdin=b'{"instance_id": "t1"}')[0] == 0
    assert stat.S_IMODE(os.stat(cli.state).st_mode) == 0o711 and len(cli.servers()) == 1


def test_infra_error_has_no_reward_and_exits_70(cli):
    rc, out, _ = cli("eval", "--task", "t1", "--patch", "-", "-o", "json", stdin=b"infra")
    v = json.loads(out)
    assert rc == 70 and v["reward"] is None and v["outcome"] == "infra_error" and v["fault"] == "sandbox"


def test_unknown_task_is_the_servers_word_and_65(cli):
    rc, out, err = cli("eval", "--task", "nope", "--patch", "-", "-o", "json")
    assert rc == 65 and out == "" and f"near: t1 (state {cli.state})" in err
    rc, out, err = cli("log", "cat", "9")
    assert rc == 65 and out == "" and f"no trajectory at cursor 9 (state {cli.state})" in err


def test_text_is_safe_for_a_terminal(cli):
    rc, out, _ = cli("eval", "--task", "t1", "--patch", "-", stdin=b"wrong")
    assert rc == 0
    assert "unresolved, reward 0" in out and "t::b\\x1b[2J\\xe2\\x80\\xae" in out
    assert "\x1b" not in out and "\x07" not in out and "\u202e" not in out


def test_many_at_once_share_one_server(cli, tmp_path):
    (tmp_path / "slow").write_text("slow 1")    # they overlap
    running = [cli.start("eval", "--task", "t1", "--patch", "slow", "-o", "json", "--label", f"n={i}") for i in range(6)]
    for p in running:
        rc, _, err = cli.finish(p)
        assert rc == 0, err
    assert len({e["request"] for e in cli.episodes()}) == len(cli.episodes()) == 6
    assert len(cli.servers()) <= 3              # a later one may come when its server was just going


@pytest.mark.parametrize("rude", [False, True])
def test_the_second_still_finishes_when_the_first_ends(cli, rude):
    if rude:                                    # the server ends at once with its starter
        (cli.state / "rude").touch()
    first = cli.start("log", "cat", "-f")
    wait_for(lambda: (cli.state / "assayd.sock").exists(), "no server")
    second = cli.start("eval", "--task", "t1", "--patch", "-", "-o", "json")
    second.stdin.write(b"slow 1.5")
    second.stdin.close()
    time.sleep(0.5)
    first.kill()
    first.communicate()
    assert second.wait(timeout=60) == 0, second.stderr.read()
    assert json.loads(second.stdout.read())["outcome"] == "resolved"
    assert len(cli.episodes()) == 1
    second.stdout.close(), second.stderr.close()


def test_a_server_killed_before_its_answer_is_replaced_and_the_run_is_done_once(cli):
    rc, out, err = cli("eval", "--task", "t1", "--patch", "-", "-o", "json", stdin=b"crash")
    assert rc == 0, err
    assert json.loads(out)["episode_id"] == cli.episodes()[0]["episode"]
    assert len(cli.episodes()) == 1 and len(cli.servers()) == 2


def test_a_stale_socket_is_no_server(cli):
    (cli.state / "assayd.sock").touch()
    assert cli("tasks", "ls")[0] == 0


def test_a_server_that_does_not_start_says_why(cli):
    (cli.state / "refuse").touch()
    began = time.monotonic()
    rc, _, err = cli("tasks", "ls")
    assert rc == 69 and "no rights to make a sandbox" in err
    assert time.monotonic() - began < 8


def test_a_path_too_long_for_a_socket(cli, tmp_path):
    cli.state = tmp_path / ("long" * 40) / "state"
    (cli.state / "log").mkdir(parents=True)
    rc, _, err = cli("eval", "--task", "t1", "--patch", "/dev/null")
    assert rc == 0, err
    running = [cli.start("eval", "--task", "t1", "--patch", "/dev/null") for _ in range(2)]
    assert [cli.finish(p)[0] for p in running] == [0, 0]


def test_a_held_state_that_does_not_answer_is_named(cli):
    with open(cli.state / "log" / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for args in (["status"], ["tasks", "ls"]):
            rc, out, err = cli(*args)
            assert rc == 69 and out == "" and f"a server holds the state {cli.state} " in err and "--server ADDR" in err
    assert cli.servers() == []
    assert cli("tasks", "ls")[0] == 0


def test_status_looks_and_starts_nothing(cli):
    rc, out, _ = cli("status", "-o", "json")
    assert rc == 0 and json.loads(out)["running"] is False and cli.servers() == []
    first = cli.start("log", "cat", "-f")
    wait_for(lambda: json.loads(cli("status", "-o", "json")[1])["running"], "never seen running")
    s = json.loads(cli("status", "-o", "json")[1])
    assert (s["slots"], s["queue_max"], s["version"]) == (2, 7, "stub")
    first.kill()
    first.communicate()


def test_import_in_calls_of_whole_records(cli, tmp_path):
    pad = "x" * (1 << 20)
    lines = [json.dumps({"instance_id": f"t{i:02}", "pad": pad}) for i in range(8)]
    lines[3] = "{broken"
    lines.insert(5, "")
    lines.insert(6, json.dumps({"instance_id": "huge", "pad": "x" * (4 << 20)}))
    (tmp_path / "t.jsonl").write_text("\n".join(lines) + "\n")
    rc, out, err = cli("tasks", "import", "t.jsonl", "--repos", ".", "-o", "json")
    assert rc == 65
    s = json.loads(out)
    assert s["added"] == 7 and [f["line"] for f in s["failures"]] == [4, 7]
    assert "t.jsonl:4: task record is not one JSON object" in err and "t.jsonl:7: record is larger" in err


@pytest.mark.parametrize("pretty, hint", [
    (json.dumps({"instance_id": "p", "list": [{"a": 1}, {}]}, indent=2), "a record over several lines: want one object a line"),
    ('{"instance_id": "p",\r\n "repo": {}\r\n}', "a record over several lines: want one object a line"),
    (json.dumps({"instance_id": "p", "list": [[1]]}, indent=2).replace("]\n}", "],\n}"), "want one object a line"),
    (json.dumps([{"instance_id": "p"}, {"instance_id": "q"}], indent=2), "a list over several lines: want one object a line"),
    ('[{"instance_id": "p"},\n{"instance_id": "q"}]', "a list over several lines: want one object a line"),
])
def test_an_object_over_many_lines_is_one_error(cli, pretty, hint):
    rc, out, err = cli("tasks", "import", "-", "--repos", "/", "-o", "json", stdin=pretty.encode())
    assert rc == 65 and hint in err
    assert [(f["line"], f["code"]) for f in json.loads(out)["failures"]] == [(1, "bad_input")]
    huge = json.dumps({"pad": "x" * (4 << 20)})
    among = f'\ufeff{{"instance_id": "a"}}\n\n{pretty}\n{{"instance_id": "b"}}\n{pretty}\n{huge}\n{{broken\n'
    rc, out, err = cli("tasks", "import", "-", "--repos", "/", "-o", "json", stdin=among.encode())
    n = pretty.count("\n") + 1
    s = json.loads(out)
    assert rc == 65 and s["added"] == 2 and [f["line"] for f in s["failures"]] == [3, n + 4, 2 * n + 4, 2 * n + 5]
    assert "record is larger than 3 MiB" in err


def test_a_byte_order_mark_is_skipped(cli):
    rc, out, err = cli("tasks", "import", "-", "--repos", "/", stdin=b'\xef\xbb\xbf{"instance_id": "a"}\r\n')
    assert rc == 0 and out.startswith("1 added"), err
    rc, out, err = cli("tasks", "import", "-", "--repos", "/", stdin=b"\xef\xbb\xbf")
    assert rc == 0 and out.startswith("0 added"), err


def test_an_import_of_any_length_needs_the_same_memory(cli, tmp_path):
    first = cli.start("log", "cat", "-f")       # keeps the stub, which would be counted with who starts it
    wait_for(lambda: (cli.state / "assayd.sock").exists(), "no server")
    peak_kib = []
    for mib in (8, 96):
        with open(tmp_path / "long.jsonl", "wb") as f:
            for _ in range(mib):
                f.write((b" " * 65535 + b"\n") * 16)
        p = cli.start("tasks", "import", "long.jsonl", "--repos", "/")
        _, status, used = os.wait4(p.pid, 0)
        p.returncode = os.waitstatus_to_exitcode(status)
        assert p.returncode == 0, p.stderr.read()
        peak_kib.append(used.ru_maxrss)
        for stream in (p.stdin, p.stdout, p.stderr):
            stream.close()
    first.kill()
    first.communicate()
    assert peak_kib[1] < peak_kib[0] + 4096, peak_kib


def test_tasks_are_paged(cli, tmp_path):
    first = cli.start("log", "cat", "-f")       # keeps the stub, whose tasks live in memory
    wait_for(lambda: (cli.state / "assayd.sock").exists(), "no server")
    records = "".join(json.dumps({"instance_id": f"a{i}"}) + "\n" for i in range(8)).encode()
    assert cli("tasks", "import", "-", "--repos", "/", stdin=records)[0] == 0
    tasks = json.loads(cli("tasks", "ls", "-o", "json")[1])["tasks"]
    assert [t["instance_id"] for t in tasks] == [f"a{i}" for i in range(8)]
    first.kill()
    first.communicate()


def test_log_ls_and_cat(cli):
    for word in (b"one", b"wrong", b"three"):
        cli("eval", "--task", "t1", "--patch", "-", "--label", "k=v", stdin=word)
    listed = json.loads(cli("log", "ls", "-o", "json", "--limit", "2")[1])
    assert [e["cursor"] for e in listed["episodes"]] == [1, 2] and listed["next_cursor"] == 3
    assert "output" not in listed["episodes"][0]
    rest = [json.loads(line) for line in cli("log", "cat", "--cursor", "2")[1].splitlines()]
    assert [(e["cursor"], e["patch"]) for e in rest] == [(2, "wrong"), (3, "three")]
    by_id = json.loads(cli("log", "cat", rest[0]["episode_id"])[1])
    assert by_id == rest[0] and by_id["labels"] == {"k": "v"}
    assert json.loads(cli("log", "cat", "3")[1])["patch"] == "three"
    assert cli("log", "cat", "9")[0] == 65
    assert cli("log", "cat", "0" * 32)[0] == 65
    state = str(cli.state)
    assert "log ls --cursor 3 --limit 2 (or --tail N" in cli("log", "ls", "--limit", "2")[2]
    os.symlink(state, f"{state} it's")
    hint = cli("log", "ls", "--limit", "1", "--task", "t1", "--state", f"{state} it's")[2]
    words = shlex.split(hint.partition("more: assay ")[2].partition(" (or")[0])
    assert words == ["log", "ls", "--cursor", "2", "--limit", "1", "--task", "t1", "--state", f"{state} it's"]
    assert [e["cursor"] for e in json.loads(cli(*words, "-o", "json")[1])["episodes"]] == [2]


@pytest.mark.parametrize("tail, cursors", [(1, [12]), (3, [10, 11, 12]), (12, list(range(1, 13))), (50, list(range(1, 13)))])
def test_log_ls_tail(cli, tail, cursors):
    rows = [{"episode": f"{i:032x}", "request": f"r{i}", "task": "odd" if i % 2 else "even", "patch": "x", "cursor": i,
             "labels": {}} for i in range(1, 13)]
    (cli.state / "stub.log").write_text("".join(json.dumps(r) + "\n" for r in rows))
    listed = json.loads(cli("log", "ls", "--tail", str(tail), "-o", "json")[1])
    assert [e["cursor"] for e in listed["episodes"]] == cursors and listed["next_cursor"] is None
    rc, out, err = cli("log", "ls", "--tail", str(tail))
    assert rc == 0 and err == "" and [int(line.split()[0]) for line in out.splitlines()] == cursors
    odd = json.loads(cli("log", "ls", "--tail", "2", "--task", "odd", "-o", "json")[1])["episodes"]
    assert [e["cursor"] for e in odd] == [9, 11]
    rc, out, err = cli("log", "ls", "--tail", "2", "--task", "none")
    assert (rc, out) == (0, "") and "no episodes" in err


def test_follow_goes_on_over_a_lost_server(cli):
    follower = cli.start("log", "cat", "-f")
    wait_for(lambda: (cli.state / "assayd.sock").exists(), "no server")
    assert cli("eval", "--task", "t1", "--patch", "-", stdin=b"one")[0] == 0
    assert json.loads(follower.stdout.readline())["patch"] == "one"
    assert cli("eval", "--task", "t1", "--patch", "-", stdin=b"crash")[0] == 0
    assert json.loads(follower.stdout.readline())["patch"] == "crash"
    follower.kill()
    follower.communicate()


def test_replay_compares(cli):
    episode = json.loads(cli("eval", "--task", "t1", "--patch", "-", "-o", "json", stdin=b"fine")[1])["episode_id"]
    rc, out, err = cli("replay", episode)
    assert rc == 0 and "the same" in out, err
    assert cli.episodes()[1]["labels"] == {"replay_of": episode}
    log = (cli.state / "stub.log").read_text().replace('"fine"', '"wrong"', 1)
    (cli.state / "stub.log").write_text(log)    # the stub's memory of it now says something else
    rc, out, _ = cli("replay", "2", "-o", "json")
    assert rc == 0 and json.loads(out)["same"] is True
    assert cli("replay", "zz")[0] == 64


def test_replay_takes_the_episodes_own_time_limit(cli):
    cli("eval", "--task", "t1", "--patch", "-", stdin=b"fine")
    cli("eval", "--task", "t1", "--patch", "-", "--timeout", "2.5", stdin=b"fine")
    for args in (["1"], ["2"], ["2", "--timeout", "7"]):
        assert cli("replay", *args)[0] == 0
    assert [e["timeout_s"] for e in cli.episodes()] == [0, 2.5, 0, 2.5, 7]
    assert json.loads(cli("log", "cat", "1")[1])["timeout_s"] is None
    assert json.loads(cli("log", "cat", "4")[1])["timeout_s"] == 2.5


LEARNER = """#!{python}
import os, json, signal, sys, time
state = {state!r}
if sys.argv[-1] == "--kill-server":         # the real one outlives a lost server as well
    os.kill(int(open(state + "/starts").read().split()[0]), signal.SIGKILL)
    while len(open(state + "/starts").read().splitlines()) < 2:
        time.sleep(0.05)
print(json.dumps(sys.argv[1:]))
sys.exit(7)
"""


def test_learn_runs_the_learner_and_keeps_a_server(cli):
    learner = cli.program.parent / "assay-learner"
    learner.write_text(LEARNER.format(python=sys.executable, state=str(cli.state)))
    learner.chmod(0o755)
    rc, out, err = cli("learn", "--tasks", "bug-", "--run", "r1", "--steps", "3", "--seed", "0", "-o", "json", "--no-learning",
                       "--lr", "0.01", "--resume", "--", "--temperature", "0.5")
    assert rc == 7, err
    assert json.loads(out) == ["rl", "--server", f"unix:{cli.state}/assayd.sock", "--tasks", "bug-", "--run", "r1", "--out",
                               f"{cli.state}/runs/r1", "--steps", "3", "--seed", "0", "--lr", "0.01", "--resume", "--no-learning",
                               "-o", "json", "--temperature", "0.5"]
    rc, out, err = cli("learn", "--tasks", "bug-", "--run", "r1", "--state", "nowhere")
    assert rc == 65 and "nowhere: `assay tasks import` makes one" in err and not (cli.state.parent / "nowhere").exists()
    (cli.state / "starts").unlink()
    assert cli("learn", "--tasks", "bug-", "--run", "r2", "--", "--kill-server")[0] == 7
    assert len(cli.servers()) == 2


def test_our_reader_may_leave(cli):
    for _ in range(3):
        cli("eval", "--task", "t1", "--patch", "-", stdin=b"x " * 50000)
    p = cli.start("log", "cat")
    p.stdout.read(10)
    p.stdout.close()
    assert p.wait(timeout=30) == 0 and p.stderr.read() == b""
    p.stdin.close(), p.stderr.close()
    with open("/dev/full", "w") as full:        # a full disk is another matter
        r = subprocess.run([str(cli.program), "version"], stdout=full, stderr=subprocess.PIPE)
    assert r.returncode == 69 and b"standard output" in r.stderr

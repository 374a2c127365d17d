#!/usr/bin/python3
"""The main job, end to end: real tasks, real verdicts, then a policy that learns from them.

Run by `make demo`. Everything goes through the `assay` command, as a user would do it:
  1. import the upstream tasks into a fresh state directory;
  2. evaluate for each task the true fix, an empty patch and a wrong patch (rewards 1, 0, 0);
  3. run a short online RL loop on injected bugs and show that the mean reward rises.
Exit status 0 only if every verdict is as it must be and the policy learnt.
"""
import argparse
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def assay(binary, state, *args, stdin=None):
    """Run one assay command; returns (exit status, parsed JSON or text)."""
    p = subprocess.run([binary, *args, "--state", state], input=stdin,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if p.returncode not in (0,):
        sys.stderr.write(p.stderr.decode(errors="replace"))
    out = p.stdout.decode(errors="replace")
    if "json" in args:
        try:
            return p.returncode, json.loads(out)
        except json.JSONDecodeError:
            sys.exit(f"demo: assay {' '.join(args)} printed no JSON (exit {p.returncode}): {out[:400]}")
    return p.returncode, out


def answers(path):
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(path)
        except OSError:
            return False
        return True


def wrong_patch(repos, task):
    """A change that applies cleanly, touches the file the true fix touches, and fixes nothing."""
    path = next((line[6:] for line in task["patch"].split("\n") if line.startswith("--- a/")), None)
    if path is None:
        return b"diff --git a/NOTES.wrong b/NOTES.wrong\nnew file mode 100644\n--- /dev/null\n+++ b/NOTES.wrong\n@@ -0,0 +1 @@\n+not a fix\n"
    old = subprocess.run(["git", "-C", os.path.join(repos, task["repo"]), "show", f"{task['base_commit']}:{path}"],
                         check=True, stdout=subprocess.PIPE).stdout
    with tempfile.TemporaryDirectory() as d:
        for side, text in (("a", old), ("b", old + b"\n# looked at, not fixed\n")):
            os.makedirs(os.path.join(d, side, os.path.dirname(path)), exist_ok=True)
            with open(os.path.join(d, side, path), "wb") as f:
                f.write(text)
        p = subprocess.run(["git", "diff", "--no-index", "--no-prefix", f"a/{path}", f"b/{path}"], cwd=d, stdout=subprocess.PIPE)
        return p.stdout


def learn(binary, state, *args):
    """Run `assay learn` and draw each step as it ends; returns (exit status, summary)."""
    p = subprocess.Popen([binary, "learn", *args, "-o", "json", "--state", state], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    for line in p.stderr:
        m = re.search(r"step (\d+)/\d+: reward ([0-9.]+),", line)
        if m:
            print(f"  step {int(m[1]):3d}  {float(m[2]):5.2f}  {'#' * round(float(m[2]) * 40)}", flush=True)
        else:
            sys.stderr.write(line)
    out = p.stdout.read()
    return p.wait(), json.loads(out) if out.strip() else None


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--bin", default=os.path.join(ROOT, "build/bin"))
    ap.add_argument("--upstream", default=os.path.join(ROOT, "build/upstream"))
    ap.add_argument("--state", default=os.path.join(ROOT, "build/demo"))
    ap.add_argument("--steps", type=int, default=32)
    ap.add_argument("--group", type=int, default=8)
    ap.add_argument("--seed", type=int, default=1)
    args = ap.parse_args()
    binary = os.path.join(args.bin, "assay")
    repos = os.path.join(args.upstream, "repos")
    began = time.monotonic()
    if answers(os.path.join(args.state, "assayd.sock")):
        sys.exit(f"demo: a server is running on {args.state}: stop it, or choose another folder with --state")
    if os.path.exists(args.state):      # an earlier demo's state may have become somebody's own: never deleted, moved aside
        aside = f"{args.state}-{time.strftime('%Y%m%d-%H%M%S')}"
        os.rename(args.state, aside)
        print(f"0. The state of an earlier demo is kept as {aside}")

    print("1. Importing tasks: real upstream projects, real bug fixes, and small injected bugs", flush=True)
    for name in ("tasks.jsonl", "bugs.jsonl"):
        rc, text = assay(binary, args.state, "tasks", "import", os.path.join(args.upstream, name), "--repos", repos)
        print("   " + text.strip().replace("\n", "\n   "))
        if rc != 0:
            sys.exit(f"demo: import of {name} ended with {rc}")

    with open(os.path.join(args.upstream, "tasks.jsonl"), encoding="utf-8") as f:
        tasks = [json.loads(line) for line in f if line.strip()]
    print(f"\n2. Three patches for each of {len(tasks)} tasks: the true fix must earn 1, an empty and a wrong one 0")
    print(f"   {'task':34s} {'true fix':>22s} {'empty patch':>22s} {'wrong patch':>22s}")
    wrong_verdicts = 0
    for task in tasks:
        cells = []
        for patch, want in ((task["patch"].encode(), 1.0), (b"", 0.0), (wrong_patch(repos, task), 0.0)):
            rc, v = assay(binary, args.state, "eval", "--task", task["instance_id"], "--patch", "-", "-o", "json", stdin=patch)
            ok = rc == 0 and v["reward"] == want
            wrong_verdicts += not ok
            cells.append(f"{v['reward']} {v['outcome']}{'' if ok else ' (!)'}")
            if not ok:
                print(f"   ! {task['instance_id']}: want reward {want}, got {v['reward']}: {v['reason']}", file=sys.stderr)
        print(f"   {task['instance_id']:34s} " + " ".join(f"{c:>22s}" for c in cells), flush=True)

    print(f"\n3. Online RL: the policy's tokens choose the edit for each injected bug; its tests give the reward", flush=True)
    run = f"demo-{args.seed}"
    rc, s = learn(binary, args.state, "--tasks", "bug-", "--run", run, "--steps", str(args.steps),
                  "--group", str(args.group), "--seed", str(args.seed))
    if rc != 0:
        sys.exit(f"demo: assay learn ended with {rc}")
    rewards = s["reward_mean"]
    quarter = max(1, len(rewards) // 4)
    first, last = sum(rewards[:quarter]) / quarter, sum(rewards[-quarter:]) / quarter
    learnt = last > first + 0.2
    print(f"   mean reward, first quarter {first:.2f}, last quarter {last:.2f}; policy version {s['policy_version']}")
    print(f"\nDone in {time.monotonic() - began:.0f} s. "
          f"{3 * len(tasks) - wrong_verdicts} of {3 * len(tasks)} verdicts as they must be; "
          f"the policy {'learnt' if learnt else 'did NOT learn'}.")
    print(f"  trajectory log  {args.state}/log          read it:  {os.path.relpath(binary)} log ls --state {os.path.relpath(args.state)}")
    print(f"  weights         {s['out']}")
    sys.exit(0 if wrong_verdicts == 0 and learnt else 1)


if __name__ == "__main__":
    main()

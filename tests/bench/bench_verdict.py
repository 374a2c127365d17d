#!/usr/bin/python3
"""Verdicts per second on a real project's suite against plain pytest in a checked-out tree, on the same cores.

figures: verdict-rate-vs-pytest verdict-cached-per-s
Each verdict comes from a different patch (a trailing comment), so nothing is answered from the cache; the peer writes the
same change into a copy of the tree and runs the same command. Both keep as many runs going as there are CPUs; rounds alternate.
"""
import concurrent.futures
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, "build/py")
BIN = os.environ.get("BIN", "build/bin")
CPUS = os.cpu_count() or 1
RUNS, ROUNDS = 24, 3


def pick():
    """A pytest task of the real upstream set: the one with the shortest command, for a stable figure."""
    with open("build/upstream/tasks.jsonl", encoding="utf-8") as f:
        tasks = [json.loads(line) for line in f if line.strip()]
    return min((t for t in tasks if "pytest" in t["test_cmd"]), key=lambda t: (len(t["PASS_TO_PASS"]), t["instance_id"]))


def variants(task, first, count):
    path = next(line[6:] for line in task["patch"].split("\n") if line.startswith("--- a/"))
    repo = os.path.join("build/upstream/repos", task["repo"])
    old = subprocess.run(["git", "-C", repo, "show", f"{task['base_commit']}:{path}"], check=True, stdout=subprocess.PIPE).stdout
    total = old.count(b"\n") + (not old.endswith(b"\n"))
    last = old.rstrip(b"\n").split(b"\n")[-1].decode()
    blank = old.endswith(b"\n")
    assert blank, f"{path}: no final newline"
    return path, old, [f"diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -{total} +{total},2 @@\n {last}\n+# {n}\n".encode()
                       for n in range(first, first + count)]


def plain(task, path, old, count):
    """The peer: as many copies of the tree as CPUs, each run changes the file and calls the task's own command."""
    with tempfile.TemporaryDirectory() as d:
        trees = []
        for k in range(CPUS):
            tree = os.path.join(d, str(k))
            os.mkdir(tree)
            archive = subprocess.Popen(["git", "-C", os.path.join("build/upstream/repos", task["repo"]), "archive", task["base_commit"]],
                                       stdout=subprocess.PIPE)
            subprocess.run(["tar", "-x", "-C", tree], stdin=archive.stdout, check=True)
            archive.wait()
            trees.append(tree)
        env = dict(os.environ, PATH="/usr/bin:/bin", PYTHONDONTWRITEBYTECODE="1",
                   PYTEST_ADDOPTS="-p no:cacheprovider --junitxml=report.xml -o junit_family=xunit1 -rA")

        def work(k):
            for n in range(k, count, CPUS):
                with open(os.path.join(trees[k], path), "wb") as f:
                    f.write(old + b"# %d\n" % n)
                subprocess.run(["/bin/sh", "-c", task["test_cmd"]], cwd=trees[k], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        began = time.monotonic()
        with concurrent.futures.ThreadPoolExecutor(CPUS) as pool:
            list(pool.map(work, range(CPUS)))
        return count / (time.monotonic() - began)


def main():
    import grpc
    from assay.v1 import rollout_pb2, rollout_pb2_grpc
    task = pick()
    state = tempfile.mkdtemp(prefix="assay-bench-")
    address = f"unix:{state}/d.sock"
    r, w = os.pipe()
    server = subprocess.Popen([f"{BIN}/assayd", "--state", state, "--listen", address, "--ready-fd", str(w)], pass_fds=[w],
                              stderr=subprocess.DEVNULL)
    os.close(w)
    if os.read(r, 6) != b"ready\n":
        sys.exit("bench_verdict: assayd did not start")
    try:
        tasks = os.path.join(state, "one.jsonl")
        with open(tasks, "w", encoding="utf-8") as f:
            f.write(json.dumps(task) + "\n")
        subprocess.run([f"{BIN}/assay", "tasks", "import", tasks, "--repos", "build/upstream/repos", "--server", address],
                       check=True, stdout=subprocess.DEVNULL)
        with grpc.insecure_channel(address) as channel:
            rollout = rollout_pb2_grpc.RolloutStub(channel)

            def ours(patches):
                began = time.monotonic()
                answers = list(rollout.EvaluateMany(rollout_pb2.EvaluateRequest(request_id=f"{time.monotonic()}-{i}", task_id=task["instance_id"],
                                                                                patch=p) for i, p in enumerate(patches)))
                assert all(a.verdict.HasField("reward") for a in answers), [a.verdict.reason for a in answers]
                return len(answers) / (time.monotonic() - began)
            ratios = []
            for k in range(ROUNDS):
                path, old, patches = variants(task, k * RUNS, RUNS)
                ratios.append(ours(patches) / plain(task, path, old, RUNS))
            print(f"verdict-rate-vs-pytest {statistics.median(ratios):.3f} ratio ({min(ratios):.3f} … {max(ratios):.3f})")
            _, _, one = variants(task, 0, 1)
            rates = [ours(one * 2000) for _ in range(ROUNDS)]
            print(f"verdict-cached-per-s {statistics.median(rates):.0f} verdicts/s ({min(rates):.0f} … {max(rates):.0f})")
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(state, ignore_errors=True)


if __name__ == "__main__":
    main()

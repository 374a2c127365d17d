"""The README's commands, in its order, as printed (in a folder of its own, on a free port): what is printed there works."""
import os
import signal
import socket
import subprocess

import pytest

from conftest import ROOT

LATER = ("make demo", "make test", "apt-get ")     # what this test is a part of, or what came before it


def commands():
    with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as f:
        lines = [line.rstrip("\n")[4:] for line in f if line.startswith("    ")]
    return [c for c in lines if c.startswith(("build/bin/", "make ", "PYTHONPATH="))]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def test_every_printed_command(tmp_path):
    if not os.path.exists(f"{ROOT}/build/upstream/bugs.jsonl"):
        pytest.skip("build/upstream is not there: make upstream")
    for name in ("build", "tests", "README.md"):
        os.symlink(os.path.join(ROOT, name), tmp_path / name)
    port, ran, servers = free_port(), 0, []
    env = {k: v for k, v in os.environ.items() if k != "ASSAY_STATE"}
    try:
        for command in commands():
            if command.startswith(LATER) or command == "make pystubs":
                continue
            command = command.replace("127.0.0.1:7300", f"127.0.0.1:{port}").split("      #")[0].strip()
            if command.endswith("&"):
                servers.append(subprocess.Popen(["/bin/sh", "-c", "exec " + command[:-1]], cwd=tmp_path, env=env, stderr=subprocess.DEVNULL))
                for _ in range(200):
                    if subprocess.run(["build/bin/assay", "status", "--server", f"127.0.0.1:{port}"], cwd=tmp_path, env=env,
                                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0:
                        break
            else:
                p = subprocess.run(["/bin/sh", "-c", command], cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
                assert p.returncode == 0, f"{command}: exit {p.returncode}: {p.stderr.decode()[-1500:]}{p.stdout.decode()[-500:]}"
            ran += 1
        assert ran >= 14, ran
    finally:
        for s in servers:
            s.send_signal(signal.SIGTERM)
            s.wait(timeout=60)

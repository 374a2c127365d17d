#!/usr/bin/python3
"""`make bench`: run the bench programs, print a line a figure, write build/bench.json.

Each program prints `NAME VALUE UNIT (min … max)` for the figures it can take and nothing for those it cannot. A figure
that cannot be had is absent. With ONLY=NAME a program that says in its first 30 lines (`figures: a b c`) that it has NAME,
or some that begin with NAME-, is run, and only these lines are kept.
"""
import json
import os
import re
import subprocess
import sys

LINE = re.compile(r"^([a-z0-9-]+) ([-+0-9.e]+) (\S+) \((.*)\)$")


def figures_of(program):
    """Names from the `figures:` line of the program's source."""
    source = program
    if not program.endswith(".py"):
        source = next((f"tests/bench/{os.path.basename(program)}{e}" for e in (".c", ".cu") if
                       os.path.exists(f"tests/bench/{os.path.basename(program)}{e}")), program)
    with open(source, encoding="utf-8", errors="replace") as f:
        for line in list(f)[:30]:
            if "figures:" in line:
                return line.split("figures:")[1].replace("*/", "").split()
    return None


def main():
    only, programs = os.environ.get("ONLY", ""), sys.argv[1:]
    wanted = lambda name: not only or name == only or name.startswith(only + "-")
    known = {p: figures_of(p) for p in programs}
    if only and not any(f is None or any(map(wanted, f)) for f in known.values()):
        sys.exit(f"bench: no figure {only}; there are: {' '.join(sorted(n for f in known.values() for n in f or []))}")
    out, failed = {}, []
    if only and os.path.exists("build/bench.json"):
        with open("build/bench.json", encoding="utf-8") as f:
            out = json.load(f)
    for p in programs:
        if known[p] is not None and not any(map(wanted, known[p])):
            continue
        command = [sys.executable, p] if p.endswith(".py") else [p]
        r = subprocess.run(command, stdout=subprocess.PIPE, text=True)
        if r.returncode != 0:
            failed.append(p)
            print(f"bench: {p} ended with {r.returncode}", file=sys.stderr)
        for line in r.stdout.splitlines():
            m = LINE.match(line)
            if m and wanted(m.group(1)):
                print(line, flush=True)
                out[m.group(1)] = {"value": float(m.group(2)), "unit": m.group(3), "range": m.group(4)}
    with open("build/bench.json", "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1, sort_keys=True)
        f.write("\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

#!/usr/bin/python3
"""`make bench`: run the bench programs, print a line a figure, write build/bench.json.

Each program prints `NAME VALUE UNIT (min … max)` for the figures it can take and nothing for those it cannot. A figure
that cannot be had is absent. With ONLY=NAME only the programs are run that say in their first 30 lines (`figures: a b c`)
that they have a figure whose name begins with NAME, and only those lines are kept. A figure with a goal is told whether it
meets it; a missed goal is no failure of the run.
"""
import json
import os
import re
import subprocess
import sys

GOALS = {
    "sandbox-overhead-vs-bwrap": ("<=", 0.05),
    "sandbox-overhead-vs-crun": ("<=", 0.03),
    "sandbox-p99-vs-bwrap-min": ("<=", 1),
    "sandbox-stalls": ("<=", 0),
    "sandbox-pool-empty-vs-bwrap": ("<=", 0.3),
    "sandbox-all-fresh-vs-bwrap": ("<=", 0.55),
    "sandbox-rate-vs-bwrap-2": (">=", 3),
    "sandbox-rate-vs-bwrap-8": (">=", 3),
    "sandbox-rate-vs-bwrap-32": (">=", 3),
    "sandbox-rate-vs-crun-2": (">=", 6),
    "sandbox-rate-vs-crun-8": (">=", 6),
    "sandbox-rate-vs-crun-32": (">=", 6),
    "sandbox-idle-pss": ("<=", 32),
    "catalog-import-rate": (">=", 20000),
    "catalog-lookup-p99-us": ("<=", 50),
    "catalog-rss-grown-mib": ("<=", 16),
}
LINE = re.compile(r"^([a-z0-9-]+) ([-+0-9.e]+) (\S+) \((.*)\)$")


def figures_of(program):
    """Names from the `figures:` lines of the program's source; None where it has none."""
    source = program
    if not program.endswith(".py"):
        source = next((f"tests/bench/{os.path.basename(program)}{e}" for e in (".c", ".cu") if
                       os.path.exists(f"tests/bench/{os.path.basename(program)}{e}")), program)
    with open(source, encoding="utf-8", errors="replace") as f:
        lines = [line.split("figures:")[1].replace("*/", "") for line in list(f)[:30] if "figures:" in line]
    return " ".join(lines).split() or None


def verdict(name, value):
    """What is printed after a figure that has a goal."""
    if name not in GOALS:
        return ""
    sign, goal = GOALS[name]
    met = value <= goal if sign == "<=" else value >= goal
    return f"  goal {sign} {goal:g}: {'met' if met else 'MISSED'}"


def main():
    only, programs = os.environ.get("ONLY", ""), sys.argv[1:]
    known = {p: figures_of(p) for p in programs}
    if only and not any(f is None or any(n.startswith(only) for n in f) for f in known.values()):
        sys.exit(f"bench: no figure {only}; there are: {' '.join(sorted(n for f in known.values() for n in f or []))}")
    out, failed, taken = {}, [], set()
    if only and os.path.exists("build/bench.json"):
        with open("build/bench.json", encoding="utf-8") as f:
            out = json.load(f)
    for p in programs:
        if only and known[p] is not None and not any(n.startswith(only) for n in known[p]):
            continue
        command = [sys.executable, p] if p.endswith(".py") else [p]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as r:
            for line in r.stdout:
                m = LINE.match(line)
                if m and m.group(1).startswith(only):
                    name, value = m.group(1), float(m.group(2))
                    print(line.rstrip() + verdict(name, value), flush=True)
                    out[name] = {"value": value, "unit": m.group(3), "range": m.group(4)}
                    taken.add(name)
        if r.returncode != 0:
            failed.append(p)
            print(f"bench: {p} ended with {r.returncode}", file=sys.stderr)
    for name in GOALS:
        if name.startswith(only) and name not in taken:
            print(f"{name} absent: no such peer here, or it failed")
    with open("build/bench.json", "w", encoding="utf-8") as f:
        json.dump(out, f, indent=1, sort_keys=True)
        f.write("\n")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()

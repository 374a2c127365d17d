#!/usr/bin/python3
"""Get the real input: upstream projects by package name, as git repositories and task records.

What is wanted stands in projects.json (names, versions, digests, which files are source and which are
tests), what was seen when the tests ran stands in observed.json. From these two this program makes

    OUT/archives/          the archives as the registries serve them, each checked against its SHA-256
    OUT/repos/PROJECT      a git repository, one commit for each release (or each Debian patch)
    OUT/repos/PROJECT-bugs one commit for each injected bug on top of a release
    OUT/tasks.jsonl        real bug fixes        OUT/bugs.jsonl   injected bugs, each with its 16 choices

Author, date and content of every commit are fixed, so commit ids are the same on every machine. A second
run takes the archives that are already there. Only pip and apt are asked for anything, with whatever
configuration they have here; no archive's own code runs while it is fetched.

Exit status: 0 done, 64 usage, 65 an archive or a spec is not what it should be, 69 a registry or a tool
is not available.
"""
import argparse
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from concurrent.futures import ThreadPoolExecutor

HERE = os.path.dirname(os.path.abspath(__file__))
EX_DATA, EX_UNAVAILABLE = 65, 69
DATE = "946684800 +0000"
WHO = "Upstream <upstream@localhost>"
GIT_ENV = dict(os.environ, GIT_CONFIG_GLOBAL=os.devnull, GIT_CONFIG_SYSTEM=os.devnull, GIT_CONFIG_NOSYSTEM="1", LC_ALL="C")
for leak in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY"):
    GIT_ENV.pop(leak, None)

# pip asks a source archive's build backend for metadata before it hands the archive over, which means
# installing and running that backend. This stand-in answers from the name and version we asked for.
BACKENDS = ("setuptools.build_meta", "flit_core.buildapi", "hatchling.build", "poetry.core.masonry.api", "pdm.backend")
BACKEND = '''
import os
def get_requires_for_build_wheel(config_settings=None):
    return []
def prepare_metadata_for_build_wheel(metadata_directory, config_settings=None):
    name, version = os.environ["FETCH_NAME"], os.environ["FETCH_VERSION"]
    info = name.replace("-", "_") + "-" + version + ".dist-info"
    os.makedirs(os.path.join(metadata_directory, info), exist_ok=True)
    with open(os.path.join(metadata_directory, info, "METADATA"), "w") as f:
        f.write("Metadata-Version: 2.1\\nName: %s\\nVersion: %s\\n" % (name, version))
    return info
class __legacy__:
    get_requires_for_build_wheel = staticmethod(get_requires_for_build_wheel)
    prepare_metadata_for_build_wheel = staticmethod(prepare_metadata_for_build_wheel)
'''


class Failure(Exception):
    """One line for the user, and the exit status that goes with it."""
    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


def run(argv, **kw):
    try:
        return subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **kw)
    except FileNotFoundError:
        raise Failure(EX_UNAVAILABLE, f"{argv[0]} is not installed; run `make deps`") from None


def last_line(p):
    lines = [x for x in (p.stdout + p.stderr).decode(errors="replace").splitlines() if x.strip()]
    errors = [x for x in lines if x.startswith(("ERROR", "E:"))]
    return (errors or lines or [f"exit status {p.returncode}"])[-1]


def git(repo, *args, data=None):
    p = run(["git", "-C", repo, *args], input=data, env=GIT_ENV)
    if p.returncode != 0:
        raise Failure(EX_DATA, f"git {args[0]} in {repo}: {last_line(p)}")
    return p.stdout


def sha256(data):
    return hashlib.sha256(data).hexdigest()


# --- registries --------------------------------------------------------------------------------------

def kept(path, digest):
    """The bytes of an archive fetched earlier, or None. A damaged one is fetched again."""
    try:
        with open(path, "rb") as f:
            data = f.read()
    except FileNotFoundError:
        return None
    return data if digest is None or sha256(data) == digest else None


def checked(name, path, digest):
    with open(path, "rb") as f:
        data = f.read()
    if sha256(data) != digest:
        raise Failure(EX_DATA, f"{name}: {os.path.basename(path)} has SHA-256 {sha256(data)}, projects.json says {digest}; "
                      "if the new archive is right, pin its digest and run fetch.py --observe")
    return data


def pip_fetch(name, version, digest, archives):
    """One source archive from the package index that pip is configured for."""
    spec = f"{name}=={version}"
    place = os.path.join(archives, spec)
    for f in sorted(os.listdir(place)) if os.path.isdir(place) else []:
        data = kept(os.path.join(place, f), digest)
        if data is not None:
            return data
    with tempfile.TemporaryDirectory(dir=archives) as tmp:
        shim, got = os.path.join(tmp, "shim"), os.path.join(tmp, "got")
        for module in BACKENDS:
            path = os.path.join(shim, *module.split(".")) + ".py"
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="ascii") as f:
                f.write(BACKEND)
        env = dict(os.environ, PYTHONPATH=shim, FETCH_NAME=name, FETCH_VERSION=version, PIP_DISABLE_PIP_VERSION_CHECK="1")
        p = run(["/usr/bin/python3", "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "--use-pep517",
                 "--no-build-isolation", "-d", got, spec], env=env)
        if b"No module named pip" in p.stderr:
            raise Failure(EX_UNAVAILABLE, f"{spec}: pip is not installed; run `make deps`, or apt-get install python3-pip")
        files = os.listdir(got) if os.path.isdir(got) else []
        if p.returncode != 0 or len(files) != 1:
            raise Failure(EX_UNAVAILABLE, f"{spec}: pip could not download its source archive ({last_line(p)}); "
                          "check the package index that `pip config list` names, then run this again")
        data = checked(spec, os.path.join(got, files[0]), digest)
        os.makedirs(place, exist_ok=True)
        os.replace(os.path.join(got, files[0]), os.path.join(place, files[0]))
    return data


def apt_uri(binary, options):
    p = run(["apt-get", *options, "download", "--print-uris", binary])
    m = re.match(r"'([^']+)/[^/']+' (\S+?)_(\S+)_\S+\.deb ", p.stdout.decode(errors="replace"))
    return (m[1], re.sub(r"^\d+%3a", "", m[3])) if p.returncode == 0 and m else None


def apt_fetch(source, binary, version, digest, archives):
    """A Debian source package's two archives: they lie in the pool beside the binary package's file.

    The upstream archive is pinned. The packaging archive is replaced by every security update of Debian,
    so not it but each patch taken from it is pinned (see debian_tree)."""
    private = os.path.join(archives, "apt")
    lists = [f"-oDir::State::lists={private}/lists", f"-oDir::Cache={private}/cache"]
    why = "it knows no such package"
    for options in ([], lists):
        if options:                             # the machine's own lists are missing or stale: fetch our own copy
            os.makedirs(f"{private}/lists/partial", exist_ok=True)
            os.makedirs(f"{private}/cache/archives/partial", exist_ok=True)
            p = run(["apt-get", *options, "update", "-qq"])
            if p.returncode != 0 or p.stderr:   # another source of this machine may be down: try all the same
                why = last_line(p)
        found = apt_uri(binary, options)
        if found is None:
            continue
        uri, full = found
        if full.rsplit("-", 1)[0] != version:
            raise Failure(EX_DATA, f"{binary}: apt has version {full}, projects.json wants {version}; "
                          "this needs Debian 12's sources")
        data = []
        for name, want in ((f"{source}_{version}.orig.tar.gz", digest), (f"{source}_{full}.debian.tar.xz", None)):
            path = os.path.join(archives, name)
            if kept(path, want) is None:
                address = f"{uri}/{name.replace('+', '%2b')}"
                p = run(["/usr/lib/apt/apt-helper", *options, "download-file", address, path + ".part"])
                if p.returncode != 0:
                    why = f"{name}: {last_line(p)}"
                    break
                if want:
                    checked(source, path + ".part", want)
                os.replace(path + ".part", path)
            data.append(kept(path, want))
        if len(data) == 2:
            return data
    raise Failure(EX_UNAVAILABLE, f"{source}: apt could not get the Debian source package ({why}); "
                  "check the sources that `apt-cache policy` names, then run this again")


# --- trees: {path: (mode, bytes)} --------------------------------------------------------------------

def tree_of(name, data, strip=1):
    tree = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for m in tar:
            parts = m.name.split("/")
            if parts[0] == ".":
                parts = parts[1:]
            path = "/".join(parts[strip:])
            if m.isdir() or not path:
                continue
            if ".." in parts or m.name.startswith("/") or ".git" in parts:
                raise Failure(EX_DATA, f"{name}: archive holds the path {m.name!r}")
            if m.isfile():
                tree[path] = ("100755" if m.mode & 0o100 else "100644", tar.extractfile(m).read())
            elif m.issym():
                tree[path] = ("120000", m.linkname.encode())
    return tree


def debian_tree(tree, patch, name):
    """The tree with one quilt patch applied."""
    with tempfile.TemporaryDirectory() as tmp:
        for path in re.findall(r"^\+\+\+ [^/\s]+/(\S+)", patch.decode(errors="replace"), re.M):
            if path in tree:
                os.makedirs(os.path.join(tmp, os.path.dirname(path)), exist_ok=True)
                with open(os.path.join(tmp, path), "wb") as f:
                    f.write(tree[path][1])
        p = run(["git", "-c", "core.autocrlf=false", "apply", "-"], input=patch, cwd=tmp,
                env=dict(GIT_ENV, GIT_CEILING_DIRECTORIES=os.path.dirname(tmp)))
        if p.returncode != 0:
            raise Failure(EX_DATA, f"{name} does not apply: {last_line(p)}")
        tree = dict(tree)
        for root, _, files in os.walk(tmp):
            for f in files:
                full = os.path.join(root, f)
                path = os.path.relpath(full, tmp)
                with open(full, "rb") as g:
                    tree[path] = (tree.get(path, ("100644",))[0], g.read())
    return tree


def revisions(name, spec, archives):
    """[(label, tree)] of one project, oldest first."""
    out = []
    if spec["from"] == "pip":
        for version, digest in spec["releases"].items():
            out.append((version, tree_of(f"{name} {version}", pip_fetch(spec["package"], version, digest, archives))))
        return out
    orig, packaging = apt_fetch(spec["package"], spec["binary"], spec["version"], spec["sha256"], archives)
    tree = tree_of(name, orig)
    out.append((spec["version"], tree))
    patches = tree_of(name, lzma.decompress(packaging), strip=2)
    for label, (file, digest) in spec["patches"].items():
        patch = patches.get(file)
        if patch is None or sha256(patch[1]) != digest:
            fault = "missing" if patch is None else "another one than projects.json pins"
            raise Failure(EX_DATA, f"{name}: Debian's {file} is {fault}")
        tree = debian_tree(tree, patch[1], f"{name}: {file}")
        out.append((label, tree))
    return out


# --- repositories and records ------------------------------------------------------------------------

def commit(repo, entries):
    """Write commits [(branch, parent mark or 0, message, tree)] in one stream; returns their ids."""
    shutil.rmtree(repo, ignore_errors=True)
    os.makedirs(repo)
    git(repo, "init", "-q", "-b", "main", ".")
    stream = io.BytesIO()
    for mark, (branch, parent, message, tree) in enumerate(entries, 1):
        text = message.encode()
        stream.write(f"commit refs/heads/{branch}\nmark :{mark}\ncommitter {WHO} {DATE}\n".encode())
        stream.write(f"data {len(text)}\n".encode() + text + b"\n")
        stream.write((f"from :{parent}\n" if parent else "").encode() + b"deleteall\n")
        for path in sorted(tree):
            mode, data = tree[path]
            quoted = json.dumps(path, ensure_ascii=False)
            stream.write(f"M {mode} inline {quoted}\ndata {len(data)}\n".encode() + data + b"\n")
        stream.write(b"\n")
    marks = os.path.join(repo, ".git", "marks")
    git(repo, "fast-import", "--quiet", f"--export-marks={marks}", data=stream.getvalue())
    with open(marks, encoding="ascii") as f:
        ids = dict(line.split() for line in f)
    git(repo, "reset", "-q", "--hard", "main")
    return [ids[f":{mark}"] for mark in range(1, len(entries) + 1)]


def diff(repo, a, b, paths):
    text = git(repo, "diff", "--no-color", "--no-ext-diff", "--full-index", "--diff-algorithm=myers", "-U3", a, b, "--", *paths)
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise Failure(EX_DATA, f"{repo}: the change in {paths} is not UTF-8 text") from None


def make_tasks(name, spec, revs, out):
    """The project's repository and its task records. A record's tests are those of the later revision."""
    entries, labels = [], []
    for label, tree in revs:
        entries.append(("main", len(entries), f"{name} {label}", tree))
        labels.append(label)
    repo = os.path.join(out, "repos", name)
    ids = dict(zip(labels, commit(repo, entries)))
    for label in labels:
        git(repo, "update-ref", f"refs/tags/{label}", ids[label])
    records = []
    for task in spec["tasks"]:
        base, head = task["base"], task["head"]
        tests = diff(repo, ids[base], ids[head], task["tests"])
        for path, file in spec.get("overlay", {}).items():
            with open(os.path.join(HERE, file), encoding="utf-8") as f:
                lines = f.read().splitlines()
            tests += (f"diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n"
                      f"@@ -0,0 +1,{len(lines)} @@\n" + "".join(f"+{line}\n" for line in lines))
        records.append({
            "instance_id": f"{name}-{task.get('id', head)}", "repo": name, "base_commit": ids[base],
            "problem_statement": task["problem"], "patch": diff(repo, ids[base], ids[head], task["source"]), "test_patch": tests,
            "FAIL_TO_PASS": [], "PASS_TO_PASS": [], "test_cmd": task["test_cmd"], "reader": task.get("reader", "pytest"),
            "environment": "host", "timeout_s": task.get("timeout_s", 60), "memory_mb": task.get("memory_mb", 512),
            "language": spec["language"], "licence": spec["licence"], "head_commit": ids[head],
        })
    return records


def make_bugs(name, spec, revs, options, out):
    """Injected bugs: one line of the release with one token put wrong, and the diff that each choice makes."""
    tree = dict(revs)[spec["release"]]
    entries = [("main", 0, f"{name} {spec['release']}", tree)]
    edits = []
    for n, bug in enumerate(spec["bugs"], 1):
        mode, data = tree[bug["file"]]
        lines = data.decode().split("\n")
        good, bad = (bug["line"].replace("{}", bug[k], 1) for k in ("good", "bad"))
        at = [i for i, line in enumerate(lines) if line.strip() == good.strip()]
        nth = bug.get("nth", 1)
        if len(at) < nth or ("nth" not in bug and len(at) != 1):
            raise Failure(EX_DATA, f"{name}-bugs {n}: {good.strip()!r} stands {len(at)} times in {bug['file']}")
        i = at[nth - 1]
        indent = lines[i][:len(lines[i]) - len(lines[i].lstrip())]
        broken = lines[:i] + [indent + bad.strip()] + lines[i + 1:]
        changed = {**tree, bug["file"]: (mode, "\n".join(broken).encode())}
        entries.append((f"bug-{n:02d}", 1, f"{name} {spec['release']}, bug {n:02d}", changed))
        edits.append((bug, i, indent, broken))
    repo = os.path.join(out, "repos", f"{name}-bugs")
    ids = commit(repo, entries)
    records = []
    for n, (bug, i, indent, broken) in enumerate(edits, 1):
        first, last = max(0, i - 3), min(len(broken) - 1, i + 4)
        head, tail = (indent + bug["line"].strip()).split("{}", 1)
        size = last - first
        prefix = (f"diff --git a/{bug['file']} b/{bug['file']}\n--- a/{bug['file']}\n+++ b/{bug['file']}\n"
                  f"@@ -{first + 1},{size} +{first + 1},{size} @@\n" + "".join(f" {x}\n" for x in broken[first:i])
                  + f"-{broken[i]}\n+{head}")
        suffix = f"{tail}\n" + "".join(f" {x}\n" for x in broken[i + 1:last])
        module = os.path.splitext(os.path.basename(bug["file"]))[0]
        records.append({
            "instance_id": f"bug-{name}-{n:02d}", "repo": f"{name}-bugs", "base_commit": ids[n],
            "problem_statement": f"A test of {module} fails: one token of {bug['function']} is wrong.",
            "patch": prefix + bug["good"] + suffix, "test_patch": "", "FAIL_TO_PASS": [], "PASS_TO_PASS": [],
            "test_cmd": "python3 -m pytest " + bug["tests"], "reader": "pytest", "environment": "host",
            "timeout_s": 20, "memory_mb": 512,
            "choice": {"prompt": f"{module} {bug['function']}: {bug['line'].strip().replace('{}', '?', 1)}",
                       "options": options, "prefix": prefix, "suffix": suffix},
        })
    return records


# --- what the tests do -------------------------------------------------------------------------------

PLUGIN = '''
import json, os
seen = {}
def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        status = "skipped" if report.outcome == "skipped" or hasattr(report, "wasxfail") else report.outcome
        seen[report.nodeid] = status if seen.get(report.nodeid, "passed") == "passed" else seen[report.nodeid]
def pytest_sessionfinish(session):
    with open(os.environ["FETCH_SEEN"], "w") as f:
        json.dump(seen, f)
'''


def statuses(out, record, patches, tap_id="{file}::{n} - {name}"):
    """Run the record's tests on its base with some patches, in a plain directory: {id: status}."""
    repo = os.path.join(out, "repos", record["repo"])
    with tempfile.TemporaryDirectory() as tmp:
        tree, plug, seen = (os.path.join(tmp, x) for x in ("tree", "plug", "seen"))
        os.makedirs(tree)
        os.makedirs(plug)
        with tarfile.open(fileobj=io.BytesIO(git(repo, "archive", record["base_commit"]))) as tar:
            tar.extractall(tree)
        for patch in patches:
            if not patch:
                continue
            p = run(["git", "apply", "--whitespace=nowarn", "-"], input=patch.encode(), cwd=tree,
                    env=dict(GIT_ENV, GIT_CEILING_DIRECTORIES=tmp))
            if p.returncode != 0:
                raise Failure(EX_DATA, f"{record['instance_id']}: a patch does not apply: {last_line(p)}")
        with open(os.path.join(plug, "fetch_observe.py"), "w", encoding="ascii") as f:
            f.write(PLUGIN)
        env = {"PATH": "/usr/bin:/bin", "HOME": tmp, "LC_ALL": "C.UTF-8", "TMPDIR": tmp, "PYTHONDONTWRITEBYTECODE": "1"}
        if record["reader"] == "pytest":
            env.update(PYTHONPATH=plug, PYTEST_ADDOPTS="-q -p fetch_observe -p no:cacheprovider", FETCH_SEEN=seen)
        p = run(["timeout", str(record["timeout_s"]), "sh", "-c", record["test_cmd"]], cwd=tree, env=env)
        if record["reader"] == "pytest":
            if not os.path.exists(seen):
                return {}
            with open(seen, encoding="utf-8") as f:
                return json.load(f)
        found, file = {}, None
        for line in p.stdout.decode(errors="replace").splitlines():
            m = re.match(r"(\S+) \.\.+\s*$", line)
            file = m[1] if m else file
            m = re.match(r"(not )?ok (\d+) - (.*?)( # SKIP.*)?$", line)
            if m:
                found[tap_id.format(file=file, n=m[2], name=m[3])] = "failed" if m[1] else "skipped" if m[4] else "passed"
        return found


def observe(out, records, unsteady):
    """Ids that hold: FAIL_TO_PASS passes twice with the fix and not without it, PASS_TO_PASS passes each time.

    `unsteady` are those, by instance id, whose result hangs on the machine and not on the patch."""
    seen = {}
    for r in records:
        before = statuses(out, r, [r["test_patch"]])
        after = [statuses(out, r, [r["patch"], r["test_patch"]]) for _ in range(2)]
        good = [t for t in after[0] if all(a.get(t) == "passed" for a in after) and t not in unsteady.get(r["instance_id"], ())]
        f2p = sorted(t for t in good if before.get(t) != "passed")
        p2p = sorted(t for t in good if before.get(t) == "passed")
        if not f2p:
            raise Failure(EX_DATA, f"{r['instance_id']}: no test fails without the fix and passes with it")
        seen[r["instance_id"]] = {"FAIL_TO_PASS": f2p, "PASS_TO_PASS": p2p}
        print(f"{r['instance_id']}: {len(f2p)} fail to pass, {len(p2p)} pass to pass", flush=True)
        if "choice" in r:
            right = right_choices(out, r, set(f2p + p2p))
            print(f"    right choices: {right}", flush=True)
            if len(right) > len(r["choice"]["options"]) // 3:
                raise Failure(EX_DATA, f"{r['instance_id']}: the tests cannot tell {len(right)} choices apart")
    return seen


def right_choices(out, record, required):
    """The options of an injected bug with which every required test passes; each is really run."""
    choice, right = record["choice"], []
    for option in choice["options"]:
        got = statuses(out, record, [choice["prefix"] + option + choice["suffix"]])
        if all(got.get(t) == "passed" for t in required):
            right.append(option)
    return right


def write_lines(path, records):
    with open(path + ".part", "w", encoding="utf-8") as f:
        for r in records:
            f.write(json.dumps(r, ensure_ascii=False) + "\n")
    os.replace(path + ".part", path)


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--out", default="build/upstream")
    ap.add_argument("--observe", action="store_true", help="run every record's tests and rewrite observed.json")
    try:
        args = ap.parse_args()
    except SystemExit as e:
        return 64 if e.code else 0
    out = os.path.abspath(args.out)
    archives = os.path.join(out, "archives")
    os.makedirs(archives, exist_ok=True)
    with open(os.path.join(HERE, "projects.json"), encoding="utf-8") as f:
        spec = json.load(f)
    observed_path = os.path.join(HERE, "observed.json")
    tasks, bugs = [], []
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda item: revisions(item[0], item[1], archives), spec["projects"].items())
        found = dict(zip(spec["projects"], found))
    for name, project in spec["projects"].items():
        revs = found[name]
        tasks += make_tasks(name, project, revs, out)
        if "injected" in project:
            bugs += make_bugs(name, project["injected"], revs, spec["options"], out)
        print(f"{name}: {', '.join(label for label, _ in revs)}", flush=True)
    if args.observe:
        unsteady = {f"{name}-{task.get('id', task['head'])}": task["unsteady"]
                    for name, project in spec["projects"].items() for task in project["tasks"] if "unsteady" in task}
        seen = observe(out, tasks + bugs, unsteady)
        with open(observed_path, "w", encoding="utf-8") as f:
            json.dump(seen, f, indent=1, ensure_ascii=False)
            f.write("\n")
    with open(observed_path, encoding="utf-8") as f:
        seen = json.load(f)
    for r in tasks + bugs:
        if r["instance_id"] not in seen:
            raise Failure(EX_DATA, f"{r['instance_id']}: not in observed.json; run fetch.py --observe")
        r.update(seen[r["instance_id"]])
    write_lines(os.path.join(out, "tasks.jsonl"), tasks)
    write_lines(os.path.join(out, "bugs.jsonl"), bugs)
    print(f"{len(tasks)} tasks of {len({r['repo'] for r in tasks})} projects, {len(bugs)} injected bugs")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failure as e:
        print(f"fetch.py: {e}", file=sys.stderr)
        sys.exit(e.status)

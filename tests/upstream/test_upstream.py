"""The real input is what it says it is: records are whole, patches apply, and the tests behave as recorded."""
import json
import os
import re
import subprocess
import sys

import pytest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import fetch  # noqa: E402

OUT = os.environ.get("ASSAY_UPSTREAM", os.path.join(HERE, "..", "..", "build", "upstream"))
FIELDS = {"instance_id": str, "repo": str, "base_commit": str, "problem_statement": str, "patch": str, "test_patch": str,
          "FAIL_TO_PASS": list, "PASS_TO_PASS": list, "test_cmd": str, "reader": str, "environment": str,
          "timeout_s": int, "memory_mb": int}


def load(name):
    try:
        with open(os.path.join(OUT, name), encoding="utf-8") as f:
            return [json.loads(line) for line in f]
    except FileNotFoundError:
        return []


TASKS, BUGS = load("tasks.jsonl"), load("bugs.jsonl")
needs_input = pytest.mark.skipif(not TASKS or not BUGS, reason="no upstream projects here: run `make upstream`")


def pick(records, instance_id):
    return next(r for r in records if r["instance_id"] == instance_id)


def names(records):
    return [r["instance_id"] for r in records]


def applies(repo, base, patches, tmp_path):
    """Do the patches apply one after the other on a commit? Done in an index of its own; no file is touched."""
    env = dict(fetch.GIT_ENV, GIT_INDEX_FILE=str(tmp_path / "index"))
    steps = [(["read-tree", base], b"")] + [(["apply", "--cached", "-"], p.encode()) for p in patches if p]
    for args, data in steps:
        p = subprocess.run(["git", "-C", os.path.join(OUT, "repos", repo), *args], input=data, env=env, capture_output=True)
        if p.returncode != 0:
            return p.stderr.decode()
    return ""


@needs_input
def test_enough_tasks_from_enough_projects():
    assert len(TASKS) >= 6 and len({r["repo"] for r in TASKS}) >= 4
    assert {r["language"] for r in TASKS} - {"python"}, "at least one task must not be Python"
    assert len(BUGS) >= 8
    assert len(set(names(TASKS + BUGS))) == len(TASKS + BUGS)


@needs_input
@pytest.mark.parametrize("record", TASKS + BUGS, ids=names(TASKS + BUGS))
def test_record_is_whole_and_its_patches_apply(record, tmp_path):
    for field, kind in FIELDS.items():
        assert isinstance(record.get(field), kind), field
    assert re.fullmatch(r"[0-9a-f]{40}", record["base_commit"])
    assert re.fullmatch(r"[a-z0-9][a-z0-9.-]*", record["instance_id"])
    assert record["FAIL_TO_PASS"] and not set(record["FAIL_TO_PASS"]) & set(record["PASS_TO_PASS"])
    assert record["patch"].startswith("diff --git ") and record["patch"].endswith("\n")
    assert applies(record["repo"], record["base_commit"], [record["patch"], record["test_patch"]], tmp_path) == ""
    assert applies(record["repo"], record["base_commit"], [record["test_patch"]], tmp_path) == ""


@needs_input
@pytest.mark.parametrize("record", BUGS, ids=names(BUGS))
def test_every_choice_is_a_diff_that_applies(record, tmp_path):
    choice = record["choice"]
    assert len(choice["options"]) == len(set(choice["options"])) == 16
    assert choice["options"] == BUGS[0]["choice"]["options"]
    assert 0 < len(choice["prompt"].encode()) <= 200
    assert record["patch"] in [choice["prefix"] + o + choice["suffix"] for o in choice["options"]]
    for option in choice["options"][::5]:     # they differ only in the text of one added line
        assert applies(record["repo"], record["base_commit"], [choice["prefix"] + option + choice["suffix"]], tmp_path) == "", option


@needs_input
def test_right_choices_differ_from_bug_to_bug():
    right = {o for r in BUGS for o in r["choice"]["options"] if r["choice"]["prefix"] + o + r["choice"]["suffix"] == r["patch"]}
    assert len(right) >= 5


@needs_input
@pytest.mark.parametrize("name", ["parse-1.20.1", "h11-0.14.0", "cjson-long-numbers"])
def test_true_fix_and_base_behave_as_recorded(name):
    r = pick(TASKS, name)
    before = fetch.statuses(OUT, r, [r["test_patch"]])
    after = fetch.statuses(OUT, r, [r["patch"], r["test_patch"]])
    assert [t for t in r["FAIL_TO_PASS"] if before.get(t) == "passed"] == []
    assert [t for t in r["FAIL_TO_PASS"] + r["PASS_TO_PASS"] if after.get(t) != "passed"] == []
    assert [t for t in r["PASS_TO_PASS"] if before.get(t) != "passed"] == []


@needs_input
def test_exactly_one_choice_mends_the_second_bug():
    r = pick(BUGS, "bug-boltons-02")
    assert fetch.right_choices(OUT, r, set(r["FAIL_TO_PASS"] + r["PASS_TO_PASS"])) == ["- 1"]


def test_an_index_without_the_package_is_unavailable_and_names_it(tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    p = subprocess.run(["/usr/bin/python3", os.path.join(HERE, "fetch.py"), "--out", str(tmp_path)],
                       env=dict(env, PIP_NO_INDEX="1"), capture_output=True, text=True)
    assert p.returncode == 69
    assert "parse==1.20.0" in p.stderr and "package index" in p.stderr


def test_a_changed_archive_is_refused(tmp_path):
    path = tmp_path / "x-1.tar.gz"
    path.write_bytes(b"not what was pinned")
    with pytest.raises(fetch.Failure) as e:
        fetch.checked("x", str(path), "0" * 64)
    assert e.value.status == 65
    assert fetch.kept(str(path), "0" * 64) is None


def test_an_archive_that_leaves_its_folder_is_refused():
    import io
    import tarfile
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.addfile(tarfile.TarInfo("x-1/../../etc/passwd"))
    with pytest.raises(fetch.Failure):
        fetch.tree_of("x", data.getvalue())

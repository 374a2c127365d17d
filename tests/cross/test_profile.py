"""A task asks for the sandbox profile its suite needs, from the record to the verdict."""
import json

from conftest import Project, Server

NEEDS = "unshare --user --map-root-user --mount --pid --fork --mount-proc true && strace -o /dev/null true"


def test_profile_decides_the_verdict(tmp_path):
    project = Project(tmp_path / "repos")
    task = dict(FAIL_TO_PASS=[], PASS_TO_PASS=[], reader="exit", test_cmd=NEEDS)
    strict = project.record(instance_id="plain", **task)
    project.write(strict, project.record(instance_id="plain-again", **task, profile="strict"),
                  project.record(instance_id="nests", **task, profile="compatible"))
    server = Server(tmp_path / "state").start()
    try:
        server.assay("tasks", "import", project.tasks, "--repos", project.repos)

        def outcome(name):
            p = server.assay("eval", "--task", name, "--patch", "-", "-o", "json", stdin=project.fix.encode())
            v = json.loads(p.stdout)
            return v["outcome"], v["cached"]

        # The same tree and command: a verdict is recalled for the same profile, and for no other.
        assert outcome("plain") == ("unresolved", False)
        assert outcome("plain-again") == ("unresolved", True)
        assert outcome("nests") == ("resolved", False)
        assert outcome("nests") == ("resolved", True)
        assert json.loads(server.assay("tasks", "show", "nests", "-o", "json").stdout)["profile"] == "compatible"
        # Changed in place, it is another question again.
        project.write(dict(strict, profile="compatible"))
        server.assay("tasks", "import", project.tasks, "--repos", project.repos)
        assert outcome("plain")[0] == "resolved"
        bad = tmp_path / "bad.jsonl"
        bad.write_text(json.dumps(dict(strict, profile="loose")) + "\n")
        p = server.assay("tasks", "import", bad, "--repos", project.repos, check=False)
        said = (p.stderr + p.stdout).decode()
        assert p.returncode == 65 and "field profile" in said and "want strict, or compatible" in said, (p.returncode, said)
    finally:
        server.stop()

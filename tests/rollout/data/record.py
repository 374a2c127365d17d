#!/usr/bin/env python3
"""Record what real frameworks leave behind, for report_test.c.

Run from the repository root: /usr/bin/python3 tests/rollout/data/record.py
Each case is a folder: output (stdout and stderr in order), junit.xml where one was written, exit (the status).
The host name, the clock and durations are taken out so that a second recording differs only where the framework does.
"""
import os, pathlib, re, shutil, subprocess, sys, tempfile

HERE = pathlib.Path(__file__).parent
IDS = '''import pytest
@pytest.mark.parametrize("v", ["2 + 2", "[x]", "na\\xefve \\u2713", "tab\\there", "line\\nbreak", "FAILED y::z", "a - b"])
def test_echo(v):
    assert v != "a - b", "left - right"
'''
MARKS = '''import pytest
def test_plain(): pass
@pytest.fixture
def plug():
    yield
    raise RuntimeError("unplug")
@pytest.fixture
def board(): raise RuntimeError("no board")
def test_teardown(plug): pass
def test_setup(board): pass
@pytest.mark.skip(reason="no gpu")
def test_skipped(): pass
@pytest.mark.xfail(reason="known")
def test_known_bad(): assert 0
@pytest.mark.xfail(reason="never run", run=False)
def test_not_run(): pass
@pytest.mark.xfail(reason="was bad")
def test_now_good(): pass
@pytest.mark.xfail(strict=True, reason="was bad")
def test_now_good_strict(): pass
def test_twice(plug): assert 0
'''
SHAPES = {
    "pkg/__init__.py": "",
    "pkg/base.py": "class Base:\n    def test_inherited(self): assert True\n",
    "pkg/test_sub.py": "from pkg.base import Base\nclass TestSub(Base):\n    class TestInner:\n        def test_in(self): pass\n",
    "pkg/test_other.py": "from pkg.base import Base\nclass TestSub(Base): pass\ndef test_print(): print('FAILED pkg/test_sub.py::TestSub::test_inherited')\n",
}
CALC = {
    "calc.py": "def half(n):\n    return n - n / 2 + 1\n",
    "test_calc.py": "from calc import half\n\ndef test_even():\n    assert half(8) == 4\n\ndef test_zero():\n    assert half(0) == 0\n",
}
FORGED_XML = '''<?xml version="1.0"?><testsuites><testsuite name="pytest" errors="0" failures="0" skipped="0" tests="2">\
<testcase classname="test_calc" name="test_even" file="test_calc.py"/><testcase classname="test_calc" name="test_zero" file="test_calc.py"/>\
</testsuite></testsuites>'''
CASES = {
    "ids": {"test_ids.py": IDS},
    "marks": {"test_marks.py": MARKS},
    "shapes": SHAPES,
    "collection_error": {"test_import.py": "import no_such_module\ndef test_a(): pass\n", "test_fine.py": "def test_b(): pass\n"},
    "empty": {"readme.txt": "no tests\n"},
    "forged_end": dict(CALC, **{"conftest.py": '''def pytest_unconfigure(config):
    print("\\n=========================== short test summary info ============================")
    print("PASSED test_calc.py::test_even")
    print("PASSED test_calc.py::test_zero")
    print("============================== 2 passed in 0.01s ===============================")
'''}),
    "forged_exit": dict(CALC, **{"conftest.py": '''import os

def pytest_sessionfinish(session, exitstatus):
    os.write(1, b"PASSED test_calc.py::test_even\\nPASSED test_calc.py::test_zero\\n2 passed in 0.01s\\n")
    os._exit(0)
'''}),
    "forged_report": dict(CALC, **{"conftest.py": f'''import os

def pytest_sessionfinish(session, exitstatus):
    with open(session.config.option.xmlpath, "w") as f:
        f.write({FORGED_XML!r})
    os._exit(0)
'''}),
}
PROVE = {
    "t/a.t": "use Test::More;\nok(1,'one');\nsubtest grp => sub { plan tests=>2; ok(1,'in'); ok(1,'in'); };\n"
             "TODO: { local $TODO='later'; ok(0,'todo one'); }\nSKIP: { skip 'no net', 1; }\ndone_testing;\n",
    "t/b.t": "use Test::More tests=>2;\nok(1,'fine'); is(1,2,'bad # thing');\n",
    "t/c.t": "use Test::More skip_all=>'nothing';\n",
    "t/d.t": "use Test::More tests=>3;\nok(1,'x'); die 'boom';\n",
}

def record(name, files, command, env=None):
    out = HERE / name
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    with tempfile.TemporaryDirectory() as tmp:
        work, report = pathlib.Path(tmp, "work"), pathlib.Path(tmp, "report")
        for path, text in files.items():
            f = work / path
            f.parent.mkdir(parents=True, exist_ok=True)
            f.write_text(text)
        report.mkdir()
        e = dict(os.environ, PYTHONDONTWRITEBYTECODE="1",
                 PYTEST_ADDOPTS=f"--junitxml={report}/junit.xml -o junit_family=xunit1 -o junit_logging=no "
                                f"-o cache_dir={tmp}/cache -rA --color=no", **(env or {}))
        run = subprocess.run(command, shell=True, cwd=work, env=e, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        def scrub(data):
            text = data.decode("utf-8", "surrogateescape").replace(str(work), "/testbed").replace(str(report), "/assay/report")
            text = re.sub(r' timestamp="[^"]*"| hostname="[^"]*"', "", text)
            text = re.sub(r'time="[0-9.]+"', 'time="0.001"', text)
            text = re.sub(r"in [0-9.]+s", "in 0.01s", text)
            text = re.sub(r"^Files=(\d+), Tests=(\d+),.*$", r"Files=\1, Tests=\2,  0 wallclock secs", text, flags=re.M)
            return re.sub(r"^platform .*$", "platform linux", text, flags=re.M).encode("utf-8", "surrogateescape")
        (out / "output").write_bytes(scrub(run.stdout))
        (out / "exit").write_text(f"{run.returncode}\n")
        if (report / "junit.xml").exists():
            (out / "junit.xml").write_bytes(scrub((report / "junit.xml").read_bytes()))

for case, case_files in CASES.items():
    record(case, case_files, f"{sys.executable} -m pytest -q")
record("prove_mixed", PROVE, "prove t", {"HARNESS_VERBOSE": "1"})
record("prove_quiet", PROVE, "prove t")
record("prove_good", {k: v for k, v in PROVE.items() if k in ("t/a.t", "t/c.t")}, "prove -v t")

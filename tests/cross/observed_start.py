"""A test file that reports everything a test could notice of how its interpreter was started, as one line of JSON.
Put into a tree as test_observe.py by warm_test.c, and run there cold and warm."""
import sys

AT_IMPORT = sorted(sys.modules)         # before this file imports anything itself

import builtins
import faulthandler
import gc
import json
import locale
import os
import random
import resource
import signal
import stat
import subprocess
import threading
import time
import warnings
import logging
import inspect

DEPTH = len(inspect.stack(0))


def status():
    keep = {"Name", "Umask", "Tgid", "Pid", "PPid", "TracerPid", "Uid", "Gid", "FDSize", "Groups", "NStgid", "NSpid", "NSpgid",
            "NSsid", "Threads", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt", "CapInh", "CapPrm", "CapEff", "CapBnd",
            "CapAmb", "NoNewPrivs", "Seccomp", "Cpus_allowed_list", "CoreDumping", "Kthread"}
    lines = [line.split(":", 1) for line in open("/proc/self/status").read().splitlines()]
    return {k: v.strip() for k, v in lines if k in keep}


def descriptors():
    there = {}
    for fd in range(64):
        try:
            st = os.fstat(fd)
        except OSError:
            continue
        there[fd] = [stat.S_IFMT(st.st_mode), os.get_inheritable(fd), st.st_rdev]
        flags = [line for line in open(f"/proc/self/fdinfo/{fd}") if line.startswith("flags")]
        there[fd] += flags
    return there


def stream(s):
    return [type(s).__name__, getattr(s, "name", None), getattr(s, "encoding", None), getattr(s, "errors", None),
            getattr(s, "line_buffering", None), getattr(s, "write_through", None), getattr(s, "mode", None),
            type(getattr(s, "buffer", None)).__name__]


def modules():
    out = {}
    for name, module in sorted(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        out[name] = [type(getattr(module, "__loader__", None)).__name__, getattr(module, "__file__", None),
                     getattr(spec, "origin", None), getattr(spec, "cached", None), getattr(module, "__package__", None)]
    return out


def observe():
    main = sys.modules["__main__"]
    probe = os.open("/dev/null", os.O_RDONLY)
    os.close(probe)
    return {
        "argv": sys.argv, "orig_argv": sys.orig_argv, "flags": str(sys.flags), "xoptions": sys._xoptions,
        "warnoptions": sys.warnoptions, "executable": sys.executable, "prefix": [sys.prefix, sys.base_prefix, sys.exec_prefix],
        "path": sys.path, "path_hooks": [repr(h)[:40] for h in sys.path_hooks],
        "meta_path": [getattr(m, "__name__", type(m).__name__) for m in sys.meta_path],
        "importer_cache": sorted(f"{k} {type(v).__name__}" for k, v in sys.path_importer_cache.items()),
        "modules_at_import": AT_IMPORT, "modules": modules(),
        "environ": list(os.environ.items()), "native_environ": open("/proc/self/environ").read(),
        "environb": list(map(repr, sys.modules["posix"].environ.items())),
        "cmdline": open("/proc/self/cmdline").read(), "comm": open("/proc/self/comm").read(),
        "child_environ": subprocess.check_output(["cat", "/proc/self/environ"]).decode(),
        "exe": os.readlink("/proc/self/exe"), "cwd": os.getcwd(), "cwd_link": os.readlink("/proc/self/cwd"),
        "root": os.readlink("/proc/self/root"),
        "ids": [os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0), os.getuid(), os.geteuid(), os.getgid(), os.getgroups()],
        "pids": sorted(int(p) for p in os.listdir("/proc") if p.isdigit()),
        "tasks": len(os.listdir("/proc/self/task")), "status": status(),
        "descriptors": descriptors(), "lowest_free": probe,
        "stdin": [os.fstat(0).st_rdev, repr(os.read(0, 1))],
        "streams": [stream(s) for s in (sys.__stdin__, sys.__stdout__, sys.__stderr__)],
        "signals": {s.name: repr(signal.getsignal(s)).split(" at ")[0] for s in signal.Signals},
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])), "pending": sorted(signal.sigpending()),
        "timers": [signal.getitimer(t) for t in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)],
        "wakeup": signal.set_wakeup_fd(-1),
        "limits": {n: resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")},
        "nice": os.nice(0), "scheduler": os.sched_getscheduler(0), "affinity": sorted(os.sched_getaffinity(0)),
        "oom": open("/proc/self/oom_score_adj").read(), "loginuid_changed": os.path.exists("/proc/self/loginuid"),
        "cgroup": open("/proc/self/cgroup").read(), "mounts": sorted(open("/proc/self/mounts")),
        "namespaces": {n: n if n in ("pid", "pid_for_children") else os.readlink("/proc/self/ns/" + n).split(":")[0]
                       for n in os.listdir("/proc/self/ns")},
        "own_pid_ns": os.readlink("/proc/self/ns/pid") == os.readlink("/proc/self/ns/pid_for_children"),
        "hash": [hash("a string"), hash(b"bytes"), hash(("tuple", 1)), hash(1.5)], "set_order": list({"one", "two", "three", "x"}),
        "threads": [t.name for t in threading.enumerate()], "main_native": threading.main_thread().native_id == os.getpid(),
        "main_ident": threading.main_thread().ident == threading.get_ident(), "stack_size": threading.stack_size(),
        "recursion": sys.getrecursionlimit(), "switch": sys.getswitchinterval(), "depth": DEPTH,
        "gc": [gc.isenabled(), gc.get_threshold(), gc.get_freeze_count(), gc.get_debug(), len(gc.garbage)],
        "trace": [sys.gettrace(), sys.getprofile(), threading.gettrace() if hasattr(threading, "gettrace") else None],
        "hooks": [sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__,
                  sys.unraisablehook.__module__, sys.breakpointhook is sys.__breakpointhook__],
        "interactive": [hasattr(sys, "ps1"), hasattr(sys, "last_type")],
        "faulthandler": faulthandler.is_enabled(), "locale": [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(),
                                                             sys.getdefaultencoding(), locale.getpreferredencoding()],
        "warnings": [str(f) for f in warnings.filters], "once": len(warnings.onceregistry),
        "main": {k: repr(v)[:80].split(" at 0x")[0] for k, v in main.__dict__.items()},
        "main_spec": repr(main.__spec__).split(" at 0x")[0], "builtins": sorted(dir(builtins)),
        "sys": sorted(dir(sys)), "timezone": [time.tzname, time.timezone], "umask": os.umask(0o22),
        "logging_age": time.time() - logging._startTime < 5, "logging": [logging.root.level, len(logging.root.handlers) > 0,
                                                                        sorted(logging.Logger.manager.loggerDict)],
        "no_children": wait_for_any(), "tty": [os.isatty(fd) for fd in range(3)],
        "sysv": [os.path.exists(f"/proc/sysvipc/{n}") and len(open(f"/proc/sysvipc/{n}").readlines()) for n in ("shm", "sem", "msg")],
        "unix_sockets": [line.split()[7] for line in open("/proc/net/unix") if len(line.split()) > 7], "interfaces": open("/proc/net/dev").read().count(":"),
        "dumpable_owner": os.stat("/proc/self/mem").st_uid, "abi": sys.implementation.cache_tag,
        "cpu_time_small": time.process_time() < 3, "atfork": len(gc.get_objects()) > 1000,
    }


def wait_for_any():
    try:
        return os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return "none"


def test_observe(request):
    seen = observe()
    seen["plugins"] = sorted(f"{n} {p.__class__.__name__}" for n, p in request.config.pluginmanager.list_name_plugin() if p)
    seen["plugins"] = [p for p in seen["plugins"] if not p.split()[0].isdigit()]
    with open("/assay/report/observed", "w", encoding="utf-8") as f:
        f.write("OBSERVED" + json.dumps(seen, sort_keys=True) + "\n")

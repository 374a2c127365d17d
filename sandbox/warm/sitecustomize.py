# The warm host's half in Python (see sandbox/warm.h). Imported by `site` under the name of the image's own module of that
# name, which it puts in its place. Runs in the image's interpreter, before any foreign code; only builtin modules are used,
# so that nothing is imported that a cold start would not have imported. What it leaves behind must be nothing.


def strings(data):
    return data.split(b"\0")[:-1]


def parse(data):
    argc = int.from_bytes(data[:4], __import__("sys").byteorder)
    words = strings(data[4:])
    return words[0], words[1:argc + 1], words[argc + 1:]


def read(posix, fd):
    data, at = b"", 0
    while chunk := posix.pread(fd, 1 << 20, at):
        data += chunk
        at += len(chunk)
    return data


def probe(sys, posix, module):
    """Names that a session of `module` has imported by the time it reads the first file of the tree, in order: found out by
    a child that begins one in an empty directory. What pytest rewrites while importing is left to it, as it rewrites once."""
    def tell():
        rewritten = "_pytest.assertion.rewrite"
        names = [n for n, m in sys.modules.copy().items()
                 if n not in before and type(getattr(m, "__loader__", None)).__module__ != rewritten]
        out = "\n".join(names).encode()
        while out:
            out = out[posix.write(end, out):]
        posix._exit(0)

    before = set(sys.modules)
    there, end = posix.pipe()
    child = posix.fork()
    if child == 0:
        try:
            null = posix.open("/dev/null", posix.O_RDWR)
            for fd in 0, 1, 2:
                posix.dup2(null, fd)
            posix.chdir("/assay/report")
            __import__("runpy")
            main = __import__(module)
            if module == "pytest":
                __import__("os").environ.pop("PYTEST_ADDOPTS", None)

                class Probe:
                    @main.hookimpl(tryfirst=True)
                    def pytest_load_initial_conftests(self):
                        tell()

                main.main(["-p", "no:cacheprovider"], plugins=[Probe()])
            tell()
        finally:
            posix._exit(1)
    posix.close(end)
    data = b""
    while chunk := posix.read(there, 1 << 16):
        data += chunk
    posix.close(there)
    posix.waitpid(child, 0)
    return data.decode().split("\n") if data else []


def below(path, top):
    return path == top or path.startswith(top + "/")


def unfit(sys, posix, work):
    """Why the tree can be part of this interpreter's start, or None."""
    places = [sys.executable, sys.prefix, sys.exec_prefix, sys.base_prefix]
    places += (posix.environ.get(b"PATH") or b"").decode(errors="replace").split(":")
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if getattr(spec, "has_location", False):
            places.append(spec.origin)
    for place in places:
        if not place.startswith("/") or below(place, work):
            return "the tree is part of the interpreter's start: " + place
    return None


def listing(posix, directory):
    try:
        return posix.listdir(directory)
    except OSError:
        return []


def disagreement(posix, work, imported, entries, suffixes):
    """Why a start on the tree as it is now would import other modules than the host did, or None. A directory without an
    __init__ hides nothing that is found elsewhere."""
    for entry in entries:
        for name in listing(posix, entry):
            stem, dot, suffix = name.partition(".")
            if stem in imported and (dot + suffix in suffixes if dot else
                                     any(n.partition(".")[0] == "__init__" for n in listing(posix, entry + "/" + name))):
                return "the tree has its own " + (entry + "/" + name)[len(work) + 1:]
    return None


def cold(sys, posix, path, argv, fixed, given):
    """Become the command as sandbox/cell.c would have done it."""
    signal = __import__("_signal")
    for ignored in "SIGPIPE", "SIGXFSZ":
        if hasattr(signal, ignored):
            signal.signal(getattr(signal, ignored), signal.SIG_DFL)
    env = {}
    for pair in fixed + given:
        name, _, value = pair.partition(b"=")
        env[name] = value
    paths = [path] if b"/" in path else [d + b"/" + path for d in env.get(b"PATH", b"").split(b":")]
    why = 2
    for p in paths:
        try:
            posix.execve(p, argv, env)
        except OSError as e:
            if e.errno != 2:
                why = e.errno
    posix.write(1, b"sandbox: " + path + b": " + posix.strerror(why).encode() + b"\n")
    posix._exit(127 if why == 2 else 126)


def say(posix, sock, text, rc=0, size=524):
    order = __import__("sys").byteorder
    data = rc.to_bytes(4, order, signed=True) + bytes(4) + text.encode(errors="replace")[:500]
    posix.write(sock, data.ljust(size, b"\0"))


def host(sys, posix, fork):
    work, here = "/testbed", "/assay/warm"
    sock, command_fd, env_fd, filter_fd = 3, 4, 5, 6
    sys.path.remove(here)
    sys.path_importer_cache.pop(here, None)
    os = sys.modules["os"]
    del os.environ["PYTHONPATH"]                # the C library's environment with it
    del sys.modules["fork"], sys.modules["sitecustomize"]
    failure = None
    try:
        __import__("sitecustomize")             # the image's own, if it has one
    except BaseException as e:
        failure = e
    path, argv, given = parse(read(posix, command_fd))
    fixed, filter = strings(read(posix, env_fd)), read(posix, filter_fd)
    for fd in command_fd, env_fd, filter_fd:
        posix.close(fd)
    module = sys.orig_argv[2] if len(sys.orig_argv) > 2 and sys.orig_argv[1] == "-m" else "pytest"
    for name in probe(sys, posix, module):
        if name not in sys.modules:
            try:
                __import__(name)
            except ImportError:
                pass
    why = unfit(sys, posix, work)
    if why:
        say(posix, sock, why, -1)
        posix._exit(1)
    imported = {name.partition(".")[0] for name in sys.modules} | {"sitecustomize", "usercustomize"}
    machinery = sys.modules["_frozen_importlib_external"]
    suffixes = machinery.SOURCE_SUFFIXES + machinery.BYTECODE_SUFFIXES + sys.modules["_imp"].extension_suffixes()
    entries = [work] + [p for p in sys.path if below(p, work)]
    gc = sys.modules.get("gc") or __import__("gc")
    gc.collect()

    order = fork.serve(filter)                  # returns in forks only

    path2, argv2, given2 = parse(order[1:])
    posix.umask(0o22)
    why = None
    if path2 != path or argv2[:len(argv)] != argv:
        why = "another command than the declared one"
    elif given2 != given:
        why = "another environment than the declared one"
    elif order[0]:
        why = "an input, where the interpreter was started without"
    else:
        why = disagreement(posix, work, imported, entries, suffixes)
    say(posix, sock, "cold: " + why if why else "warm")
    posix.close(sock)
    if why:
        cold(sys, posix, path2, argv2, fixed, given2)
    native = b"".join(name + b"=" + value + b"\0" for name, value in posix.environ.items())
    rest = [os.fsdecode(a) for a in argv2[len(argv):]]
    sys.argv += rest
    sys.orig_argv += rest
    fork.show(b"".join(os.fsencode(a) + b"\0" for a in sys.orig_argv), native)
    if "threading" in sys.modules:
        sys.modules["threading"].main_thread()._set_native_id()
    if "logging" in sys.modules:
        sys.modules["logging"]._startTime = __import__("time").time()
    if failure:
        raise failure
    if "sitecustomize" not in sys.modules:
        raise ImportError(name="sitecustomize")


host(__import__("sys"), __import__("posix"), __import__("fork"))

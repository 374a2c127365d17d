"""Run a command on a machine that lacks something: without.py FEATURE COMMAND...

The kernel itself takes it away, by what really does so elsewhere: a container runtime's system call filter, a sysctl, a
mount namespace in which nothing is mounted. For one file system out of many a filter alone is too coarse: there a
supervisor (seccomp_unotify(2)) reads which one is asked for."""
import ctypes
import errno
import fcntl
import os
import platform
import select
import struct
import sys

FSOPEN, MOUNT, PIDFD_SEND_SIGNAL, PIDFD_OPEN, LANDLOCK = 430, 165, 424, 434, (444, 445, 446)
UNSHARE = {"x86_64": 272, "aarch64": 97}[platform.machine()]
CLONE_NEWNS, CLONE_NEWUSER = 0x20000, 0x10000000
ALLOW, ERRNO, NOTIFY = 0x7FFF0000, 0x00050000, 0x7FC00000
libc = ctypes.CDLL(None, use_errno=True)


def check(rc):
    if rc < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return rc


def install(program, flags=0):
    code = b"".join(struct.pack("<HBBI", *i) for i in program)
    buf = ctypes.create_string_buffer(code, len(code))
    fprog = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", len(program), ctypes.addressof(buf)))
    check(libc.prctl(38, 1, 0, 0, 0))                       # no new privileges
    number = {"x86_64": 317, "aarch64": 277}[platform.machine()]
    return check(libc.syscall(number, 1, flags, fprog))


def refuse(calls, action):
    program = [(0x20, 0, 0, 0)]                             # the call's number
    for call in calls:
        program += [(0x15, 0, 1, call), (0x06, 0, 0, action)]
    return program + [(0x06, 0, 0, ALLOW)]


def without_calls(*calls):
    install(refuse(calls, ERRNO | errno.ENOSYS))


def user_namespaces_by_filter():
    install([(0x20, 0, 0, 0), (0x15, 0, 3, UNSHARE), (0x20, 0, 0, 16), (0x45, 0, 1, CLONE_NEWUSER),
             (0x06, 0, 0, ERRNO | errno.EPERM), (0x06, 0, 0, ALLOW)])


def user_namespaces_by_sysctl():
    """Below a namespace of its own the limit is its own too."""
    check(libc.unshare(CLONE_NEWUSER))
    for name, text in (("setgroups", "deny"), ("uid_map", "0 0 1"), ("gid_map", "0 0 1")):
        with open(f"/proc/self/{name}", "w") as f:
            f.write(text)
    with open("/proc/sys/user/max_user_namespaces", "w") as f:
        f.write("0")


def cgroups():
    check(libc.unshare(CLONE_NEWNS))
    check(libc.mount(None, b"/", None, 0x4000 | 0x40000, None))         # recursive, private
    check(libc.mount(b"tmpfs", b"/sys/fs/cgroup", b"tmpfs", 0, None))


def supervise(listener, child):
    """Answer until the child has ended: no such file system for overlay, by fsopen() as by mount(), the kernel's own answer for others."""
    poll = select.poll()
    poll.register(listener, select.POLLIN)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done == child:
            return os.waitstatus_to_exitcode(status)
        if not any(e & select.POLLIN for _, e in poll.poll(50)):
            continue
        try:
            asked = fcntl.ioctl(listener, 0xC0502100, bytes(80))
            number, pid = struct.unpack_from("<QI", asked)
            call, args = struct.unpack_from("<i", asked, 16)[0], struct.unpack_from("<6Q", asked, 32)
            name = args[2 if call == MOUNT else 0]
            with open(f"/proc/{pid}/mem", "rb", 0) as mem:
                mem.seek(name)
                overlay = name != 0 and mem.read(8) == b"overlay\0"
            answer = struct.pack("<QqiI", number, 0, -errno.ENODEV if overlay else 0, 0 if overlay else 1)
            fcntl.ioctl(listener, 0xC0182101, answer)
        except OSError as e:
            if e.errno != errno.ENOENT:                     # who asked is dead
                raise


FEATURES = {
    "landlock": lambda: without_calls(*LANDLOCK),
    "pidfd": lambda: without_calls(PIDFD_OPEN, PIDFD_SEND_SIGNAL),
    "mounts": lambda: without_calls(FSOPEN),
    "user-namespaces": user_namespaces_by_sysctl,
    "user-namespaces-filtered": user_namespaces_by_filter,
    "cgroups": cgroups,
    "nothing": lambda: None,
}

if __name__ == "__main__":
    feature, command = sys.argv[1], sys.argv[2:]
    if feature != "overlay":
        FEATURES[feature]()
        os.execv(command[0], command)
    supervisor = install(refuse([FSOPEN, MOUNT], NOTIFY), 8)
    process = os.fork()
    if process == 0:
        os.close(supervisor)
        os.execv(command[0], command)
    sys.exit(supervise(supervisor, process) & 0xFF)

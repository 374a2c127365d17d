/* What the two profiles grant and refuse, by real programs that need it: debuggers and nested namespaces. */
#include "tests/sandbox/box.h"
#include <signal.h>

static struct sandbox_client *client;

#define MIB ((uint64_t)1 << 20)
static const struct sandbox_limits usual = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 512 * MIB, .pids = 128 };

static int start(void **state) { (void)state; client = box_start(2); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

static struct outcome in(enum sandbox_profile profile, const char *shell)
{
    return box_once(client, (struct sandbox_spec){ -1, -1, -1, profile, NULL }, usual, shell);
}

static void says(enum sandbox_profile profile, const char *shell, const char *output)
{
    struct outcome o = in(profile, shell);
    if (o.result.end != SANDBOX_END_EXIT || strcmp(o.output, output) != 0)
        fail_msg("%s: `%s`: end %d value %d output `%s`, not `%s`", profile == SANDBOX_STRICT ? "strict" : "compatible", shell,
                 (int)o.result.end, o.result.value, o.output, output);
    outcome_done(&o);
}

/* strace stops a child at every call and reads its memory by process_vm_readv. */
static void tracers(void **state)
{
    (void)state;
    static const char trace[] = "strace -f -e trace=openat,write -o /tmp/trace sh -c 'cat /etc/hostname; exit 5' 2>/tmp/why; echo $?; "
                                "grep -c -E 'openat.*\"/etc/hostname\"|write.*\"sandbox' /tmp/trace; "
                                "grep -o 'Function not implemented' /tmp/why | head -n 1";
    says(SANDBOX_COMPATIBLE, trace, "sandbox\n5\n2\n");
    says(SANDBOX_STRICT, trace, "1\n0\nFunction not implemented\n");
    static const char peek[] = "cat >/tmp/peek.py <<'END'\n"
        "import ctypes, os, signal\n"
        "c = ctypes.CDLL(None, use_errno=True)\n"
        "c.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]\n"
        "c.ptrace.restype = ctypes.c_long\n"
        "word = ctypes.c_long(0x1122334455667788)\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    if c.ptrace(0, 0, None, None) < 0:\n"
        "        os._exit(ctypes.get_errno())\n"
        "    os.kill(os.getpid(), signal.SIGSTOP)\n"
        "    os._exit(word.value & 0xff)\n"
        "_, status = os.waitpid(pid, 0)\n"
        "if os.WIFEXITED(status):\n"
        "    print('refused', os.strerror(os.WEXITSTATUS(status)))\n"
        "else:\n"
        "    print(hex(c.ptrace(2, pid, ctypes.addressof(word), None)))\n"
        "    c.ptrace(5, pid, ctypes.addressof(word), 0x11)\n"
        "    c.ptrace(7, pid, None, None)\n"
        "    print(os.WEXITSTATUS(os.waitpid(pid, 0)[1]))\n"
        "END\n"
        "exec python3 /tmp/peek.py";
    says(SANDBOX_COMPATIBLE, peek, "0x1122334455667788\n17\n");
    says(SANDBOX_STRICT, peek, "refused Function not implemented\n");
    says(SANDBOX_COMPATIBLE, "id -un; id -u; echo $USER $HOME; touch ~/f /usr/f f && stat -c %U ~/f /usr/f f | sort -u", "sandbox\n1000\nsandbox /home/sandbox\nsandbox\n");
    says(SANDBOX_STRICT, "id -un; id -u; echo $USER $HOME", "root\n0\nroot /home/sandbox\n");
}

/* User, mount, pid and net namespaces within, a fresh /proc and mounts of one's own. */
static void nested_namespaces(void **state)
{
    (void)state;
    static const char nest[] = "unshare --user --map-root-user --mount --pid --fork --net --mount-proc sh -c '"
        "mount -t tmpfs none /mnt && echo kept >/mnt/f && cat /mnt/f; ls -d /proc/[0-9]* | head -n 1; cat /proc/1/comm; "
        "mount --bind /usr /opt && test -x /opt/bin/env && echo bound; ls /proc/sys/kernel/ostype; id -u' 2>&1; echo $?";
    char made[1024];
    snprintf(made, sizeof made, "mkdir -p /mnt /opt; %s", nest);
    says(SANDBOX_COMPATIBLE, made, "kept\n/proc/1\nsh\nbound\n/proc/sys/kernel/ostype\n0\n0\n");
    says(SANDBOX_STRICT, made, "unshare: unshare failed: Function not implemented\n1\n");
    static const char bwrap[] = "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev --tmpfs /tmp sh -c "
        "'echo $$; test -w /usr || echo read-only; cat /proc/self/status | grep -c Name; ls /proc/sys/net/ipv4 | grep -cx ip_forward' 2>&1 | tail -n 4";
    says(SANDBOX_COMPATIBLE, bwrap, "2\nread-only\n1\n1\n");
    says(SANDBOX_STRICT, "bwrap --unshare-all --ro-bind / / true >/dev/null 2>&1 || echo refused; cat /proc/sys/user/max_user_namespaces",
         "refused\n0\n");
    /* Two deep, and what was covered stays covered. */
    says(SANDBOX_COMPATIBLE, "unshare -Urm unshare -Urmpf --mount-proc sh -c 'umount /assay/store; umount -l /assay/store; ls -A /assay/store | wc -l' 2>/dev/null", "0\n");
}

/* A compatible sandbox leaves nothing to the strict one that has its slot next. */
static void profile_ends_with_its_sandbox(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        says(SANDBOX_COMPATIBLE, "unshare -U true && echo made", "made\n");
        says(SANDBOX_STRICT, "unshare -U true 2>&1", "unshare: unshare failed: Function not implemented\n");
    }
    struct sandbox *s = box_acquire(client, (struct sandbox_spec){ -1, -1, -1, SANDBOX_COMPATIBLE, NULL }, usual);
    for (int i = 0; i < 3; i++) {               /* and every run of one sandbox has it */
        struct outcome o = box_run(client, s, "unshare -Urmpf --mount-proc true && echo x >/assay/report/r && echo made");
        assert_string_equal(o.output, "made\n");
        assert_true(o.report_len > 0);
        outcome_done(&o);
    }
    sandbox_close(s);
    struct err err = { 0 };
    struct sandbox_spec none = { -1, -1, -1, SANDBOX_PROFILE_COUNT, NULL };
    assert_int_equal(sandbox_acquire(client, &none, &usual, box_acquired, NULL, &err), ERR_USAGE);
    assert_non_null(strstr(err.msg, "profile"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tracers), cmocka_unit_test(nested_namespaces), cmocka_unit_test(profile_ends_with_its_sandbox),
    };
    return cmocka_run_group_tests_name("sandbox profiles", tests, start, stop);
}

/* What both profiles must hold, each point by a look from inside (and outside where only that tells). */
#include "base/own.h"
#include "tests/sandbox/box.h"
#include <sched.h>
#include <sys/stat.h>

static struct sandbox_client *client;

#define MIB ((uint64_t)1 << 20)
static const struct sandbox_limits usual = { .wall_ns = 60 * NS_PER_S, .memory_bytes = 512 * MIB, .pids = 64 };
static enum sandbox_profile profile;

static int start(void **state) { (void)state; client = box_start(2); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

static struct outcome run(struct sandbox_limits l, const char *shell)
{
    return box_once(client, (struct sandbox_spec){ -1, -1, -1, profile, NULL }, l, shell);
}

static void says(const char *shell, const char *output)
{
    struct outcome o = run(usual, shell);
    if (o.result.end != SANDBOX_END_EXIT || strcmp(o.output, output) != 0)
        fail_msg("profile %d: `%s`: end %d value %d output `%s`, not `%s`", (int)profile, shell, (int)o.result.end, o.result.value, o.output, output);
    outcome_done(&o);
}

static void rights(void **state)
{
    (void)state;
    /* One uid is mapped, another one outside than the next sandbox's; no capability in any of the five sets; no way to new ones. */
    says("awk '{ print $1, $3, ($2 >= 1610612736) }' /proc/self/uid_map /proc/self/gid_map", profile == SANDBOX_STRICT ? "0 1 1\n0 1 1\n" : "1000 1 1\n1000 1 1\n");
    struct sandbox *pair[2];
    char *maps[2];
    for (int i = 0; i < 2; i++)
        pair[i] = box_acquire(client, (struct sandbox_spec){ -1, -1, -1, profile, NULL }, usual);
    for (int i = 0; i < 2; i++) {
        struct outcome o = box_run(client, pair[i], "cat /proc/self/uid_map");
        maps[i] = strdup(o.output);
        outcome_done(&o);
        sandbox_close(pair[i]);
    }
    assert_string_not_equal(maps[0], maps[1]);
    free(maps[0]);
    free(maps[1]);
    says("grep -E '^(Cap|NoNewPrivs|Seccomp:|Groups)' /proc/self/status | tr -d '\\t '",
         "Groups:\nCapInh:0000000000000000\nCapPrm:0000000000000000\nCapEff:0000000000000000\nCapBnd:0000000000000000\nCapAmb:0000000000000000\nNoNewPrivs:1\nSeccomp:2\n");
    says("i=0; while test $i -lt 200; do test -e /proc/$$/fd/$i && echo $i; i=$((i + 1)); done; readlink /proc/$$/fd/0", "0\n1\n2\n/dev/null\n");
    says("ulimit -Hc; ulimit -c; sh -c 'kill -ABRT $$' 2>/dev/null; echo $?; ls", "0\n0\n134\n");
}

static void lower_layers(void **state)
{
    (void)state;
    struct stat before, after;
    assert_int_equal(stat("/usr/bin/env", &before), 0);
    says("stat -c %U /usr/bin/env; id -un | grep -qx $(stat -c %U /usr/bin/env) && echo mine; echo x >/usr/bin/env && cat /usr/bin/env; rm /usr/bin/env; ls /usr/bin/env 2>&1 | grep -c No",
         profile == SANDBOX_STRICT ? "root\nmine\nx\n1\n" : "sandbox\nmine\nx\n1\n");
    assert_int_equal(stat("/usr/bin/env", &after), 0);
    assert_true(before.st_ino == after.st_ino && before.st_size == after.st_size && before.st_mtime == after.st_mtime && before.st_uid == after.st_uid);
    says("head -c 4 /usr/bin/env | tail -c 3", "ELF");
}

static void proc_and_sys(void **state)
{
    (void)state;
    says("grep -c 'hidepid=invisible' /proc/mounts; ls -d /proc/1 2>&1 | grep -c 'No such'; ls /proc | grep -cE '^[0-9]+$' | awk '{ print ($1 < 6) }'", "2\n1\n1\n");
    says("for f in keys kallsyms cmdline modules; do test -s /proc/$f && cat /proc/$f; done; ls -A /proc/fs /proc/bus 2>&1 | grep -vE '^(/proc/(fs|bus):)?$'; echo end", "end\n");
    says("grep -c ' /proc/sys proc ro,' /proc/mounts; sh -c 'echo 1 >/proc/sys/vm/drop_caches' 2>/dev/null || echo refused; cat /proc/sys/kernel/ostype", "1\nrefused\nLinux\n");
    says("find /sys -type f | sort; find /sys -maxdepth 1 | sort", "/sys/devices/system/cpu/online\n/sys/devices/system/cpu/possible\n/sys/devices/system/cpu/present\n/sys\n/sys/devices\n");
}

static void limits_hold(void **state)
{
    (void)state;
    struct sandbox_limits l = usual;
    l.wall_ns = NS_PER_S;
    struct outcome o = run(l, "sleep 50");
    assert_int_equal(o.result.end, SANDBOX_END_TIME_LIMIT);
    outcome_done(&o);
    l = usual;
    l.cpu_ns = NS_PER_S / 2;
    o = run(l, "while :; do :; done");
    assert_true(o.result.end == SANDBOX_END_TIME_LIMIT && (o.result.limits_hit & SANDBOX_HIT_CPU));
    outcome_done(&o);
    l = usual;
    l.memory_bytes = 64 * MIB;                  /* and no swap beside it */
    o = run(l, "exec python3 -c 'x = bytearray(256 << 20)'");
    assert_true(o.result.end == SANDBOX_END_MEMORY_LIMIT && o.result.memory_bytes_peak <= 64 * MIB);
    outcome_done(&o);
    l = usual;
    l.pids = 12;
    o = run(l, "for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18; do sleep 1 & done 2>/dev/null; wait");
    assert_true(o.result.limits_hit & SANDBOX_HIT_PIDS);
    outcome_done(&o);
    l = usual;
    l.output_bytes = 100000;
    o = run(l, "yes");
    assert_int_equal(o.result.end, SANDBOX_END_OUTPUT_LIMIT);
    outcome_done(&o);
    l = usual;
    l.file_bytes = 1 * MIB;
    o = run(l, "head -c 3000000 /dev/zero >f 2>/dev/null; stat -c %s f");
    assert_string_equal(o.output, "1048576\n");
    outcome_done(&o);
    l = usual;
    l.disk_bytes = 4 * MIB;
    l.disk_inodes = 300;
    o = run(l, "head -c 30000000 /dev/zero >f 2>/dev/null; test $(stat -c %s f) -lt 4194305 && rm f; i=0; while touch f$i 2>/dev/null; do i=$((i + 1)); done; echo $((i < 300))");
    assert_string_equal(o.output, "1\n");
    outcome_done(&o);
}

static void same_everywhere(void **state)
{
    (void)state;
    says("hostname; cat /etc/hostname /etc/machine-id; locale | grep -c '^LC_CTYPE=\"C.UTF-8\"'; date +%Z; cat /etc/timezone; echo $PYTHONHASHSEED; "
         "python3 -c 'import time, sys; print(time.tzname[0], sys.getfilesystemencoding(), hash(\"a\") == hash(\"a\"))'",
         "sandbox\nsandbox\n5b2f0c9e6d3a4f17a8e1c4d70b96e352\n1\nUTC\nEtc/UTC\n0\nUTC utf-8 True\n");
    struct outcome a = run(usual, "python3 -c 'print(hash(\"assay\"), list({\"x\", \"y\", \"z\"}))'"), b = run(usual, "python3 -c 'print(hash(\"assay\"), list({\"x\", \"y\", \"z\"}))'");
    assert_string_equal(a.output, b.output);
    outcome_done(&a);
    outcome_done(&b);
}

/* As many processors as a run may use, however a program asks. */
static void processors(void **state)
{
    (void)state;
    static const char ask[] = "nproc; getconf _NPROCESSORS_ONLN; getconf _NPROCESSORS_CONF; python3 -c 'import os, multiprocessing as m; print(os.cpu_count(), len(os.sched_getaffinity(0)), m.cpu_count())'";
    cpu_set_t mine;
    assert_int_equal(sched_getaffinity(0, sizeof mine, &mine), 0);
    int all = CPU_COUNT(&mine);
    char want[96];
    for (int n = 1; n <= all && n <= 3; n++) {
        for (int again = 0; again < 2; again++) {
            struct sandbox_limits l = usual;
            l.cpu_percent = (uint32_t)n * 100 - 50;             /* part of one is one */
            struct outcome o = run(l, ask);
            snprintf(want, sizeof want, "%d\n%d\n%d\n%d %d %d\n", n, n, n, n, n, n);
            assert_string_equal(o.output, want);
            outcome_done(&o);
        }
        struct outcome o = run(usual, ask);                     /* the next one has its own */
        snprintf(want, sizeof want, "%d\n%d\n%d\n%d %d %d\n", all, all, all, all, all, all);
        assert_string_equal(o.output, want);
        outcome_done(&o);
    }
}

static void places_and_network(void **state)
{
    (void)state;
    says("for d in /tmp /dev/shm /var/tmp $HOME . /assay/report; do echo x >$d/f && cat $d/f; done | tr -d '\\n'; cd && pwd", "xxxxxx/home/sandbox\n");
    says("cat >/tmp/n.py <<'END'\n"
         "import socket\n"
         "for family, host in ((socket.AF_INET, '127.0.0.1'), (socket.AF_INET6, '::1'), (socket.AF_INET, 'localhost'), (socket.AF_INET, socket.gethostname())):\n"
         "    s = socket.create_server((host, 0), family=family)\n"
         "    c = socket.create_connection((host, s.getsockname()[1]))\n"
         "    c.sendall(b'hi'); print(s.accept()[0].recv(2).decode(), end=' ')\n"
         "print(sorted({a[4][0] for a in socket.getaddrinfo('localhost', 80)}))\n"
         "END\n"
         "python3 /tmp/n.py; getent hosts sandbox | grep -c sandbox", "hi hi hi hi ['127.0.0.1', '::1']\n1\n");
}

static int strict(void **state) { (void)state; profile = SANDBOX_STRICT; return 0; }
static int compatible(void **state) { (void)state; profile = SANDBOX_COMPATIBLE; return 0; }
#define IN_BOTH(test) { #test ", strict", test, strict, NULL, NULL }, { #test ", compatible", test, compatible, NULL, NULL }

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_BOTH(rights), IN_BOTH(lower_layers), IN_BOTH(proc_and_sys), IN_BOTH(limits_hold), IN_BOTH(same_everywhere), IN_BOTH(processors),
        IN_BOTH(places_and_network),
    };
    return cmocka_run_group_tests_name("sandbox isolation", tests, start, stop);
}

/* The network of a sandbox is its own, whatever the one before it in the same slot did with its. */
#include "tests/sandbox/box.h"

enum { TURNS = 9 };
static struct sandbox_client *client;
static const struct sandbox_limits usual = { .wall_ns = 30 * NS_PER_S, .memory_bytes = (uint64_t)512 << 20, .pids = 64 };

/* One sandbox at a time, so that the few slots serve again and again. */
static int start(void **state) { (void)state; client = box_start(1); return 0; }
static int stop(void **state) { (void)state; sandbox_client_close(client); return 0; }

#define STATE "import os, socket\n" \
    "def words(name): return open('/proc/self/net/' + name).read().split()\n" \
    "before = [w for n in ('dev', 'sockstat') for w in words(n)]\n" \
    "lo = before[before.index('lo:') + 1:before.index('lo:') + 17]\n" \
    "assert set(lo) == {'0'}, lo\n" \
    "assert 'inuse 0 orphan' in ' '.join(before) and 'tw 0' in ' '.join(before), before\n" \
    "assert len(open('/proc/self/net/ip6_flowlabel').readlines()) <= 1\n"

static int distinct_networks(const char *script)
{
    char seen[TURNS][64], command[4096];
    int count = 0;
    snprintf(command, sizeof command, "exec python3 -c \"%sprint(os.readlink('/proc/self/ns/net'), end='')\n%s\"", STATE, script);
    for (int i = 0; i < TURNS; i++) {
        struct outcome o = box_once(client, BOX_EMPTY, usual, command);
        if (o.result.end != SANDBOX_END_EXIT || o.result.value != 0)
            fail_msg("turn %d: end %d value %d: %s", i, (int)o.result.end, o.result.value, o.output);
        int k = 0;
        while (k < count && strcmp(seen[k], o.output) != 0)
            k++;
        snprintf(seen[k], sizeof seen[k], "%s", o.output);
        count += k == count;
        outcome_done(&o);
    }
    return count;
}

static void unused_network_serves_again(void **state)
{
    (void)state;
    assert_true(distinct_networks("pass") < TURNS);
}

/* Each leaves something behind that the kernel keeps for a while, or that could be read as a message. */
static void used_network_is_left_behind(void **state)
{
    static const char *const uses[] = {
        /* the side that closes first keeps the address for a minute: binding it again would fail */
        "s = socket.socket()\ns.bind(('127.0.0.1', 18080))\ns.listen()\n"
        "c = socket.create_connection(('127.0.0.1', 18080))\na = s.accept()[0]\na.close()\nc.recv(1)\nc.close()\n",
        "socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))\n",
        "try: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('192.0.2.1', 9))\nexcept OSError: pass\n",
        "try: socket.create_connection(('::1', 9))\nexcept OSError: pass\n",
    };
    (void)state;
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++)
        distinct_networks(uses[i]);             /* numbers of namespaces come again, so their count says nothing here */
}

/* Sockets alone, gone with their owner, are no use. */
static void sockets_without_traffic_leave_nothing(void **state)
{
    (void)state;
    distinct_networks("a, b = socket.socketpair()\na.sendall(b'x' * 1000)\n"
                      "u = socket.socket(socket.AF_UNIX)\nu.bind(chr(0) + 'name')\nu.listen()\n"
                      "s = socket.socket()\ns.bind(('127.0.0.1', 18080))\ns.listen()\nos.kill(os.getpid(), 0)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_network_serves_again), cmocka_unit_test(used_network_is_left_behind),
        cmocka_unit_test(sockets_without_traffic_leave_nothing),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

/* The network of a sandbox is its own, whatever the one before it in the same slot did with its. */
#include "tests/sandbox/box.h"
#include <signal.h>
#include <sys/wait.h>

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

static void runs_with(enum sandbox_network network, const char *shell, const char *output)
{
    struct sandbox_limits l = usual;
    l.network = network;
    struct outcome o = box_once(client, BOX_EMPTY, l, shell);
    if (o.result.end != SANDBOX_END_EXIT || o.result.value != 0 || strcmp(o.output, output) != 0)
        fail_msg("network %d: end %d value %d: %s", (int)network, (int)o.result.end, o.result.value, o.output);
    outcome_done(&o);
}

#define FLAGS "import socket, fcntl, struct\n" \
    "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n" \
    "up = [n for i, n in socket.if_nameindex() if fcntl.ioctl(s, 0x8913, struct.pack('16sH14x', n.encode(), 0))[16] & 1]\n" \
    "def reach(family, host):\n" \
    "    try: socket.create_connection((host, 3128), timeout=3); return 'open'\n" \
    "    except OSError as e: return str(e.errno)\n" \
    "print(','.join(up) or 'none', reach(socket.AF_INET, '127.0.0.1'), reach(socket.AF_INET6, '::1'))"

/* Each mode is what it says, whatever the sandbox before in the same slot had. */
static void modes_do_not_carry_over(void **state)
{
    (void)state;
    const char *look = "python3 -c \"" FLAGS "\"";
    for (int i = 0; i < 3; i++) {
        runs_with(SANDBOX_NET_NONE, look, "none 101 99\n");
        runs_with(SANDBOX_NET_LOOPBACK, look, "lo 111 111\n");
        runs_with(SANDBOX_NET_PROXY, look, "lo open 111\n");
        runs_with(SANDBOX_NET_LOOPBACK, look, "lo 111 111\n");
    }
    struct sandbox_limits bad = usual;
    bad.network = SANDBOX_NET_NONE;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, bad);
    assert_int_equal(sandbox_proxy_fd(s), -1);
    for (int i = 0; i < 2; i++) {               /* a later run of the same sandbox has no more */
        struct outcome o = box_run(client, s, "python3 -c \"" FLAGS "\"");
        assert_string_equal(o.output, "none 101 99\n");
        outcome_done(&o);
    }
    sandbox_close(s);
}

/* An HTTP proxy that accepts on descriptor 3 and knows one name, and the server behind it on a port of the host's, which is
 * the argument's directory. Prints that port. */
static const char server[] =
    "import http.server, os, socket, socketserver, sys, threading, functools\n"
    "class Quiet(http.server.SimpleHTTPRequestHandler):\n"
    "    def log_message(self, *a): pass\n"
    "web = http.server.ThreadingHTTPServer(('127.0.0.1', 0), functools.partial(Quiet, directory=sys.argv[1]))\n"
    "threading.Thread(target=web.serve_forever, daemon=True).start()\n"
    "print(web.server_port, flush=True)\n"
    "def pump(a, b):\n"
    "    while (d := a.recv(65536)): b.sendall(d)\n"
    "    b.shutdown(socket.SHUT_WR)\n"
    "def serve(c):\n"
    "    head = b''\n"
    "    while b'\\r\\n\\r\\n' not in head: head += c.recv(65536) or exit()\n"
    "    line, rest = head.split(b'\\r\\n', 1)\n"
    "    verb, url, version = line.split()\n"
    "    host, path = (url, None) if verb == b'CONNECT' else url[7:].split(b'/', 1)\n"
    "    if host.split(b':')[0] != b'origin.test':\n"
    "        c.sendall(b'HTTP/1.0 403 no\\r\\nContent-Length: 0\\r\\n\\r\\n')\n"
    "        return c.close()\n"
    "    up = socket.create_connection(web.server_address)\n"
    "    if path is None: c.sendall(b'HTTP/1.0 200 yes\\r\\n\\r\\n')\n"
    "    else: up.sendall(b'%s /%s HTTP/1.0\\r\\n%s' % (verb, path, rest))\n"
    "    threading.Thread(target=pump, args=(c, up), daemon=True).start()\n"
    "    pump(up, c)\n"
    "door = socket.socket(fileno=3)\n"
    "while True:\n"
    "    threading.Thread(target=serve, args=(door.accept()[0],), daemon=True).start()\n";

static void proxy_serves_what_programs_use(void **state)
{
    (void)state;
    char dir[] = "/tmp/assay-proxy-XXXXXX", text[2048], port[32] = "";
    assert_non_null(mkdtemp(dir));
    snprintf(text, sizeof text, "cd %s && umask 022 && echo hello >hello && git init -q w && echo git >w/f && git -C w add f && "
             "git -C w -c user.name=n -c user.email=e commit -qm m && git clone -q --bare w r.git && git -C r.git update-server-info && "
             "mkdir -p simple/tiny && echo '<a href=\"/tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>' >simple/tiny/index.html && "
             "/usr/bin/python3 -c \"import zipfile; z = zipfile.ZipFile('tiny-1.0-py3-none-any.whl', 'w'); i = 'tiny-1.0.dist-info/'; "
             "z.writestr('tiny.py', 'x = 1'); z.writestr(i + 'METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n'); "
             "z.writestr(i + 'WHEEL', 'Wheel-Version: 1.0\\nGenerator: t\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'); "
             "z.writestr(i + 'RECORD', ''); z.close()\"", dir);
    assert_int_equal(system(text), 0);
    struct sandbox_limits l = usual;
    l.network = SANDBOX_NET_PROXY;
    struct sandbox *s = box_acquire(client, BOX_EMPTY, l);
    int told[2], door = sandbox_proxy_fd(s);
    assert_true(door >= 0);
    assert_int_equal(pipe(told), 0);
    pid_t child = fork();
    if (child == 0) {
        int keep = fcntl(door, F_DUPFD, 10);
        dup2(told[1], 1);
        dup2(keep, 3);
        execl("/usr/bin/python3", "python3", "-c", server, dir, (char *)NULL);
        _exit(127);
    }
    close(told[1]);
    assert_true(read(told[0], port, sizeof port - 1) > 0);
    static const struct { const char *shell, *says; } uses[] = {
        { "python3 -c \"import urllib.request as u; print(u.urlopen('http://origin.test/hello').read().decode(), end='')\"", "hello\n" },
        { "curl -s http://origin.test/hello", "hello\n" },
        { "curl -sp http://origin.test/hello", "hello\n" },                     /* by CONNECT */
        { "git clone -q http://origin.test/r.git c && cat c/f", "git\n" },
        { "python3 -m pip -q --isolated --disable-pip-version-check download --no-deps --index-url http://origin.test/simple "
          "--trusted-host origin.test -d /tmp/d tiny >/dev/null && ls /tmp/d", "tiny-1.0-py3-none-any.whl\n" },
        { "curl -s -o /dev/null -w '%{http_code}\\n' http://elsewhere.test/", "403\n" },
    };
    for (size_t i = 0; i < sizeof uses / sizeof uses[0]; i++) {
        if (strncmp(uses[i].shell, "curl", 4) == 0 && access("/usr/bin/curl", X_OK) < 0)
            continue;
        struct outcome o = box_run(client, s, uses[i].shell);
        if (strcmp(o.output, uses[i].says) != 0)
            fail_msg("`%s` says `%s`", uses[i].shell, o.output);
        outcome_done(&o);
    }
    /* The server's own port is no nearer for that, nor is a name; and the caller's environment wins over ours. */
    snprintf(text, sizeof text, "exec python3 -c \"\nimport socket\nfor at in (('127.0.0.1', %d), ('origin.test', 80)):\n"
             "    try: socket.create_connection(at, timeout=3); print('open')\n    except OSError: print('closed')\n\"", atoi(port));
    struct outcome o = box_run(client, s, text);
    assert_string_equal(o.output, "closed\nclosed\n");
    outcome_done(&o);
    o = box_run_env(client, s, "echo $http_proxy $https_proxy", (const char *const[]){ "http_proxy=http://mine:1", NULL });
    assert_string_equal(o.output, "http://mine:1 http://127.0.0.1:3128\n");
    outcome_done(&o);
    sandbox_close(s);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    close(told[0]);
    snprintf(text, sizeof text, "rm -rf %s", dir);
    assert_int_equal(system(text), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unused_network_serves_again), cmocka_unit_test(used_network_is_left_behind),
        cmocka_unit_test(sockets_without_traffic_leave_nothing), cmocka_unit_test(modes_do_not_carry_over),
        cmocka_unit_test(proxy_serves_what_programs_use),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

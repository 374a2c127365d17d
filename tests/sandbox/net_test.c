/* The network of a sandbox is its own, whatever the one before it in the same slot did with its. */
#include "sandbox/net.h"
#include "base/own.h"
#include "tests/sandbox/box.h"
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <linux/in6.h>
#include <linux/rtnetlink.h>
#include <sched.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { TURNS = 9 };
static struct sandbox_client *client;
static const struct sandbox_limits usual = { .wall_ns = 300 * NS_PER_S, .memory_bytes = (uint64_t)512 << 20, .pids = 64 };

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

/* One use of a network, by a process that ends with it unless `held`. `kept`: the namespace must serve again. */
enum act { NOTHING, MAKE, BIND, CONNECT, SEND, SERVE, LABEL, ASK };
static const struct use {
    const char *name;
    enum act act;
    int family, type, protocol;
    const char *to;
    bool kept, held;
} every_use[] = {
    { "nothing", NOTHING, .kept = true },
    { "TCP socket", MAKE, AF_INET, SOCK_STREAM, .kept = true },
    { "MPTCP socket", MAKE, AF_INET, SOCK_STREAM, IPPROTO_MPTCP, .to = NULL },
    { "UDP socket of IPv6", MAKE, AF_INET6, SOCK_DGRAM, .kept = true },
    { "Unix socket", MAKE, AF_UNIX, SOCK_STREAM, .kept = true },
    { "netlink socket", MAKE, AF_NETLINK, SOCK_RAW, .to = NULL },
    { "Unix socket held", MAKE, AF_UNIX, SOCK_STREAM, .held = true },
    { "TCP socket held", MAKE, AF_INET6, SOCK_STREAM, .held = true },
    { "netlink socket held", MAKE, AF_NETLINK, SOCK_RAW, .held = true },
    { "TCP bound", BIND, AF_INET, SOCK_STREAM, .to = "127.0.0.1", .kept = true },
    { "UDP bound", BIND, AF_INET6, SOCK_DGRAM, .to = "::1", .kept = true },
    { "UDP connected", CONNECT, AF_INET, SOCK_DGRAM, .to = "127.0.0.1", .kept = true },
    { "UDP connected by IPv6", CONNECT, AF_INET6, SOCK_DGRAM, .to = "::1" },
    { "UDP connected nowhere", CONNECT, AF_INET, SOCK_DGRAM, .to = "192.0.2.1" },
    { "UDP connected nowhere by IPv6", CONNECT, AF_INET6, SOCK_DGRAM, .to = "2001:db8::1" },
    { "UDP sent", SEND, AF_INET, SOCK_DGRAM, .to = "127.0.0.1" },
    { "UDP sent by IPv6", SEND, AF_INET6, SOCK_DGRAM, .to = "::1" },
    { "UDP sent nowhere", SEND, AF_INET, SOCK_DGRAM, .to = "192.0.2.1" },
    { "UDP sent nowhere by IPv6", SEND, AF_INET6, SOCK_DGRAM, .to = "2001:db8::1" },
    { "TCP refused", CONNECT, AF_INET, SOCK_STREAM, .to = "127.0.0.1" },
    { "TCP refused by IPv6", CONNECT, AF_INET6, SOCK_STREAM, .to = "::1" },
    { "TCP nowhere", CONNECT, AF_INET, SOCK_STREAM, .to = "192.0.2.1" },
    { "TCP accepted", SERVE, AF_INET, SOCK_STREAM, .to = "127.0.0.1" },
    { "TCP accepted by IPv6", SERVE, AF_INET6, SOCK_STREAM, .to = "::1" },
    { "MPTCP refused", CONNECT, AF_INET, SOCK_STREAM, IPPROTO_MPTCP, .to = "127.0.0.1" },
    { "MPTCP to no address", CONNECT, AF_INET, SOCK_STREAM, IPPROTO_MPTCP, .to = NULL },
    { "flow label", LABEL, AF_INET6, SOCK_DGRAM, .to = "::1" },
    { "links asked for", ASK, AF_NETLINK, SOCK_RAW, RTM_GETLINK, .to = NULL },
    { "routes asked for", ASK, AF_NETLINK, SOCK_RAW, RTM_GETROUTE, .to = NULL },
};

static socklen_t address(struct sockaddr_storage *out, const struct use *u, uint16_t port)
{
    struct sockaddr_in *four = (struct sockaddr_in *)out;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)out;
    memset(out, 0, sizeof *out);
    out->ss_family = u->to == NULL ? AF_MAX : (sa_family_t)u->family;
    if (u->to != NULL)
        inet_pton(u->family, u->to, u->family == AF_INET ? (void *)&four->sin_addr : &six->sin6_addr);
    four->sin_port = htons(port);               /* in either */
    return u->family == AF_INET ? sizeof *four : sizeof *six;
}

/* All of a kind, as `ip` would ask. */
static void ask(int s, uint16_t what)
{
    struct { struct nlmsghdr h; struct rtmsg body; char rest[32]; } m = { .h = {
        .nlmsg_len = sizeof m, .nlmsg_type = what, .nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP } };
    char answer[32768];
    if (send(s, &m, sizeof m, 0) > 0)
        while (recv(s, answer, sizeof answer, 0) > 0 && ((struct nlmsghdr *)answer)->nlmsg_type >= NLMSG_MIN_TYPE)
            ;
}

static void use_network(const struct use *u)
{
    struct in6_flowlabel_req label = { .flr_label = htonl(0x12345), .flr_action = IPV6_FL_A_GET, .flr_share = IPV6_FL_S_ANY,
                                       .flr_flags = IPV6_FL_F_CREATE, .flr_linger = 60, .flr_expires = 60 };
    struct sockaddr_storage to;
    socklen_t len = address(&to, u, u->act == BIND ? 0 : 18080);
    int s = u->act == NOTHING ? -1 : socket(u->family, u->type, u->act == ASK ? NETLINK_ROUTE : u->protocol);
    if (s < 0)
        return;
    if (u->act == BIND && bind(s, (struct sockaddr *)&to, len) == 0 && u->type == SOCK_STREAM)
        (void)!listen(s, 1);
    if (u->act == CONNECT) {
        (void)!connect(s, (struct sockaddr *)&to, len);
        usleep(30000);                          /* a cached route shows its age in hundredths */
    }
    if (u->act == SEND)
        sendto(s, "x", 1, 0, (struct sockaddr *)&to, len);
    if (u->act == LABEL) {
        label.flr_dst.s6_addr[15] = 1;
        setsockopt(s, IPPROTO_IPV6, IPV6_FLOWLABEL_MGR, &label, sizeof label);
    }
    if (u->act == SERVE && bind(s, (struct sockaddr *)&to, len) == 0 && listen(s, 1) == 0) {
        int c = socket(u->family, u->type, u->protocol);
        if (connect(c, (struct sockaddr *)&to, len) == 0)
            close(accept(s, NULL, NULL));
    }
    if (u->act == ASK)
        ask(s, (uint16_t)u->protocol);
}

/* All that /proc says of the namespace, but for what it says of the host. */
static size_t say_all(char *out, size_t size)
{
    static const char *const hosts[] = { "protocols", "softnet_stat", "stat", "." , ".." };
    DIR *d = opendir("/proc/self/net");
    size_t len = 0;
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        bool ours = true;
        for (size_t i = 0; i < sizeof hosts / sizeof hosts[0]; i++)
            ours &= strcmp(e->d_name, hosts[i]) != 0;
        own_fd fd = ours ? openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
            continue;
        size_t at = len += (size_t)snprintf(out + len, size - len, "%s\n", e->d_name);
        for (ssize_t n; (n = read(fd, out + len, size - 64 - len)) > 0; len += (size_t)n)
            ;
        if (strcmp(e->d_name, "sockstat") == 0) /* its first line is ours, the memory on others is not */
            len = (size_t)(strchr(out + at, '\n') - out);
    }
    closedir(d);
    return len;
}

/* For how long the route to 127.0.0.1 has been cached, as anyone may ask; -1: cannot be had. */
static int route_age(void)
{
    struct { struct nlmsghdr h; struct rtmsg body; struct rtattr to; struct in_addr at; } m = {
        .h = { .nlmsg_len = sizeof m, .nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST },
        .body = { .rtm_family = AF_INET, .rtm_dst_len = 32 }, .to = { 8, RTA_DST }, .at.s_addr = htonl(INADDR_LOOPBACK) };
    union { struct nlmsghdr h; char bytes[4096]; } answer;
    own_fd s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (s < 0 || send(s, &m, sizeof m, 0) < 0 || recv(s, &answer, sizeof answer, 0) < 0 || answer.h.nlmsg_type != RTM_NEWROUTE)
        return -1;
    int left = (int)RTM_PAYLOAD(&answer.h);
    for (struct rtattr *a = RTM_RTA(NLMSG_DATA(&answer.h)); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == RTA_CACHEINFO)
            return (int)((struct rta_cacheinfo *)RTA_DATA(a))->rta_lastuse;
    return -1;
}

enum { FINE, NO_NETWORK, NOT_SEEN, ROUTE_SEEN, NEEDLESS };
static int turn(const struct use *u)
{
    static char before[1 << 18], after[sizeof before];
    static struct net n;
    struct err err;
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET((size_t)sched_getcpu(), &here);     /* caches of routes are by processor */
    if (sched_setaffinity(0, sizeof here, &here) < 0 || (geteuid() != 0 && unshare(CLONE_NEWUSER) < 0))
        return NO_NETWORK;
    own_fd proc = open("/proc", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (net_watch(&n, proc, &err) < 0 || net_renew(&n, 0, &err) < 0)
        return NO_NETWORK;
    size_t len = say_all(before, sizeof before), last = 0;
    for (int i = 0; i < 100 && (len != last || memcmp(before, after, len) != 0); i++) {     /* the kernel is about something yet */
        memcpy(after, before, last = len);
        usleep(10000);
        len = say_all(before, sizeof before);
    }
    pid_t pid = u->held ? 0 : fork();
    if (pid == 0) {
        use_network(u);
        if (!u->held)
            _exit(0);
    }
    if (pid < 0 || (pid > 0 && waitpid(pid, NULL, 0) != pid) || net_renew(&n, 0, &err) < 0)
        return NO_NETWORK;
    if (n.count > 1)                            /* a kernel that counts looks for routes has counted a bind() */
        return u->kept && access("/proc/self/net/fib_triestat", F_OK) < 0 ? NEEDLESS : FINE;
    size_t now = say_all(after, sizeof after), at = 0;
    while (at < len && at < now && before[at] == after[at])
        at++;
    if (at < len || now != len) {
        print_error("from `%.80s` to `%.80s`\n", before + (at < 40 ? 0 : at - 40), after + (at < 40 ? 0 : at - 40));
        return NOT_SEEN;
    }
    return route_age() == 0 ? FINE : ROUTE_SEEN;
}

/* After each use the next has another namespace, or one that nothing tells from a new one. */
static void no_use_shows_to_the_next(void **state)
{
    static const char *const says[] = { "", "no network can be had", "the next sandbox would see it",
                                        "the next sandbox would see the cached route", "the namespace was given away" };
    (void)state;
    for (size_t i = 0; i < sizeof every_use / sizeof every_use[0]; i++) {
        int status = -1;
        pid_t pid = fork();
        if (pid == 0)
            _exit(turn(&every_use[i]));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        if (status != 0)
            print_error("%s: %s\n", every_use[i].name, WIFEXITED(status) ? says[WEXITSTATUS(status)] : "it died");
        assert_int_equal(status, 0);
    }
}

/* Appendix A of the paper, and texts of 0, 1, 8 and 63 bytes from its authors' test vectors; in whatever pieces. */
static void siphash_is_as_published(void **state)
{
    static const struct { size_t len; uint64_t hash; } known[] = {
        { 0, 0x726fdb47dd0e0e31 }, { 1, 0x74f839c593dc67fd }, { 8, 0x93f5f5799a932462 }, { 15, 0xa129ca6149be45e5 },
        { 63, 0x958a324ceb064572 },
    };
    static const struct siphash_key key = { { 0x0706050403020100, 0x0f0e0d0c0b0a0908 } };
    unsigned char text[64];
    (void)state;
    for (size_t i = 0; i < sizeof text; i++)
        text[i] = (unsigned char)i;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        for (size_t piece = 1; piece <= sizeof text; piece++) {
            struct siphash s;
            siphash_start(&s, &key);
            for (size_t at = 0; at < known[i].len; at += piece)
                siphash_add(&s, text + at, piece < known[i].len - at ? piece : known[i].len - at);
            assert_int_equal(siphash_finish(&s), known[i].hash);
        }
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
        cmocka_unit_test(sockets_without_traffic_leave_nothing), cmocka_unit_test(no_use_shows_to_the_next),
        cmocka_unit_test(siphash_is_as_published), cmocka_unit_test(modes_do_not_carry_over),
        cmocka_unit_test(proxy_serves_what_programs_use),
    };
    return cmocka_run_group_tests(tests, start, stop);
}

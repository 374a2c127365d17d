/*
 * The compiled filters against the tables they come from. Both are asked about the same calls: the program, run here as the
 * kernel runs it, and wanted(), which reads the tables row by row as a reviewer does and knows nothing of how it is compiled.
 */
#include "sandbox/seccomp.h"
#include "sandbox/seccomp_policy.h"
#include "tests/sandbox/box.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <sys/syscall.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define STEPS_MAX 16            /* a look-up by halving in some hundred ranges needs fewer */

static const struct table { const struct policy_row *rows; size_t count; } tables[] = {
    { policy, COUNT(policy) }, { policy_compatible, COUNT(policy_compatible) }, { host_policy, COUNT(host_policy) },
};
static int numbers[COUNT(tables)][COUNT(policy)];       /* of each row */

static struct filter {
    const char *name;
    enum sandbox_profile profile;
    bool host, has[COUNT(tables)];
    struct sock_fprog program;
} filters[] = {
    { "strict", SANDBOX_STRICT, false, { true, false, false }, { 0 } },
    { "compatible", SANDBOX_COMPATIBLE, false, { true, true, false }, { 0 } },
    { "warm host", SANDBOX_STRICT, true, { true, false, true }, { 0 } },
};

static int start(void **state)
{
    (void)state;
    struct err err = { 0 };
    for (size_t t = 0; t < COUNT(tables); t++)
        for (size_t i = 0; i < tables[t].count; i++)
            numbers[t][i] = seccomp_syscall_resolve_name(tables[t].rows[i].name);
    for (size_t i = 0; i < COUNT(filters); i++)
        if (seccomp_compile(&filters[i].program, filters[i].profile, filters[i].host, &err) < 0)
            return -1;
    return 0;
}

static int stop(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(filters); i++)
        free(filters[i].program.filter);
    return 0;
}

static bool holds(const struct policy_row *row, const struct seccomp_data *d)
{
    for (unsigned i = 0; i < row->check_count; i++)
        if ((d->args[row->checks[i].arg] & row->checks[i].mask) != row->checks[i].value)
            return false;
    return true;
}

static uint32_t wanted(const struct filter *f, const struct seccomp_data *d)
{
    if (d->arch != AUDIT_ARCH_X86_64)
        return SECCOMP_RET_KILL_PROCESS;
    if (d->nr < -1 || d->nr >= 0x40000000)              /* x32; -1 is a call that a tracer has skipped */
        return SECCOMP_RET_KILL_PROCESS;
    for (size_t i = 0; d->nr == SYS_ioctl && i < COUNT(refused_requests); i++)
        if ((uint32_t)d->args[1] == refused_requests[i])
            return SECCOMP_RET_ERRNO | EPERM;
    for (size_t t = 0; d->nr >= 0 && t < COUNT(tables); t++)
        for (size_t i = 0; f->has[t] && i < tables[t].count; i++)
            if (numbers[t][i] == d->nr && holds(&tables[t].rows[i], d))
                return SECCOMP_RET_ALLOW;
    return SECCOMP_RET_ERRNO | ENOSYS;
}

struct answer { uint32_t action; unsigned steps; bool read_arguments; };

static uint32_t word(const struct seccomp_data *d, uint32_t offset)
{
    uint32_t v;
    assert_true(offset % sizeof v == 0 && offset <= sizeof *d - sizeof v);
    memcpy(&v, (const char *)d + offset, sizeof v);
    return v;
}

static struct answer answer(const struct filter *f, const struct seccomp_data *d)
{
    struct answer a = { 0 };
    uint32_t acc = 0;
    for (uint32_t at = 0; at < f->program.len; at++) {
        const struct sock_filter *i = &f->program.filter[at];
        a.steps++;
        switch (i->code) {
        case BPF_LD | BPF_W | BPF_ABS:
            acc = word(d, i->k);
            a.read_arguments |= i->k > offsetof(struct seccomp_data, arch);
            break;
        case BPF_ALU | BPF_AND | BPF_K: acc &= i->k; break;
        case BPF_JMP | BPF_JA:          at += i->k; break;
        case BPF_JMP | BPF_JEQ | BPF_K: at += acc == i->k ? i->jt : i->jf; break;
        case BPF_JMP | BPF_JGE | BPF_K: at += acc >= i->k ? i->jt : i->jf; break;
        case BPF_RET | BPF_K:
            a.action = i->k;
            return a;
        default: fail_msg("%s: instruction %u is new: %#x", f->name, at, i->code);
        }
    }
    fail_msg("%s: ran off its end", f->name);
    return a;
}

static void ask(const struct seccomp_data *d)
{
    for (const struct filter *f = filters; f < filters + COUNT(filters); f++) {
        const uint32_t want = wanted(f, d), got = answer(f, d).action;
        if (got != want)
            fail_msg("%s: arch %#x, call %d (%#llx, %#llx, %#llx, ...): %#x, the tables say %#x", f->name, d->arch, d->nr,
                     d->args[0], d->args[1], d->args[2], got, want);
    }
}

/* `d` with one argument after the other changed in every bit and every two. */
static void ask_around(struct seccomp_data d)
{
    for (unsigned arg = 0; arg < COUNT(d.args); arg++)
        for (unsigned i = 0; i < 64; i++)
            for (unsigned j = i; j < 64; j++) {
                const uint64_t bits = UINT64_C(1) << i | UINT64_C(1) << j;
                struct seccomp_data other = d;
                other.args[arg] ^= bits;
                ask(&other);
                other.args[arg] = bits;
                ask(&other);
            }
}

static void every_number_answers_as_the_tables_say(void **state)
{
    (void)state;
    static const uint32_t arches[] = { AUDIT_ARCH_X86_64, AUDIT_ARCH_I386, AUDIT_ARCH_AARCH64, AUDIT_ARCH_ARM, 0, UINT32_MAX,
                                       AUDIT_ARCH_X86_64 ^ 1, AUDIT_ARCH_X86_64 ^ __AUDIT_ARCH_LE };
    static const uint32_t bases[] = { 0, 0x3ffffe00, 0x40000000, 0x7ffffe00, 0x80000000, 0xbffffe00, UINT32_MAX - 600 };
    static const uint64_t args[] = { 0, 1, 0xffffffff, UINT64_MAX, UINT64_C(0x100000000) };
    for (size_t a = 0; a < COUNT(arches); a++)
        for (size_t b = 0; b < COUNT(bases); b++)
            for (uint32_t i = 0; i <= 600; i++)
                for (size_t v = 0; v < COUNT(args); v++) {
                    const uint64_t x = args[v];
                    ask(&(struct seccomp_data){ .nr = (int)(bases[b] + i), .arch = arches[a], .args = { x, x, x, x, x, x } });
                }
}

/* A row's own checks hold or nearly hold; in the filters that lack its table as well. */
static void every_check_is_made(void **state)
{
    (void)state;
    for (size_t t = 0; t < COUNT(tables); t++)
        for (size_t i = 0; i < tables[t].count; i++) {
            const struct policy_row *row = &tables[t].rows[i];
            struct seccomp_data d = { .nr = numbers[t][i], .arch = AUDIT_ARCH_X86_64 };
            if (row->check_count > 0 && d.nr < 0)
                fail_msg("libseccomp does not know %s", row->name);
            for (unsigned c = 0; c < row->check_count; c++) {
                assert_int_equal(row->checks[c].value & ~row->checks[c].mask, 0);       /* else it could never hold */
                d.args[row->checks[c].arg] = row->checks[c].value;
            }
            if (row->check_count > 0)
                ask_around(d);
        }
}

static void every_socket_answers_as_the_tables_say(void **state)
{
    (void)state;
    static const uint64_t over[] = { 0, SOCK_CLOEXEC, SOCK_NONBLOCK, UINT64_C(1) << 32 };
    struct seccomp_data d = { .nr = SYS_socket, .arch = AUDIT_ARCH_X86_64 };
    for (d.args[0] = 0; d.args[0] <= AF_MAX; d.args[0]++)
        for (uint64_t type = 0; type < 16; type++)
            for (size_t o = 0; o < COUNT(over); o++)
                for (d.args[2] = 0; d.args[2] <= IPPROTO_MAX; d.args[2] += d.args[2] < 256 ? 1 : 2) {
                    d.args[1] = type | over[o];
                    ask(&d);
                }
}

static void refused_requests_are_refused(void **state)
{
    (void)state;
    static const uint64_t over[] = { 0, UINT64_C(1) << 32, UINT64_C(0xffffffff) << 32 };
    struct seccomp_data d = { .nr = SYS_ioctl, .arch = AUDIT_ARCH_X86_64 };
    for (size_t o = 0; o < COUNT(over); o++)
        for (uint64_t request = 0; request < 0x10000; request++) {
            d.args[1] = over[o] | request;
            ask(&d);
        }
    for (size_t i = 0; i < COUNT(refused_requests); i++) {
        d.args[1] = refused_requests[i];
        ask_around(d);
    }
}

/* The kernel lets a call pass unasked if its number alone decides, and finds that out by trying each number at each start. */
static void plain_calls_are_decided_by_their_number_and_soon(void **state)
{
    (void)state;
    for (const struct filter *f = filters; f < filters + COUNT(filters); f++)
        for (size_t t = 0; t < COUNT(tables); t++)
            for (size_t i = 0; f->has[t] && i < tables[t].count; i++) {
                const struct seccomp_data d = { .nr = numbers[t][i], .arch = AUDIT_ARCH_X86_64 };
                if (tables[t].rows[i].check_count > 0 || d.nr < 0 || d.nr == SYS_ioctl)
                    continue;
                const struct answer a = answer(f, &d);
                if (a.action != SECCOMP_RET_ALLOW || a.read_arguments || a.steps > STEPS_MAX)
                    fail_msg("%s: %s: %#x after %u instructions%s", f->name, tables[t].rows[i].name, a.action, a.steps,
                             a.read_arguments ? ", looks at arguments" : "");
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_number_answers_as_the_tables_say), cmocka_unit_test(every_check_is_made),
        cmocka_unit_test(every_socket_answers_as_the_tables_say), cmocka_unit_test(refused_requests_are_refused),
        cmocka_unit_test(plain_calls_are_decided_by_their_number_and_soon),
    };
    return cmocka_run_group_tests_name("sandbox seccomp", tests, start, stop);
}

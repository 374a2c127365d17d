/*
 * seccomp.c - turns the tables of seccomp_policy.h into BPF programs; libseccomp knows the numbers of system calls.
 *
 * Theory: every sandbox pays for a program's length (it is copied, checked, translated, compiled) and for its depth (the
 * kernel tries each number, to learn which calls it may let pass without asking). So numbers are looked up by halving, in
 * ranges that have one answer; a call whose arguments matter has code of its own behind its range.
 *
 * A program is written from its last instruction to its first: BPF only jumps forward, so every target stands already. A
 * place in it is counted from its end, and what is emitted next runs just before.
 */
#include "sandbox/seccomp.h"
#include "sandbox/seccomp_policy.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define COUNT(table) (sizeof(table) / sizeof(table)[0])
#define RULES_MAX (COUNT(policy) + COUNT(policy_compatible) + COUNT(host_policy))
#define X32_FIRST 0x40000000u           /* from here numbers are those of x32 ... */
#define NR_SKIPPED UINT32_MAX           /* ... but this one, with which a tracer has a call skipped */

struct rules { size_t count; struct rule { uint32_t nr; const struct policy_row *row; } v[RULES_MAX]; };     /* by number */
struct ranges { size_t count; struct range { uint32_t first; unsigned place; } v[2 * RULES_MAX + 3]; };
struct program { unsigned len; struct sock_filter f[BPF_MAXINSNS]; };

static void add_rule(struct rules *r, const struct policy_row *row)
{
    const int nr = seccomp_syscall_resolve_name(row->name);
    if (nr < 0)
        return;                         /* newer than this libseccomp: stays ENOSYS */
    size_t i = r->count++;
    for (; i > 0 && r->v[i - 1].nr > (uint32_t)nr; i--)
        r->v[i] = r->v[i - 1];
    r->v[i] = (struct rule){ (uint32_t)nr, row };
}

static void add_rules(struct rules *r, const struct policy_row *rows, size_t count)
{
    for (size_t i = 0; i < count; i++)
        add_rule(r, &rows[i]);
}

/* A program that would not fit ends full, and is thrown away. */
static unsigned emit(struct program *p, uint16_t code, uint32_t k, unsigned yes, unsigned no)
{
    if (p->len < BPF_MAXINSNS)
        p->f[BPF_MAXINSNS - ++p->len] = (struct sock_filter){ code, (uint8_t)yes, (uint8_t)no, k };
    return p->len - 1;
}

static unsigned answer(struct program *p, uint32_t action) { return emit(p, BPF_RET | BPF_K, action, 0, 0); }

static unsigned load(struct program *p, size_t offset) { return emit(p, BPF_LD | BPF_W | BPF_ABS, (uint32_t)offset, 0, 0); }

/* `place`, or a way there, as the next conditional jump can reach it: with one instruction to spare, its other way's. */
static unsigned near(struct program *p, unsigned place)
{
    const unsigned over = p->len - place - 1;
    return over < UINT8_MAX ? place : emit(p, BPF_JMP | BPF_JA, over, 0, 0);
}

static unsigned jump(struct program *p, uint16_t test, uint32_t k, unsigned yes, unsigned no)
{
    yes = near(p, yes);
    no = near(p, no);
    return emit(p, BPF_JMP | test | BPF_K, k, p->len - yes - 1, p->len - no - 1);
}

static unsigned check_half(struct program *p, size_t offset, uint32_t mask, uint32_t value, unsigned yes, unsigned no)
{
    if (mask == 0)
        return yes;
    jump(p, BPF_JEQ, value, yes, no);
    if (mask != UINT32_MAX)
        emit(p, BPF_ALU | BPF_AND | BPF_K, mask, 0, 0);
    return load(p, offset);
}

/* Both ways to one place: nothing to look at. So a row without checks makes those of the others superfluous. */
static unsigned check(struct program *p, const struct policy_check *c, unsigned yes, unsigned no)
{
    if (yes == no)
        return yes;
    const size_t low = offsetof(struct seccomp_data, args) + c->arg * sizeof(uint64_t);
    yes = check_half(p, low, (uint32_t)c->mask, (uint32_t)c->value, yes, no);
    return check_half(p, low + sizeof(uint32_t), (uint32_t)(c->mask >> 32), (uint32_t)(c->value >> 32), yes, no);
}

static bool same_check(const struct policy_row *a, const struct policy_row *b, unsigned at)
{
    const struct policy_check *x = &a->checks[at], *y = &b->checks[at];
    return at < b->check_count && x->arg == y->arg && x->mask == y->mask && x->value == y->value;
}

/* One call's rows, whose checks before `at` hold: `allow` if one of them holds altogether. Neighbours share their checks. */
static unsigned any_row(struct program *p, const struct rule *rules, size_t count, unsigned at, unsigned allow, unsigned otherwise)
{
    if (count == 0)
        return otherwise;
    const struct policy_row *row = rules->row;
    if (row->check_count == at)
        return allow;
    size_t same = 1;
    while (same < count && same_check(row, rules[same].row, at))
        same++;
    const unsigned rest = any_row(p, rules + same, count - same, at, allow, otherwise);
    const unsigned these = any_row(p, rules, same, at + 1, allow, rest);
    return check(p, &row->checks[at], these, rest);
}

/* Before what ioctl's rows say. Of the request only the low half is looked at, as the kernel does. */
static unsigned refuse_requests(struct program *p, unsigned otherwise)
{
    const unsigned refusal = answer(p, SECCOMP_RET_ERRNO | EPERM);
    for (size_t i = 0; i < COUNT(refused_requests); i++)
        otherwise = jump(p, BPF_JEQ, refused_requests[i], refusal, otherwise);
    return load(p, offsetof(struct seccomp_data, args[1]));
}

/* From `first` on it is `place`: instead of the range that began there as well, one with the range before if that agrees. */
static void set_from(struct ranges *r, uint32_t first, unsigned place)
{
    if (r->count > 0 && r->v[r->count - 1].first == first)
        r->count--;
    if (r->count == 0 || r->v[r->count - 1].place != place)
        r->v[r->count++] = (struct range){ first, place };
}

static unsigned search(struct program *p, const struct range *ranges, size_t count)
{
    if (count == 1)
        return ranges->place;
    const size_t half = count / 2;
    const unsigned above = search(p, ranges + half, count - half), below = search(p, ranges, half);
    return jump(p, BPF_JGE, ranges[half].first, above, below);
}

static void write_program(struct program *p, const struct rules *rules)
{
    struct ranges ranges = { 0 };
    const unsigned kill = answer(p, SECCOMP_RET_KILL_PROCESS), unknown = answer(p, SECCOMP_RET_ERRNO | ENOSYS),
                   allow = answer(p, SECCOMP_RET_ALLOW);
    set_from(&ranges, 0, unknown);
    for (size_t i = 0, count; i < rules->count; i += count) {
        const struct rule *first = &rules->v[i];
        for (count = 1; i + count < rules->count && first[count].nr == first->nr; )
            count++;
        unsigned place = any_row(p, first, count, 0, allow, unknown);
        if (first->nr == SYS_ioctl)
            place = refuse_requests(p, place);
        set_from(&ranges, first->nr, place);
        set_from(&ranges, first->nr + 1, unknown);
    }
    /* Another ABI (int 0x80, x32) would number its calls differently: no process of ours uses one. */
    set_from(&ranges, X32_FIRST, kill);
    set_from(&ranges, NR_SKIPPED, unknown);
    search(p, ranges.v, ranges.count);
    jump(p, BPF_JEQ, AUDIT_ARCH_X86_64, load(p, offsetof(struct seccomp_data, nr)), kill);
    load(p, offsetof(struct seccomp_data, arch));
}

int seccomp_compile(struct sock_fprog *out, enum sandbox_profile profile, bool host, struct err *err)
{
    struct rules rules = { 0 };
    add_rules(&rules, policy, COUNT(policy));
    if (profile == SANDBOX_COMPATIBLE)
        add_rules(&rules, policy_compatible, COUNT(policy_compatible));
    if (host)
        add_rules(&rules, host_policy, COUNT(host_policy));
    struct program p = { 0 };
    write_program(&p, &rules);
    if (p.len == BPF_MAXINSNS)
        return err_set(err, ERR_INTERNAL, "system call filter: too long");
    struct sock_filter *filter = malloc(sizeof *filter * p.len);
    if (filter == NULL)
        return err_set(err, ERR_SYS, "system call filter: out of memory");
    memcpy(filter, p.f + BPF_MAXINSNS - p.len, sizeof *filter * p.len);
    *out = (struct sock_fprog){ .len = (unsigned short)p.len, .filter = filter };
    return 0;
}

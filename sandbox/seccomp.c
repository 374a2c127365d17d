/* seccomp.c - turns the tables of seccomp_policy.h into BPF programs, by libseccomp. */
#include "sandbox/seccomp.h"
#include "base/buf.h"
#include "base/own.h"
#include "sandbox/seccomp_policy.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static void ctx_done(scmp_filter_ctx *ctx) { if (*ctx != NULL) seccomp_release(*ctx); }

static int add(scmp_filter_ctx ctx, const struct policy_row *row)
{
    int nr = seccomp_syscall_resolve_name(row->name);
    if (nr == __NR_SCMP_ERROR)
        return 0;                       /* newer than this libseccomp: stays ENOSYS */
    if (row->check_count == 0)
        return seccomp_rule_add(ctx, SCMP_ACT_ALLOW, nr, 0);
    struct scmp_arg_cmp cmp[POLICY_CHECKS_MAX];
    for (unsigned i = 0; i < row->check_count; i++)
        cmp[i] = (struct scmp_arg_cmp){ .arg = row->checks[i].arg, .op = SCMP_CMP_MASKED_EQ,
                                        .datum_a = row->checks[i].mask, .datum_b = row->checks[i].value };
    return seccomp_rule_add_array(ctx, SCMP_ACT_ALLOW, nr, row->check_count, cmp);
}

#define REFUSED_COUNT (sizeof refused_requests / sizeof refused_requests[0])
#define HEAD_LEN (6 + REFUSED_COUNT)

/*
 * Refused requests, before the rest: libseccomp lets a row without checks, as ioctl has, hide rows with checks. Only the low
 * half of the request is looked at, as the kernel does. Any other ABI goes on to be killed.
 */
static void head(struct sock_filter *f)
{
    size_t n = 0;
    const uint8_t rest = (uint8_t)(HEAD_LEN - 1);               /* index of the refusal: one before the program's own code */
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AUDIT_ARCH_X86_64, 0, (uint8_t)(rest - n));
    n++;
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, (uint8_t)(rest - n));
    n++;
    f[n++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1]));
    for (size_t i = 0; i < REFUSED_COUNT; i++, n++)             /* the last one that does not match leaves */
        f[n] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, refused_requests[i], (uint8_t)(rest - n - 1),
                                            (uint8_t)(i + 1 == REFUSED_COUNT ? rest - n : 0));
    f[n] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
}

int seccomp_compile(struct sock_fprog *out, enum sandbox_profile profile, bool host, struct err *err)
{
    __attribute__((cleanup(ctx_done))) scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (ctx == NULL)
        return err_set(err, ERR_SYS, "system call filter: out of memory");
    /* Another ABI (int 0x80, x32) would number its calls differently: no process of ours uses one. */
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    const size_t strict = sizeof policy / sizeof policy[0], more = sizeof policy_compatible / sizeof policy_compatible[0];
    for (size_t i = 0; rc == 0 && i < strict + (profile == SANDBOX_COMPATIBLE ? more : 0); i++) {
        const struct policy_row *row = i < strict ? &policy[i] : &policy_compatible[i - strict];
        if ((rc = add(ctx, row)) < 0)
            return err_set(err, ERR_SYS, "system call filter: row %s (libseccomp %d)", row->name, rc);
    }
    for (size_t i = 0; rc == 0 && host && i < sizeof host_policy / sizeof host_policy[0]; i++)
        rc = add(ctx, &host_policy[i]);
    if (rc < 0)
        return err_set(err, ERR_SYS, "system call filter: libseccomp %d", rc);
    own_fd fd = memfd_create("filter", MFD_CLOEXEC);
    if (fd < 0 || seccomp_export_bpf(ctx, fd) < 0 || lseek(fd, 0, SEEK_SET) < 0)
        return err_sys(err, ERR_SYS, "system call filter: export");
    struct buf b = { .max = sizeof(struct sock_filter) * BPF_MAXINSNS };
    rc = buf_read_fd(&b, fd, err);
    if (rc < 0 || b.len == 0 || b.len % sizeof(struct sock_filter) != 0) {
        buf_done(&b);
        return rc < 0 ? rc : err_set(err, ERR_INTERNAL, "system call filter: empty");
    }
    struct sock_filter *filter = malloc(sizeof *filter * HEAD_LEN + b.len);
    if (filter != NULL) {
        head(filter);
        memcpy(filter + HEAD_LEN, b.data, b.len);
        *out = (struct sock_fprog){ .len = (unsigned short)(HEAD_LEN + b.len / sizeof *filter), .filter = filter };
    }
    buf_done(&b);
    return filter != NULL ? 0 : err_set(err, ERR_SYS, "system call filter: out of memory");
}

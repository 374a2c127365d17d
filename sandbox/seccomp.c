/* seccomp.c - turns the table of seccomp_policy.h into a BPF program, by libseccomp. */
#include "sandbox/seccomp.h"
#include "base/buf.h"
#include "base/own.h"
#include "sandbox/seccomp_policy.h"
#include <errno.h>
#include <seccomp.h>
#include <sys/mman.h>

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

int seccomp_compile(struct sock_fprog *out, bool host, struct err *err)
{
    __attribute__((cleanup(ctx_done))) scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ERRNO(ENOSYS));
    if (ctx == NULL)
        return err_set(err, ERR_SYS, "system call filter: out of memory");
    /* Another ABI (int 0x80, x32) would number its calls differently: no process of ours uses one. */
    int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (rc == 0)
        rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (size_t i = 0; rc == 0 && i < sizeof policy / sizeof policy[0]; i++)
        if ((rc = add(ctx, &policy[i])) < 0)
            return err_set(err, ERR_SYS, "system call filter: row %s (libseccomp %d)", policy[i].name, rc);
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
    *out = (struct sock_fprog){ .len = (unsigned short)(b.len / sizeof(struct sock_filter)),
                                .filter = (struct sock_filter *)(void *)b.data };
    return 0;
}

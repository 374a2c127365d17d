#include "tests/attack/attack.h"
#include <linux/bpf.h>

/* A call that gets as far as the kernel's own checks has passed the fence, whatever they say. */
static void reached(const char *what, long rc)
{
    judged(what, rc >= 0 || (errno != ENOSYS && errno != EPERM));
}

static int attack(void)
{
    union bpf_attr a = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1 };
    tried("bpf-map", syscall(SYS_bpf, BPF_MAP_CREATE, &a, sizeof a));
    struct bpf_insn code[] = { { .code = 0xb7 }, { .code = 0x95 } };
    union bpf_attr p = { .prog_type = BPF_PROG_TYPE_SOCKET_FILTER, .insns = (uintptr_t)code, .insn_cnt = 2, .license = (uintptr_t)"GPL" };
    tried("bpf-program", syscall(SYS_bpf, BPF_PROG_LOAD, &p, sizeof p));
    reached("bpf", syscall(SYS_bpf, 9999, NULL, 0));
    return 0;
}

static int twin(void)
{
    struct { unsigned short n; void *p; } f = { 1, (uint64_t[]){ 0xffffffff00000006ull } };     /* a classic filter: accept all */
    return says_ok(setsockopt(socket(AF_INET, SOCK_DGRAM, 0), SOL_SOCKET, 26, &f, sizeof f) == 0);
}

ATTACK(.tries = "bpf programs and maps (CVE-2021-3490, CVE-2022-23222)", .attack = attack, .twin = twin, .bare = "bpf-map", .must = { "bpf refused" });

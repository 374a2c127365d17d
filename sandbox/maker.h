/*
 * maker.h - the privileged processes behind sandboxes. They run no foreign code and read no foreign bytes; none ever calls exec.
 *
 * The maker, one per jail, is forked before the jail holds what slots have, and begins launchers: so that is cheap, and most
 * of a launcher's memory is the maker's. A launcher joins its slot's control groups (v2: is born there), enters namespaces of
 * its own, builds the world, starts zygote and reaper of each run, takes the output, and tells the jail how the run ended,
 * from the kernel's wait status. It is pid 1 of a pid namespace of its own: when it dies, everything in the sandbox dies. It
 * serves one sandbox after another for as long as it can prove that the last one left nothing behind, or can take away what
 * it left; otherwise it hands over what is still as new (the mount namespace of the lower layers, which no sandbox was ever
 * in, and the network namespace) and ends, and the jail has the maker begin the next while the kernel unmakes the old.
 */
#pragma once
#include "sandbox/cgroup.h"
#include "sandbox/net.h"
#include "sandbox/order.h"

enum { BIRTH_LOWER = 1, BIRTH_NET = 2, BIRTH_CGROUP = 4 };
/* To the maker; fds: the slot's socket, its user namespace, then what the bits of `fds` say: mount namespace of the lower
 * layers, network namespace, v2: directory of the control group. */
struct birth {
    uint32_t slot, serial, fds;
    uid_t uid;
    uint32_t own;               /* plan.own, with the lower layers */
};
struct born { uint32_t slot, serial; int32_t rc, sys; };        /* its answer; fd: pidfd of the launcher */

/* Never returns: serves `sock`, until it is closed. `common`: what is the same in all kits; `rings`: a memfd, one ring after
 * another in the order of slots, RING_STRIDE apart. */
_Noreturn void maker_main(int sock, const struct kit *common, const struct cgroup_host *groups, int rings);

/* Never returns. The caller is in all its namespaces; `lower`: that of the lower layers, to be handed over. */
_Noreturn void launcher_main(struct kit *kit, struct net *net, int lower);

/*
 * maker.h - the privileged processes behind sandboxes. They run no foreign code and read no foreign bytes; none ever calls exec.
 *
 * The maker, one per jail, is forked before the jail holds what slots have, and begins launchers: so that is cheap, and most
 * of a launcher's memory is the maker's. A launcher joins its slot's control groups (v2: is born there), enters namespaces of
 * its own, builds the world, starts zygote and reaper of each run, takes the output, and tells the jail how the run ended,
 * from the kernel's wait status. It is pid 1 of a pid namespace of its own: when it dies, everything in the sandbox dies. It
 * serves one sandbox after another for as long as it can prove that the last one left nothing behind, or can take away what
 * it left; otherwise it makes another world, above the lower layers, which lie in a mount namespace that no sandbox is ever in.
 */
#pragma once
#include "sandbox/cgroup.h"
#include "sandbox/net.h"
#include "sandbox/order.h"

/* To the maker; fds: the slot's socket, its user namespace, and with v2 the directory of its control group. */
struct birth { uint32_t slot, serial; uid_t uid; };
struct born { uint32_t slot, serial; int32_t rc, sys; };        /* its answer; fd: pidfd of the launcher */

/* Never returns: serves `sock`, until it is closed. `common`: what is the same in all kits; `rings`: a memfd, one ring after
 * another in the order of slots, RING_STRIDE apart. */
_Noreturn void maker_main(int sock, const struct kit *common, const struct cgroup_host *groups, int rings);

/* Never returns. The caller is in all its namespaces; `lower`: that of the lower layers, of which its own is a copy. */
_Noreturn void launcher_main(struct kit *kit, struct net *net, int lower);

/*
 * keeper.h - the privileged processes of one slot. They run no foreign code and read no foreign
 * bytes; neither ever calls exec.
 *
 * The keeper lives in the slot's cgroups from start to end (on v1 nobody can be born into a group
 * other than the parent's) and in a network namespace (net.h), and forks a launcher into it and into fresh
 * namespaces of every other kind. The launcher builds the world, starts reaper and agent of each
 * run, takes the output, and tells the jail how the run ended, from the kernel's wait status. It is
 * pid 1 of a pid namespace of its own: when it dies, everything in the sandbox dies. It serves one
 * sandbox after another for as long as it can prove that the last one left nothing behind, or can
 * take away what it left; otherwise it ends, and the keeper forks the next.
 */
#pragma once
#include "sandbox/net.h"
#include "sandbox/order.h"

/* Never return; `kit` is theirs. All descriptors but kit's are closed. */
_Noreturn void keeper_main(struct kit *kit, int cgroup_entered, const struct err *why);
/* `net`: where the launcher is born. */
_Noreturn void launcher_main(struct kit *kit, struct net *net);

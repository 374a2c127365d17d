/* rights.h - give up every privilege for good: the step between our code and foreign code. */
#pragma once
#include "sandbox/order.h"

/*
 * Enter the kit's user namespace (-1: the caller is in it) as its uid and gid `id` (unprivileged outside), with an own keyring,
 * no capability in any set and none to be had by exec, no_new_privs, and `filter` (NULL: none).
 * Nothing undoes it. Of a rootless jail the user's supplementary groups stay: the kernel lets only root drop them.
 * `keep`: bits of capabilities of that namespace that stay, and stay at an exec.
 */
MUST_CHECK int rights_drop(const struct kit *kit, uid_t id, const struct sock_fprog *filter, uint64_t keep, struct err *err);

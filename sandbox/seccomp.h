/* seccomp.h - the system call filter, compiled once by the jail and inherited by every slot. */
#pragma once
#include "base/err.h"
#include <linux/filter.h>

/* Compile the policy. out->filter is malloc'ed, owned by the caller. */
MUST_CHECK int seccomp_compile(struct sock_fprog *out, struct err *err);

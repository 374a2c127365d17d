/* seccomp.h - the system call filters, compiled once by the jail and inherited by every slot. */
#pragma once
#include "base/err.h"
#include "sandbox/sandbox.h"
#include <linux/filter.h>

/* Compile the policy of a profile; `host`: with what a warm host (warm.h) may call beside. out->filter is malloc'ed, owned by the caller. */
MUST_CHECK int seccomp_compile(struct sock_fprog *out, enum sandbox_profile profile, bool host, struct err *err);

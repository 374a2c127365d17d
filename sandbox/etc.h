/* etc.h - the /etc of a sandbox: a few harmless parts of the host's, the rest fresh. */
#pragma once
#include "base/err.h"

#define ETC_HOSTNAME "sandbox"
/* Fill the empty directory `dir`. Parts the host lacks are left out; nothing unreadable to all is copied. */
MUST_CHECK int etc_fill(int dir, struct err *err);

/* err.c - the table of codes, and the text of errors. */
#include "base/err.h"
#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* gRPC status numbers: grpc/doc/statuscodes.md; exit statuses: sysexits.h. */
static const struct err_info table[] = {
    /* code              name             grpc exit  ours   retryable */
    { ERR_NONE,         "ok",              0,  0, false, false },
    { ERR_USAGE,        "usage",           3, 64, false, false },
    { ERR_BAD_INPUT,    "bad_input",       3, 65, false, false },
    { ERR_NOT_FOUND,    "not_found",       5, 65, false, false },
    { ERR_EXISTS,       "exists",          6, 65, false, false },
    { ERR_CONFLICT,     "conflict",        9, 65, false, false },
    { ERR_LIMIT,        "limit",           8, 65, false, false },
    { ERR_BUSY,         "busy",            8, 69, true,  true  },
    { ERR_UNAVAILABLE,  "unavailable",    14, 69, true,  true  },
    { ERR_DENIED,       "denied",          7, 69, true,  false },
    { ERR_CORRUPT,      "corrupt",        15, 70, true,  false },
    { ERR_SYS,          "system",         13, 70, true,  true  },
    { ERR_PROTOCOL,     "protocol",       13, 70, true,  true  },
    { ERR_LOST,         "lost",           14, 70, true,  true  },
    { ERR_DEADLINE,     "deadline",        4, 69, false, true  },
    { ERR_CANCELLED,    "cancelled",       1, 69, false, true  },
    { ERR_UNSUPPORTED,  "unsupported",    12, 69, false, false },
    { ERR_INTERNAL,     "internal",       13, 70, true,  false },
};

const struct err_info *err_info(int code)
{
    const struct err_info *last = &table[sizeof table / sizeof table[0] - 1];
    for (const struct err_info *i = table; i <= last; i++)
        if (i->code == code)
            return i;
    return last;
}

int err_set(struct err *err, int code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    err->code = code;
    err->sys = 0;
    return code;
}

int err_sys(struct err *err, int code, const char *fmt, ...)
{
    int sys = errno;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->msg);
    snprintf(err->msg + n, sizeof err->msg - n, ": %s", strerror(sys));
    err->code = code;
    err->sys = sys;
    return code;
}

int err_in(struct err *err, const char *fmt, ...)
{
    char was[ERR_MSG_SIZE];
    memcpy(was, err->msg, sizeof was);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(err->msg, sizeof err->msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(err->msg);
    snprintf(err->msg + n, sizeof err->msg - n, ": %s", was);
    return err->code;
}

void err_quote(char *out, size_t size, const void *bytes, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = bytes;
    size_t o = 0;
    if (size == 0)
        return;
    for (size_t i = 0; i < n && o + 5 < size; i++) {
        uint8_t c = p[i];
        if (c == '\n') { out[o++] = '\\'; out[o++] = 'n'; }
        else if (c == '\\') { out[o++] = '\\'; out[o++] = '\\'; }
        else if (c >= 0x20 && c < 0x7f) out[o++] = (char)c;
        else { out[o++] = '\\'; out[o++] = 'x'; out[o++] = hex[c >> 4]; out[o++] = hex[c & 15]; }
    }
    out[o] = '\0';
}

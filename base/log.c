/* log.c - one JSON object a line, written with one write(2) so that processes do not interleave. */
#include "base/log.h"
#include "base/clock.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_names[] = { "error", "warn", "info", "debug" };
static const char *log_program = "assay";
static enum log_level log_least = LOG_INFO;

void log_open(const char *program, enum log_level least)
{
    log_program = program;
    log_least = least;
}

static size_t escape(char *out, size_t size, const char *s)
{
    size_t o = 0;
    for (; *s != '\0' && o + 7 < size; s++) {
        uint8_t c = (uint8_t)*s;
        if (c == '"' || c == '\\') { out[o++] = '\\'; out[o++] = (char)c; }
        else if (c < 0x20 || c == 0x7f) o += (size_t)snprintf(out + o, size - o, "\\u%04x", c);
        else out[o++] = (char)c;
    }
    out[o] = '\0';
    return o;
}

static void put(enum log_level level, const char *code, const char *msg)
{
    char esc[1600], line[2048];
    escape(esc, sizeof esc, msg);
    uint64_t t = clock_wall_ns();
    int n = snprintf(line, sizeof line, "{\"ts\":%llu.%03llu,\"level\":\"%s\",\"program\":\"%s\",\"pid\":%d%s%s%s,\"msg\":\"%s\"}\n",
                     (unsigned long long)(t / NS_PER_S), (unsigned long long)(t / NS_PER_MS % 1000),
                     level_names[level], log_program, (int)getpid(),
                     code != NULL ? ",\"code\":\"" : "", code != NULL ? code : "", code != NULL ? "\"" : "", esc);
    if (n > 0 && write(STDERR_FILENO, line, (size_t)n) < 0) { /* nowhere left to say it */ }
}

void log_line(enum log_level level, const char *fmt, ...)
{
    if (level > log_least)
        return;
    char msg[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    put(level, NULL, msg);
}

void log_err(enum log_level level, const struct err *err, const char *fmt, ...)
{
    if (level > log_least)
        return;
    char msg[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    size_t n = strlen(msg);
    snprintf(msg + n, sizeof msg - n, ": %s", err->msg);
    put(level, err_info(err->code)->name, msg);
}

/*
 * log.h - JSON lines on stderr, for programs' main files only; libraries return errors instead.
 * One line per failure. Foreign bytes are escaped.
 */
#pragma once
#include "base/err.h"

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };

void log_open(const char *program, enum log_level least);
void log_line(enum log_level level, const char *fmt, ...) PRINTF_LIKE(2, 3);
void log_err(enum log_level level, const struct err *err, const char *fmt, ...) PRINTF_LIKE(3, 4);

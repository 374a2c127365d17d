/*
 * print.h - what goes to a terminal, and what goes out as JSON.
 *
 * Test names, messages and output come from code that nobody trusts: text is written with control
 * characters, bytes that are no UTF-8 and direction overrides escaped as \xNN. JSON is written by
 * jansson, which escapes what must be; bytes that are no UTF-8 become U+FFFD there.
 */
#pragma once
#include "rollout/cli/view.h"
#include <jansson.h>
#include <stdio.h>

/* One line: newlines and tabs are escaped too. */
void print_text(FILE *f, const void *bytes, size_t n);
void print_str(FILE *f, const char *s);
/* Many lines, each behind `indent`. */
void print_block(FILE *f, const char *indent, const void *bytes, size_t n);
void print_time(FILE *f, uint64_t unix_ns);             /* local time, seconds */

/* A JSON string of any bytes. */
json_t *json_text(const void *bytes, size_t n);
json_t *json_str(const char *s);
json_t *json_strings(const struct str_list *l);
json_t *json_number(double v);                          /* null when it is no finite number */
/* The verdict's keys added to `object`. */
MUST_CHECK int json_add_verdict(json_t *object, const struct verdict_view *v, struct err *err);
MUST_CHECK int json_trajectory(json_t **out, const struct trajectory_view *t, bool whole, struct err *err);
/* The record as a line of JSONL has it; owned by the caller. */
MUST_CHECK int json_task(json_t **out, const struct task *t, struct err *err);
/* The error of a failed write to stdout: a reader that left (`| head`) is ERR_CANCELLED with EPIPE, and no fault. */
MUST_CHECK int print_failed(struct err *err);
/* Takes `value` (which may be NULL: then memory was out). One line, or indented. */
MUST_CHECK int print_json(FILE *f, json_t *value, bool indented, struct err *err);

/* For people: outcome, reward, why, and what failed. */
void print_verdict(FILE *f, const struct verdict_view *v, uint32_t tests_max);
void print_output_end(FILE *f, const struct verdict_view *v);      /* the last lines that the run printed */
const char *reward_text(char out[32], const struct verdict_view *v);

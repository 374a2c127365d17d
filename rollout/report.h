/*
 * report.h - reading what a test framework left behind. Every byte here is foreign.
 *
 * Theory: a reader turns one run's report files and output into results per test id. It never decides what
 * they are worth (verdict.h does) and it never fails on bad bytes: an unreadable report is a report that
 * shows nothing passed, `complete` false and a note that says why. A report that is not complete shows no pass at all:
 * report_read() turns what it called passed to MISSING. A negative return is memory only.
 *
 * Evidence is ranked. A structured report from SANDBOX_REPORT_DIR, which lies outside the patched tree, may
 * say PASSED. Where a framework writes one, its printed lines may only take away from it: they can turn a
 * pass into a failure and never the other way. TAP has nothing but its stream, so its stream is read with
 * the plan, the numbers and the harness's own totals all having to fit.
 *
 * Which reader, for `auto`, in this order (the first that holds):
 *   1  the only required id is `command`                                    -> exit
 *   2  the command runs pytest, or left our junit.xml                       -> pytest
 *   3  it left any other *.xml report file                                  -> junit
 *   4  it runs prove, left a *.tap file, or its output is a TAP stream      -> tap
 *   5  otherwise                                                            -> exit
 * A pytest command without its report stays with pytest and shows nothing passed: it never falls to 5.
 *
 * Ids: pytest's node ids; junit `classname/name`; tap `N - description`, after `file::` under prove and after
 * the outer test's id and `::` in a subtest; exit `command`. Bytes that are not UTF-8 and control characters are
 * written as \xNN. Two results for one id keep the worse.
 */
#pragma once
#include "base/arena.h"
#include "base/err.h"
#include "repos/task.h"
#include "rollout/verdict.h"
#include <stdint.h>

#define REPORT_JUNIT_FILE   "junit.xml"     /* below SANDBOX_REPORT_DIR: where reader_environment() sends pytest */
#define REPORT_TESTS_MAX    200000u
#define REPORT_ID_MAX       4096u           /* bytes; longer ids are cut, which makes them match nothing */
#define REPORT_MESSAGE_MAX  512u

struct report_file {
    const uint8_t *name; uint32_t name_len;
    bool cut;                               /* the size cap cut its content */
    const uint8_t *bytes; size_t len;
};

struct report_input {
    const struct task *task;
    const struct run_facts *run;
    const struct report_file *files; uint32_t file_count;
    const uint8_t *output; size_t output_len;
    bool output_cut;                        /* the middle of the output was dropped */
};

/* sandbox/report_files.h -> files pointing into `bytes`. A broken tail ends the list: what is whole before it stays. */
MUST_CHECK int report_files_parse(struct report_file **out, uint32_t *out_count, struct arena *a, const void *bytes, size_t n,
                                  struct err *err);
/* Choose the reader and read. Everything in *out lies in `a` or is constant. */
MUST_CHECK int report_read(struct report *out, struct arena *a, const struct report_input *in, struct err *err);

/* The readers themselves, by name. */
MUST_CHECK int report_read_pytest(struct report *out, struct arena *a, const struct report_input *in, struct err *err);
MUST_CHECK int report_read_junit(struct report *out, struct arena *a, const struct report_input *in, struct err *err);
MUST_CHECK int report_read_tap(struct report *out, struct arena *a, const struct report_input *in, struct err *err);
MUST_CHECK int report_read_exit(struct report *out, struct arena *a, const struct report_input *in, struct err *err);

/* --- what the readers share: report.c --- */

/* A set of results under construction. Zeroed with `a` set is empty. */
struct report_builder {
    struct arena *a;
    struct test_result *tests; uint32_t count, cap;
    uint32_t *slots, slot_count;            /* hash of id -> index + 1 */
};
/* One result; the worse of two stays. `id` must be NUL-terminated text as report_text() makes it. */
MUST_CHECK int report_add(struct report_builder *b, const char *id, enum test_status status, const char *message,
                          const char *evidence, double duration_s, struct err *err);
const struct test_result *report_find(const struct report_builder *b, const char *id);
/* Foreign bytes as valid UTF-8 on one line, at most `max` bytes of input used. NULL: out of memory. */
char *report_text(struct arena *a, const void *bytes, size_t n, size_t max);
/* As report_text(), up to the first line end. */
char *report_first_line(struct arena *a, const void *bytes, size_t n, size_t max);
MUST_CHECK int report_no_memory(struct err *err);
/* Is `word` a command word of the shell line: `pytest`, `/usr/bin/pytest`, `-m pytest`? */
bool report_runs(const char *test_cmd, const char *word);
bool report_is_tap(const uint8_t *output, size_t n);
/* The next line of `bytes` from *at, without its end; terminal colour sequences are left in. False at the end. */
bool report_next_line(const uint8_t *bytes, size_t n, size_t *at, const uint8_t **out_line, size_t *out_len);

/* --- JUnit XML as data: report_junit.c --- */
struct junit_case {
    const char *suite, *classname, *name, *file, *message;  /* "" when absent */
    enum test_status status;
    double duration_s;
};
struct junit_doc {
    struct junit_case *cases; uint32_t count, cap;
    bool has_counts;
    uint64_t tests, failures, errors, skipped;  /* as the innermost suites claim */
    const char *fault;                          /* NULL: well-formed to its end; else one line */
};
/* Raw control characters and references to them are dropped, bytes that are not UTF-8 written as \xNN; DOCTYPE refused. */
MUST_CHECK int junit_parse(struct junit_doc *out, struct arena *a, const void *bytes, size_t n, struct err *err);

/* --- pytest's printed summary: report_pytest_text.c --- */
struct pytest_line { enum test_status status; const char *id, *message; };
struct pytest_text {
    struct pytest_line *lines; uint32_t count, cap;
    bool has_summary, has_totals, has_end;      /* seen: the -rA section; the closing totals; that the report is written */
    uint32_t passed, failed, errors, skipped, xfailed, xpassed;     /* of the last totals line */
};
/* `known` ids settle where an id ends and its message begins when both hold brackets; may be empty. */
MUST_CHECK int pytest_text_read(struct pytest_text *out, struct arena *a, const uint8_t *output, size_t n,
                                const struct str_list *known, struct err *err);

/*
 * cli.h - the command line `assay`: a plain client of the server's API.
 *
 * Theory: one table (assay.c) has a row per command: its words, one line of help, its options and
 * the function that runs it (cmd_<verb>.c). Options are parsed by that table before anything is
 * done; an unknown one is refused with the nearest known name. Data goes to stdout, talk to stderr.
 * A command returns an exit status (>= 0) or a negative error code with its text; only main() prints
 * errors and turns codes into exit statuses, by the table in base/err.c.
 *
 * The server is either named by --server, or a private assayd for one state directory which is
 * started on demand (server.c) and found again by everyone who uses the same directory (connect.c).
 *
 * Only wire_cli.c knows protobuf; the commands see the plain structs of view.h.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include <stdint.h>
#include <stdio.h>

struct cli_option {
    const char *name;           /* long name without dashes; NULL ends a list */
    char        letter;         /* short form or 0 */
    const char *arg;            /* what its value is called in the help; NULL: a flag */
    const char *help;
};

struct cli;
struct cli_command {
    const char *noun, *verb;    /* "tasks", "import"; verb NULL for a one-word command */
    const char *summary;        /* one line */
    const char *args;           /* positional arguments as the help shows them, or "" */
    uint32_t    args_min, args_max;
    const struct cli_option *options;
    const char *more;           /* further help text, or "" */
    int (*run)(struct cli *c, struct err *err);
    bool        creates;        /* makes the state directory when it isn't there; the others only read what one holds */
};

struct cli_value { const struct cli_option *option; const char *text; };

struct server;                  /* connection and, when ours, the process: connect.c, server.c */
struct cli {
    const struct cli_command *command;
    const char *state;          /* absolute path of the state directory */
    bool        state_chosen;   /* false: ./.assay was taken because nothing was said */
    const char *server;         /* --server, or NULL: embedded */
    uint32_t    slots;          /* --slots, 0: the server's default */
    bool        json;
    struct cli_value *values; uint32_t value_count;
    const char **args; uint32_t arg_count;
    struct server *conn;        /* NULL until the first call */
    struct arena arena;         /* lives as long as the command */
};

/* --- options.c --- */
/* Parse the words behind the command's own. ERR_USAGE quotes the offending word. */
MUST_CHECK int cli_parse(struct cli *c, int argc, char **argv, struct err *err);
extern const struct cli_option cli_common_options[];
const char *cli_value(const struct cli *c, const char *name);           /* last one given, or NULL */
const char *cli_value_nth(const struct cli *c, const char *name, uint32_t nth);
/* The named options as they were given, each with a space before it, fit for a shell: for hints that can be pasted. */
const char *cli_retype(struct cli *c, const char *const *names, uint32_t count);
bool cli_flag(const struct cli *c, const char *name);
/* The option's whole number within [min, max], or `otherwise` when it was not given. */
MUST_CHECK int cli_number(const struct cli *c, const char *name, uint64_t min, uint64_t max, uint64_t otherwise,
                          uint64_t *out, struct err *err);
/* Seconds with fraction, 0.1 to 86400 as in a task; 0 when not given. */
MUST_CHECK int cli_seconds(const struct cli *c, const char *name, double *out, struct err *err);
/* The word of `words` nearest to `s`, or NULL when none is near. */
const char *cli_nearest(const char *s, const char *const *words, uint32_t count);

/* --- assay.c --- */
extern const struct cli_command cli_commands[];
extern const uint32_t cli_command_count;
void cli_say(const struct cli *c, const char *fmt, ...) PRINTF_LIKE(2, 3);     /* talk: one line on stderr */

/* --- connect.c --- */
/*
 * One request, one answer, from whatever server the options name. A lost connection is opened again
 * (and a private server started again) and the same bytes are sent again: requests that change
 * anything carry a request id or are idempotent, so a repeat is safe. A full queue is waited for.
 */
MUST_CHECK int cli_call(struct cli *c, const char *method, const struct buf *request, struct buf *answer,
                        struct err *err);
/*
 * A stream of messages. `next` gets each one; it returns 0 to go on, > 0 to end, < 0 to fail.
 * When the connection is lost, `again` writes the request to go on with (from the next cursor).
 */
struct cli_stream {
    const char *method;
    int (*again)(void *arg, struct buf *request, struct err *err);
    int (*next)(void *arg, const struct buf *message, struct err *err);
    void *arg;
};
MUST_CHECK int cli_stream(struct cli *c, const struct cli_stream *s, struct err *err);
MUST_CHECK int cli_connect(struct cli *c, struct err *err);
/* Only look: 1 when a server answers (connection kept), 0 when none does. Never starts one. ERR_NOT_FOUND: no state. */
MUST_CHECK int cli_connect_running(struct cli *c, struct err *err);
/* Append to an ERR_NOT_FOUND which state or server was asked; returns err->code. */
int cli_say_where(const struct cli *c, struct err *err);
const char *cli_address(const struct cli *c);       /* of the open connection: for a child of ours */
void cli_disconnect(struct cli *c);

/* --- server.c: a private assayd --- */
struct server_process {
    int pid_fd;                 /* -1: none */
    int lifeline_fd;            /* the server ends when every writer of it is gone and no client is left */
};
#define SERVER_PROCESS_NONE ((struct server_process){ .pid_fd = -1, .lifeline_fd = -1 })
/*
 * Start assayd for the state directory and wait until it says that it is ready.
 * state_fd is an open directory of it. The server listens on the state's own socket by itself.
 * ERR_BUSY: it ended with "come back later" (another server is just going); try again.
 */
MUST_CHECK int server_start(struct server_process *out, const char *state, int state_fd, uint32_t slots,
                            struct err *err);
void server_stop(struct server_process *p, uint64_t wait_ns);   /* let go, wait that long for its end */
/* Absolute path of a program of ours: beside this one. */
MUST_CHECK int server_program(const char **out, struct arena *a, const char *name, struct err *err);

/* --- files.c --- */
/* Open for reading; "-": stdin. *out_size is that of a regular file, else 0. */
MUST_CHECK int cli_open_file(int *out, uint64_t *out_size, const char *path, struct err *err);
MUST_CHECK int cli_read_file(struct buf *out, const char *path, size_t max, struct err *err);   /* "-": stdin */
/* Fresh request id "cli-<32 hex>" in the arena. */
MUST_CHECK int cli_request_id(const char **out, struct arena *a, struct err *err);

/* --- commands --- */
int cmd_tasks_import(struct cli *c, struct err *err);
int cmd_tasks_ls(struct cli *c, struct err *err);
int cmd_tasks_show(struct cli *c, struct err *err);
int cmd_tasks_duplicates(struct cli *c, struct err *err);
int cmd_eval(struct cli *c, struct err *err);
int cmd_mine(struct cli *c, struct err *err);
int cmd_log_ls(struct cli *c, struct err *err);
int cmd_log_cat(struct cli *c, struct err *err);
int cmd_replay(struct cli *c, struct err *err);
int cmd_learn(struct cli *c, struct err *err);
int cmd_status(struct cli *c, struct err *err);
int cmd_doctor(struct cli *c, struct err *err);
int cmd_version(struct cli *c, struct err *err);
int cmd_help(struct cli *c, struct err *err);
extern const struct cli_option cmd_tasks_import_options[], cmd_tasks_ls_options[], cmd_tasks_show_options[],
    cmd_eval_options[], cmd_mine_options[], cmd_log_ls_options[], cmd_log_cat_options[], cmd_replay_options[],
    cmd_learn_options[], cli_no_options[];

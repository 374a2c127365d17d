/*
 * rpc_catalog.c - the Catalog service. Get, List and Duplicates read SQLite here; Import runs `assay-worker import` per call.
 *
 * Imports are taken one after the other: the store has one writer. A call whose client has gone is finished all the
 * same when it has begun (the store stays whole either way) and dropped when it has not.
 */
#include "proto/grpc_server.h"
#include "repos/repos.h"
#include "rollout/server.h"
#include "rollout/wire.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#define ANSWER_MAX ((size_t)16 << 20)

struct import_call {
    STAILQ_ENTRY(import_call) next;
    struct imports *imports;
    struct grpc_stream *stream;         /* NULL once the client has gone */
    struct arena arena;
    struct import_request request;
    uv_process_t process;
    uv_pipe_t    in, out, fault;        /* the child's stdin, stdout, stderr */
    uv_write_t   write;
    struct buf   answer, fault_text;
    int  open_handles;                  /* freed when all have closed */
    int  exit_status;
};

struct imports {
    struct server *server;
    STAILQ_HEAD(, import_call) waiting;
    struct import_call *running;
    bool closing;
};

static void import_next(struct imports *i);

int imports_open(struct imports **out, struct server *server, struct err *err)
{
    struct imports *i = calloc(1, sizeof *i);
    if (i == NULL)
        return err_set(err, ERR_LIMIT, "imports: out of memory");
    i->server = server;
    STAILQ_INIT(&i->waiting);
    *out = i;
    return 0;
}

bool imports_idle(const struct imports *i)
{
    return i == NULL || (i->running == NULL && STAILQ_EMPTY(&i->waiting));
}

static void call_free(struct import_call *c)
{
    buf_done(&c->answer);
    buf_done(&c->fault_text);
    arena_done(&c->arena);
    free(c);
}

/* The child is gone and its pipes are closed: say what came of it, then let the next one run. */
static void call_finish(struct import_call *c)
{
    struct imports *i = c->imports;
    struct err err = { 0 };
    int rc = 0;
    if (c->exit_status != 0) {
        /* the child's last line is "<code name>: <message>" */
        char *text = c->fault_text.data != NULL ? (char *)c->fault_text.data : "";
        text[strcspn(text, "\n")] = '\0';
        char *colon = strstr(text, ": ");
        int code = ERR_LOST;
        for (int k = ERR_USAGE; colon != NULL && k >= ERR_INTERNAL; k--)
            if (strlen(err_info(k)->name) == (size_t)(colon - text) && memcmp(err_info(k)->name, text, (size_t)(colon - text)) == 0)
                code = k;
        rc = err_set(&err, code, "%s", code == ERR_LOST ? "the importer died, or used up its CPU time on a damaged repository; nothing of this call was kept" : colon + 2);
    }
    if (c->stream != NULL) {
        struct grpc_stream *s = c->stream;
        c->stream = NULL;
        grpc_stream_set_data(s, NULL);
        rpc_answer(s, rc, &c->answer, &err);
    }
    call_free(c);
    i->running = NULL;
    if (i->closing && STAILQ_EMPTY(&i->waiting))
        free(i);
    else
        import_next(i);
}

static void on_handle_closed(uv_handle_t *h)
{
    struct import_call *c = h->data;
    if (--c->open_handles == 0)
        call_finish(c);
}

static void close_handle(uv_handle_t *h)
{
    if (!uv_is_closing(h))
        uv_close(h, on_handle_closed);
}

static void on_alloc(uv_handle_t *h, size_t suggested, uv_buf_t *out)
{
    struct import_call *c = h->data;
    (void)suggested;
    struct err err = { 0 };
    struct buf *b = h == (uv_handle_t *)&c->out ? &c->answer : &c->fault_text;
    void *p = buf_reserve(b, 4096, &err);
    *out = uv_buf_init(p, p != NULL ? 4096 : 0);
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    (void)buf;
    struct import_call *c = stream->data;
    struct buf *b = stream == (uv_stream_t *)&c->out ? &c->answer : &c->fault_text;
    if (n > 0) {
        b->len += (size_t)n;
        b->data[b->len] = '\0';
    } else if (n < 0) {
        close_handle((uv_handle_t *)stream);
    }
}

static void on_written(uv_write_t *w, int status)
{
    (void)status;
    struct import_call *c = w->data;
    close_handle((uv_handle_t *)&c->in);
}

static void on_exit_child(uv_process_t *p, int64_t status, int signal_number)
{
    struct import_call *c = p->data;
    c->exit_status = signal_number != 0 ? 128 + signal_number : (int)status;
    close_handle((uv_handle_t *)&c->in);
    close_handle((uv_handle_t *)p);
}

static void import_start(struct import_call *c)
{
    struct server *server = c->imports->server;
    char path[4200], line[24];
    snprintf(path, sizeof path, "%s/assay-worker", server->config.bin_dir);
    snprintf(line, sizeof line, "%llu", (unsigned long long)c->request.first_line);
    char *argv[] = { path, "import", server->store_dir, (char *)c->request.repos_dir, (char *)c->request.source, line,
                     c->request.skip_known ? "skip" : NULL, NULL };
    uv_pipe_t *pipes[3] = { &c->in, &c->out, &c->fault };
    uv_stdio_container_t stdio[3];
    for (int k = 0; k < 3; k++) {
        uv_pipe_init(&server->loop, pipes[k], 0);
        pipes[k]->data = c;
        stdio[k] = (uv_stdio_container_t){ .flags = UV_CREATE_PIPE | (k == 0 ? UV_READABLE_PIPE : UV_WRITABLE_PIPE),
                                           .data.stream = (uv_stream_t *)pipes[k] };
    }
    c->process.data = c;
    c->open_handles = 4;
    uv_process_options_t options = { .exit_cb = on_exit_child, .file = path, .args = argv, .stdio = stdio, .stdio_count = 3 };
    int rc = uv_spawn(&server->loop, &c->process, &options);
    if (rc < 0) {
        struct err err = { 0 };
        c->exit_status = 70;
        if (buf_addf(&c->fault_text, &err, "system: starting %s: %s", path, uv_strerror(rc)) < 0)
            c->exit_status = 71;
        for (int k = 0; k < 3; k++)
            close_handle((uv_handle_t *)pipes[k]);
        close_handle((uv_handle_t *)&c->process);
        return;
    }
    c->write.data = c;
    uv_buf_t input = uv_buf_init((char *)c->request.jsonl, (unsigned)c->request.jsonl_len);
    if (uv_write(&c->write, (uv_stream_t *)&c->in, &input, 1, on_written) < 0)
        close_handle((uv_handle_t *)&c->in);
    if (uv_read_start((uv_stream_t *)&c->out, on_alloc, on_read) < 0)
        close_handle((uv_handle_t *)&c->out);
    if (uv_read_start((uv_stream_t *)&c->fault, on_alloc, on_read) < 0)
        close_handle((uv_handle_t *)&c->fault);
}

static void import_next(struct imports *i)
{
    if (i->running != NULL || STAILQ_EMPTY(&i->waiting))
        return;
    i->running = STAILQ_FIRST(&i->waiting);
    STAILQ_REMOVE_HEAD(&i->waiting, next);
    import_start(i->running);
}

void rpc_import(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    struct err err = { 0 };
    struct import_call *c = calloc(1, sizeof *c);
    if (c == NULL) {
        err_set(&err, ERR_LIMIT, "import: out of memory");
        rpc_fail(s, &err);
        return;
    }
    c->imports = server->imports;
    c->answer.max = ANSWER_MAX;
    c->fault_text.max = (size_t)64 << 10;
    c->stream = s;
    if (wire_read_import(&c->request, &c->arena, bytes, n, &err) < 0) {
        rpc_fail(s, &err);
        call_free(c);
        return;
    }
    grpc_stream_set_data(s, c);
    STAILQ_INSERT_TAIL(&server->imports->waiting, c, next);
    import_next(server->imports);
}

/* Only a child that is there: one that ended has no id any more, one that was never started has id 0, which is us all. */
static void import_kill(struct import_call *c)
{
    if (uv_is_active((uv_handle_t *)&c->process))
        uv_process_kill(&c->process, SIGKILL);
}

/*
 * The caller has gone. A waiting call is dropped; the running child is ended, for nobody hears its answer, its
 * records are one transaction, and a damaged repository may hold it, and all imports behind it, for ever.
 */
void rpc_import_closed(void *arg, struct grpc_stream *s)
{
    struct server *server = arg;
    struct import_call *c = grpc_stream_data(s);
    if (c == NULL)
        return;
    c->stream = NULL;
    if (c != server->imports->running) {
        STAILQ_REMOVE(&server->imports->waiting, c, import_call, next);
        call_free(c);
    } else {
        import_kill(c);
    }
}

void imports_close(struct imports *i)
{
    if (i == NULL)
        return;
    struct err err = { 0 };
    err_set(&err, ERR_UNAVAILABLE, "the server is stopping");
    i->closing = true;
    while (!STAILQ_EMPTY(&i->waiting)) {
        struct import_call *c = STAILQ_FIRST(&i->waiting);
        STAILQ_REMOVE_HEAD(&i->waiting, next);
        if (c->stream != NULL) {
            grpc_stream_set_data(c->stream, NULL);
            rpc_fail(c->stream, &err);
        }
        call_free(c);
    }
    if (i->running == NULL)
        free(i);
    else
        import_kill(i->running);
}

void rpc_get_task(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    own_arena a = { .budget = (size_t)64 << 20 };
    own_buf out = { 0 };
    struct err err = { 0 };
    struct get_task_request request;
    struct task task;
    int rc = wire_read_get_task(&request, &a, bytes, n, &err);
    if (rc == 0)
        rc = catalog_get(server->catalog, &task, &a, request.id, &err);
    if (rc == 0)
        rc = wire_write_task(&out, &task, request.with_fix, &err);
    rpc_answer(s, rc, &out, &err);
}

void rpc_list_tasks(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    own_arena a = { .budget = (size_t)64 << 20 };
    own_buf out = { 0 };
    struct err err = { 0 };
    struct list_tasks_request request;
    struct task *tasks;
    uint32_t count;
    const char *next;
    int rc = wire_read_list_tasks(&request, &a, bytes, n, &err);
    if (rc == 0)
        rc = catalog_list(server->catalog, &tasks, &count, &next, &a, request.after, &request.filter, request.limit,
                          &err);
    const struct task **list = NULL;
    if (rc == 0 && (list = arena_alloc(&a, (count + 1) * sizeof *list)) == NULL)
        rc = err_set(&err, ERR_LIMIT, "task list: out of memory");
    for (uint32_t k = 0; rc == 0 && k < count; k++)
        list[k] = &tasks[k];
    if (rc == 0)
        rc = wire_write_tasks(&out, list, count, next, &err);
    rpc_answer(s, rc, &out, &err);
}

void rpc_duplicates(void *arg, struct grpc_stream *s, const void *bytes, size_t n)
{
    struct server *server = arg;
    own_arena a = { .budget = (size_t)64 << 20 };
    own_buf out = { 0 };
    struct err err = { 0 };
    struct duplicates_request request;
    struct catalog_twins *groups;
    uint32_t count;
    const char *next;
    int rc = wire_read_duplicates(&request, &a, bytes, n, &err);
    if (rc == 0)
        rc = catalog_duplicates(server->catalog, &groups, &count, &next, &a, request.after, request.limit, &err);
    if (rc == 0)
        rc = wire_write_duplicates(&out, groups, count, next, &err);
    rpc_answer(s, rc, &out, &err);
}

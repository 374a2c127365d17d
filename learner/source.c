/* source.c - see source.h. */
#include "learner/source.h"
#include "base/clock.h"
#include "base/digest.h"
#include "base/own.h"
#include "learner/wire.h"
#include "proto/grpc_client.h"
#include <inttypes.h>
#include <string.h>
#include <time.h>

#define CALL_NS    (30 * NS_PER_S)      /* of one small call: far above any healthy answer */
#define SLICE_NS   (50 * NS_PER_MS)     /* of one wait; between two, the ranks are told that we live */
#define WINDOW     64                   /* episodes sent and not yet answered: the server's queue stays short */
#define TRIES_MAX  60                   /* of a refused episode, one a second at the end */
#define MESSAGE_MAX ((size_t)64 << 20)

struct source {
    struct source_config c;
    struct grpc_client *client;
    struct grpc_call *stream;           /* Subscribe, open as long as the connection */
    uint64_t next_cursor;               /* first record not yet seen */
    struct buf in, out;
};

static void disconnect(struct source *s)
{
    grpc_call_end(s->stream);
    grpc_client_close(s->client);
    s->stream = NULL;
    s->client = NULL;
}

static int connect_client(struct source *s, struct err *err)
{
    if (s->client != NULL)
        return 0;
    int rc = grpc_client_open(&s->client, s->c.address, CALL_NS, err);
    return rc < 0 ? err_in(err, "server %s", s->c.address) : 0;
}

int source_open(struct source **out, const struct source_config *c, struct err *err)
{
    struct source *s = calloc(1, sizeof *s);
    if (s == NULL)
        return err_set(err, ERR_LIMIT, "source: out of memory");
    *s = (struct source){ .c = *c, .in = { .max = MESSAGE_MAX }, .out = { .max = MESSAGE_MAX } };
    int rc = connect_client(s, err);
    if (rc < 0) {
        source_close(s);
        return rc;
    }
    *out = s;
    return 0;
}

void source_close(struct source *s)
{
    if (s == NULL)
        return;
    disconnect(s);
    buf_done(&s->in);
    buf_done(&s->out);
    free(s);
}

/* A pause that the other ranks survive. */
static void rest(struct source *s, uint64_t ns)
{
    for (uint64_t until = clock_mono_ns() + ns, now; (now = clock_mono_ns()) < until; ) {
        collective_beat(s->c.ranks);
        uint64_t slice = until - now < SLICE_NS ? until - now : SLICE_NS;
        nanosleep(&(struct timespec){ .tv_nsec = (long)slice }, NULL);
    }
}

/* One small call: s->out to s->in, repeated over a new connection while that can help. */
static int call(struct source *s, const char *method, struct err *err)
{
    uint64_t until = clock_mono_ns() + s->c.patience_ns;
    for (;;) {
        buf_reset(&s->in);
        int rc = connect_client(s, err);
        if (rc == 0)
            rc = grpc_client_unary(s->client, method, s->out.data, s->out.len, &s->in, CALL_NS, err);
        if (rc == 0 || !err_info(rc)->retryable || clock_mono_ns() > until)
            return rc < 0 ? rc : 0;
        disconnect(s);
        rest(s, NS_PER_S);
    }
}

/* --- tasks and versions --- */

int source_tasks(struct source *s, struct rl_task **out, size_t *out_n, struct arena *a, uint32_t context, struct err *err)
{
    own_mem struct rl_task *all = NULL;
    size_t n = 0, room = 0;
    const char *after = "";
    do {
        struct wire_task *page;
        size_t page_n;
        int rc;
        if ((rc = wire_write_list(&s->out, s->c.tasks, after, err)) < 0 || (rc = call(s, "/assay.v1.Catalog/List", err)) < 0 ||
            (rc = wire_read_list(&page, &page_n, &after, a, &s->in, err)) < 0)
            return rc;
        for (size_t i = 0; i < page_n; i++) {
            if (n == room) {
                room = room == 0 ? 64 : 2 * room;
                struct rl_task *more = realloc(all, room * sizeof *more);
                if (more == NULL)
                    return err_set(err, ERR_LIMIT, "source: no memory for %zu tasks", room);
                all = more;
            }
            if (page[i].extra_json[0] == '\0' &&
                ((rc = wire_write_get(&s->out, page[i].id, err)) < 0 || (rc = call(s, "/assay.v1.Catalog/Get", err)) < 0 ||
                 (rc = wire_read_task(&page[i], a, &s->in, err)) < 0))
                return rc;
            rc = choice_read(&all[n].choice, a, page[i].extra_json, context, err);
            if (rc < 0)
                return err_in(err, "task %s", page[i].id);
            all[n].id = page[i].id;
            n += (size_t)rc;
        }
    } while (after[0] != '\0');
    *out = arena_alloc(a, (n + 1) * sizeof **out);
    if (*out == NULL)
        return err_set(err, ERR_LIMIT, "source: no memory for %zu tasks", n);
    if (n > 0)
        memcpy(*out, all, n * sizeof *all);
    *out_n = n;
    return 0;
}

int source_current(struct source *s, uint64_t *out_version, struct err *err)
{
    int rc = wire_write_current(&s->out, s->c.run, err);
    if (rc < 0)
        return rc;
    rc = call(s, "/assay.v1.Policy/Current", err);
    *out_version = 0;
    if (rc == ERR_NOT_FOUND)
        return 0;
    return rc < 0 ? rc : wire_read_current(out_version, &s->in, err);
}

int source_begin(struct source *s, uint64_t cursor, struct err *err)
{
    s->next_cursor = cursor;
    if (cursor != 0)
        return 0;
    int rc;
    buf_reset(&s->out);                 /* StatusRequest has no fields */
    if ((rc = call(s, "/assay.v1.Rollout/Status", err)) < 0)
        return rc;
    return wire_read_status(&s->next_cursor, &s->in, err);
}

static int publish(void *arg, const struct rl_version *v, struct err *err)
{
    struct source *s = arg;
    uint64_t got;
    const struct wire_policy p = { .version = v->version, .cursor = v->cursor, .manifest_path = v->manifest_path,
        .manifest_sha256 = v->manifest_sha256, .made_by = s->c.run, .loss = v->loss, .grad_norm = v->grad_norm,
        .reward_mean = v->reward_mean, .entropy = v->entropy };
    int rc;
    if ((rc = wire_write_publish(&s->out, &p, err)) < 0 || (rc = call(s, "/assay.v1.Policy/Publish", err)) < 0)
        return err_in(err, "publish version %" PRIu64, v->version);
    if ((rc = wire_read_publish(&got, &s->in, err)) < 0)
        return rc;
    if (got != v->version)
        return err_set(err, ERR_PROTOCOL, "publish: the server has version %" PRIu64 " after %" PRIu64 " was sent", got,
            v->version);
    return 0;
}

/* --- a round --- */

enum ticket_state { TICKET_WAITING, TICKET_SENT, TICKET_LOGGED, TICKET_DONE };
struct ticket { enum ticket_state state; uint32_t tries; uint64_t not_before_ns; const char *id; };

struct round {
    struct source *s;
    struct rl_round *r;
    struct ticket *tickets;             /* [r->n] */
    struct grpc_call *call;             /* EvaluateMany */
    size_t done, in_flight;
    uint64_t heard_ns;                  /* last sign of the server */
};

static struct ticket *ticket_of(struct round *k, const char *id, size_t *out_index)
{
    for (size_t i = 0; i < k->r->n; i++)
        if (strcmp(k->tickets[i].id, id) == 0) {
            *out_index = i;
            return &k->tickets[i];
        }
    return NULL;
}

static void finish(struct round *k, struct ticket *t, struct rl_episode *e)
{
    if (t->state == TICKET_SENT)
        k->in_flight--;
    t->state = TICKET_DONE;
    e->answered = true;
    k->done++;
}

static int send_one(struct round *k, size_t i, struct err *err)
{
    struct source *s = k->s;
    const struct rl_episode *e = &k->r->episodes[i];
    const struct rl_task *task = &k->r->tasks[e->task];
    own_arena scratch = { 0 };
    const char *patch = choice_patch(&task->choice, e->choice, &scratch);
    if (patch == NULL)
        return err_set(err, ERR_LIMIT, "source: no memory for the patch of %s", task->id);
    struct wire_evaluate w = { .request_id = k->tickets[i].id, .task_id = task->id, .run = s->c.run, .model = "assay-learner",
        .patch = patch, .patch_len = strlen(patch), .tokens = e->tokens, .logprobs = e->logprobs, .mask = e->mask, .n = e->n,
        .version = k->r->version, .seed = e->seed, .choice_count = task->choice.n_options, .group_want = k->r->group,
        .group_index = e->index };
    struct digest_ctx d;
    struct digest group;
    digest_start(&d);
    digest_add_str(&d, s->c.run);
    digest_add_u64(&d, k->r->step);
    digest_add_str(&d, task->id);
    digest_finish(&d, &group);
    memcpy(w.group_id, group.bytes, sizeof w.group_id);
    int rc = wire_write_evaluate(&s->out, &w, err);
    if (rc < 0 || (rc = grpc_call_send(k->call, s->out.data, s->out.len, err)) < 0)
        return rc;
    k->tickets[i].state = TICKET_SENT;
    k->in_flight++;
    return 0;
}

static int open_calls(struct round *k, struct err *err)
{
    struct source *s = k->s;
    int rc = connect_client(s, err);
    if (rc < 0)
        return rc;
    if (s->stream == NULL) {
        if ((rc = grpc_call_start(&s->stream, s->client, "/assay.v1.Trajectories/Subscribe", 0, err)) < 0 ||
            (rc = wire_write_subscribe(&s->out, s->next_cursor, s->c.tasks, err)) < 0 ||
            (rc = grpc_call_send(s->stream, s->out.data, s->out.len, err)) < 0 || (rc = grpc_call_send_end(s->stream, err)) < 0)
            return rc;
    }
    if (k->call == NULL && (rc = grpc_call_start(&k->call, s->client, "/assay.v1.Rollout/EvaluateMany", 0, err)) < 0)
        return rc;
    return 0;
}

static int send_some(struct round *k, struct err *err)
{
    uint64_t now = clock_mono_ns();
    for (size_t i = 0; i < k->r->n && k->in_flight < WINDOW; i++) {
        if (k->tickets[i].state != TICKET_WAITING || k->tickets[i].not_before_ns > now)
            continue;
        int rc = send_one(k, i, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* One record of the stream. Those of other runs and of earlier tries pass by. */
static int take_record(struct round *k, struct err *err)
{
    struct source *s = k->s;
    struct wire_trajectory t;
    size_t i;
    int rc = wire_read_trajectory(&t, k->r->arena, &s->in, err);
    if (rc < 0)
        return rc;
    if (t.cursor < s->next_cursor)
        return err_set(err, ERR_PROTOCOL, "the trajectory stream went back from cursor %" PRIu64 " to %" PRIu64, s->next_cursor,
            t.cursor);
    s->next_cursor = t.cursor + 1;
    struct ticket *ticket = ticket_of(k, t.request_id, &i);
    if (ticket == NULL || ticket->state == TICKET_DONE)
        return 0;
    struct rl_episode *e = &k->r->episodes[i];
    /* The record is what is learned from; that it is the episode we sent is worth a look. */
    if (t.n != e->n || memcmp(t.tokens, e->tokens, e->n * sizeof *e->tokens) != 0 || t.version != k->r->version)
        return err_set(err, ERR_CONFLICT, "trajectory %" PRIu64 ": request %s is on record with another sample; was this run's "
                       "name used before? Pass another --run", t.cursor, t.request_id);
    e->has_reward = t.has_reward;
    e->reward = t.reward;
    e->sample = (struct sample){ .tokens = t.tokens, .logprobs = t.logprobs, .mask = t.mask, .n = t.n,
                                 .choice_first = t.choice_first, .choice_count = t.choice_count };
    finish(k, ticket, e);
    return 0;
}

/* One reply: the record is on its way, or the request was refused. */
static int take_answer(struct round *k, struct err *err)
{
    struct wire_answer a;
    size_t i;
    int rc = wire_read_answer(&a, &k->s->in, err);
    if (rc < 0)
        return rc;
    struct ticket *t = ticket_of(k, a.request_id, &i);
    if (t == NULL || t->state != TICKET_SENT)
        return 0;
    if (a.cursor != 0) {
        k->in_flight--;
        t->state = TICKET_LOGGED;
        return 0;
    }
    if (!a.retryable)
        return err_set(err, strcmp(a.fault, "conflict") == 0 ? ERR_CONFLICT : ERR_BAD_INPUT, "request %s was refused: %s: %s",
            t->id, a.fault, a.reason);
    struct rl_episode *e = &k->r->episodes[i];
    if (++t->tries >= TRIES_MAX) {      /* ours, not the policy's: no reward */
        e->sample = (struct sample){ .tokens = e->tokens, .logprobs = e->logprobs, .mask = e->mask, .n = e->n };
        finish(k, t, e);
        return 0;
    }
    k->in_flight--;
    t->state = TICKET_WAITING;
    uint64_t pause = (20 * NS_PER_MS) << (t->tries < 6 ? t->tries : 6);
    t->not_before_ns = clock_mono_ns() + (pause < NS_PER_S ? pause : NS_PER_S);
    return 0;
}

/* Wait a little and take all that is there. An ended call is a lost connection. */
static int listen(struct round *k, struct err *err)
{
    struct source *s = k->s;
    struct { struct grpc_call *call; int (*take)(struct round *k, struct err *err); } from[] = {
        { s->stream, take_record }, { k->call, take_answer } };
    uint64_t wait = SLICE_NS;
    for (int i = 0; i < 2; i++)
        for (;; wait = 0) {
            int rc = grpc_call_recv(from[i].call, &s->in, wait, err);
            if (rc == ERR_DEADLINE)
                break;
            if (rc == 0)
                return err_set(err, ERR_UNAVAILABLE, "server %s ended the call", s->c.address);
            if (rc < 0 || (rc = from[i].take(k, err)) < 0)
                return rc;
            k->heard_ns = clock_mono_ns();
        }
    return 0;
}

static int judge_round(struct round *k, struct err *err)
{
    struct source *s = k->s;
    while (k->done < k->r->n) {
        collective_beat(s->c.ranks);
        int rc = collective_check(s->c.ranks, err);
        if (rc < 0)                     /* a rank of ours, not the server: waiting for verdicts is no reason not to notice */
            return rc;
        if ((rc = open_calls(k, err)) == 0 && (rc = send_some(k, err)) == 0)
            rc = listen(k, err);
        bool late = clock_mono_ns() - k->heard_ns > s->c.patience_ns;
        if (rc == 0 && late)
            return err_set(err, ERR_DEADLINE, "server %s: %zu of %zu episodes without an answer for %" PRIu64 " s", s->c.address,
                           k->r->n - k->done, k->r->n, s->c.patience_ns / NS_PER_S);
        if (rc == 0)
            continue;
        if (!err_info(rc)->retryable || late)
            return rc;
        grpc_call_end(k->call);
        k->call = NULL;
        disconnect(s);
        for (size_t i = 0; i < k->r->n; i++)
            if (k->tickets[i].state == TICKET_SENT)
                k->tickets[i].state = TICKET_WAITING;
        k->in_flight = 0;
        rest(s, NS_PER_S);
    }
    return 0;
}

static int judge(void *arg, struct rl_round *r, struct err *err)
{
    struct source *s = arg;
    struct round k = { .s = s, .r = r, .heard_ns = clock_mono_ns() };
    k.tickets = arena_alloc(r->arena, r->n * sizeof *k.tickets);
    for (size_t i = 0; i < r->n && k.tickets != NULL; i++) {
        const struct rl_episode *e = &r->episodes[i];
        k.tickets[i].id = arena_printf(r->arena, "%s/%" PRIu64 "/%s/%u", s->c.run, r->step, r->tasks[e->task].id, e->index);
        if (k.tickets[i].id == NULL)
            k.tickets = NULL;
        else if (strlen(k.tickets[i].id) > WIRE_ID_MAX)
            return err_set(err, ERR_BAD_INPUT, "request id \"%s\" is longer than %d bytes; pass a shorter --run",
                k.tickets[i].id, WIRE_ID_MAX);
    }
    if (k.tickets == NULL)
        return err_set(err, ERR_LIMIT, "source: no memory for %zu episodes", r->n);
    int rc = judge_round(&k, err);
    if (rc == 0 && k.call != NULL) {    /* every record is in hand; let the call end politely, but do not insist */
        struct err ignored;
        if (grpc_call_send_end(k.call, &ignored) == 0)
            while (grpc_call_recv(k.call, &s->in, SLICE_NS, &ignored) == 1)
                continue;
    }
    grpc_call_end(k.call);
    return rc;
}

static uint64_t cursor(void *arg) { return ((struct source *)arg)->next_cursor; }

struct rl_world source_world(struct source *s)
{
    return (struct rl_world){ .arg = s, .judge = judge, .publish = publish, .cursor = cursor };
}

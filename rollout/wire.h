/*
 * wire.h - where protobuf ends: wire bytes to domain structs and back.
 *
 * wire_read_* unpacks with a byte budget, checks every range, copies what stays into the arena and
 * frees the protobuf object before it returns; an unknown enum value is an error here and never a
 * number that travels. wire_write_* packs into a buf. No other file of this room sees a *.pb-c.h.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/digest.h"
#include "repos/repos.h"
#include "rollout/verdict.h"
#include <stdint.h>

#define WIRE_PATCH_MAX   ((size_t)1 << 20)
#define WIRE_TOKENS_MAX  ((size_t)262144)
#define WIRE_LABELS_MAX  16
#define WIRE_LABEL_MAX   256
#define WIRE_ID_MAX      256

struct label { const char *key, *value; };

/* One evaluation as asked for. Everything lies in the arena it was read into. */
struct evaluate_request {
    const char *request_id;         /* "" when the caller gave none */
    const char *task_id;
    const uint8_t *patch; size_t patch_len;
    const uint8_t *sample; size_t sample_len;   /* checked Sample message, opaque from here on; NULL: no policy */
    bool     has_group;
    uint8_t  group_id[16];
    uint32_t group_want, group_index;
    bool     fresh;
    uint32_t priority;              /* 0 batch, 1 normal, 2 urgent */
    uint64_t timeout_ns;            /* 0: the task's own */
    struct label *labels; uint32_t label_count;
    bool     control_before;        /* label control=before: run the base tree although the patch is empty */
    struct digest content;          /* of everything but the request id: same id + other content = conflict */
};

MUST_CHECK int wire_read_evaluate(struct evaluate_request *out, struct arena *a, const void *bytes, size_t n,
                                  struct err *err);
/* episode_id NULL and cursor 0: refused before it became an episode. */
MUST_CHECK int wire_write_evaluate_response(struct buf *out, const char *request_id, const uint8_t episode_id[16],
                                            const char *task_id, const struct verdict *v, uint64_t cursor,
                                            struct err *err);

/* What the log keeps of one episode. */
struct trajectory_facts {
    uint8_t episode_id[16];
    const struct evaluate_request *request;
    const struct verdict *verdict;
    const char *snapshot, *patched_tree, *verdict_key;      /* hex or "" */
    uint64_t accepted_unix_ns, finished_unix_ns;
};
MUST_CHECK int wire_write_trajectory(struct buf *out, const struct trajectory_facts *f, struct err *err);

/* What a restart needs of a logged record. Strings and verdict in `a`. */
struct trajectory_head {
    uint8_t episode_id[16];
    const char *request_id, *task_id, *verdict_key;
    struct digest content;
    bool has_sample;
    struct verdict verdict;
};
MUST_CHECK int wire_read_trajectory_head(struct trajectory_head *out, struct arena *a, const void *bytes, size_t n,
                                         struct err *err);
/* A caller's own record (Trajectories.Append): checked, its episode id set, packed again into out. */
MUST_CHECK int wire_read_append(struct buf *out, const void *bytes, size_t n, const uint8_t episode_id[16],
                                uint64_t now_unix_ns, struct err *err);
MUST_CHECK int wire_write_append_response(struct buf *out, uint64_t cursor, const uint8_t episode_id[16], struct err *err);
/* The stored record with its cursor added: a protobuf message may be appended to, nothing is re-encoded. */
MUST_CHECK int wire_write_stored(struct buf *out, const void *record, size_t n, uint64_t cursor, struct err *err);

struct subscribe_request { uint64_t cursor; bool follow, with_sample_only; const char *task_prefix; };
MUST_CHECK int wire_read_subscribe(struct subscribe_request *out, struct arena *a, const void *bytes, size_t n, struct err *err);
struct get_trajectory_request { bool by_episode; uint8_t episode_id[16]; const char *request_id; };
MUST_CHECK int wire_read_get_trajectory(struct get_trajectory_request *out, struct arena *a, const void *bytes, size_t n, struct err *err);
struct list_request { uint64_t cursor; uint32_t limit; const char *task_id; };
MUST_CHECK int wire_read_list_trajectories(struct list_request *out, struct arena *a, const void *bytes, size_t n, struct err *err);
/* Add one stored record to a ListTrajectoriesResponse under construction, without tokens, patch and output. */
MUST_CHECK int wire_add_listed(struct buf *out, const void *record, size_t n, uint64_t cursor, struct err *err);
MUST_CHECK int wire_end_list(struct buf *out, uint64_t next_cursor, struct err *err);

/* Catalog. */
struct import_request { const uint8_t *jsonl; size_t jsonl_len; const char *repos_dir, *source; uint64_t first_line; bool skip_known; };
struct import_failure { uint64_t line; const char *id; int code; const char *message; };
struct import_answer {
    uint64_t added, unchanged, replaced, skipped;
    struct import_failure *failures; uint32_t failure_count;
    struct str_list notes;
};
MUST_CHECK int wire_read_import(struct import_request *out, struct arena *a, const void *bytes, size_t n, struct err *err);
MUST_CHECK int wire_write_import(struct buf *out, const struct import_answer *ans, struct err *err);
struct get_task_request { const char *id; bool with_fix; };
MUST_CHECK int wire_read_get_task(struct get_task_request *out, struct arena *a, const void *bytes, size_t n, struct err *err);
MUST_CHECK int wire_write_task(struct buf *out, const struct task *t, bool with_fix, struct err *err);
struct list_tasks_request { const char *after; struct catalog_filter filter; uint32_t limit; };
MUST_CHECK int wire_read_list_tasks(struct list_tasks_request *out, struct arena *a, const void *bytes, size_t n, struct err *err);
MUST_CHECK int wire_write_tasks(struct buf *out, const struct task *const *tasks, uint32_t count, const char *next, struct err *err);
struct duplicates_request { const char *after; uint32_t limit; };
MUST_CHECK int wire_read_duplicates(struct duplicates_request *out, struct arena *a, const void *bytes, size_t n, struct err *err);
MUST_CHECK int wire_write_duplicates(struct buf *out, const struct catalog_twins *groups, uint32_t count, const char *next, struct err *err);

/* Policy: the message itself is the record; the server checks it, stamps the time and keeps the bytes. */
struct policy_facts { uint64_t version; const char *made_by, *manifest_sha256; };
MUST_CHECK int wire_read_publish(struct policy_facts *out, struct buf *record, struct arena *a, const void *bytes, size_t n,
                                 uint64_t now_unix_ns, struct err *err);
MUST_CHECK int wire_read_policy(struct policy_facts *out, struct arena *a, const void *record, size_t n, struct err *err);
MUST_CHECK int wire_read_current(const char **out_made_by, struct arena *a, const void *bytes, size_t n, struct err *err);
MUST_CHECK int wire_write_publish_response(struct buf *out, uint64_t version, struct err *err);

struct server_status { uint32_t slots, slots_busy, queue_len, queue_max; uint64_t log_next_cursor; const char *version; };
MUST_CHECK int wire_write_status(struct buf *out, const struct server_status *s, struct err *err);

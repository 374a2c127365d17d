/*
 * checkpoint.h - what a run leaves on disk.
 *
 *   OUT/checkpoint.safetensors          weights, moments and the run's state: all that a resume needs
 *   OUT/policy/version-000007/          config.json, model.safetensors (Hugging Face names), manifest.json
 *
 * Both are written aside, synced and renamed, so that a crash leaves the old or the new one and never
 * half of one. The checkpoint is one file for that reason.
 */
#pragma once
#include "learner/model.h"
#include "learner/optimizer.h"

#define CHECKPOINT_PATH_SIZE 4096

struct checkpoint_state {
    uint64_t step;                  /* steps done */
    uint64_t version, cursor, seed, rng;
    const char *run;                /* loading: lies in the caller's `run_buf` */
    const char *history;            /* JSON of the steps so far; loading: owned by the caller, free() */
};

/* weights and moments in backend memory; opt NULL: none. */
MUST_CHECK int checkpoint_save(const char *out_dir, const struct model *m, const struct optimizer *opt,
                               const struct checkpoint_state *s, struct err *err);
/* Into a model and optimizer of the same configuration (checked). ERR_NOT_FOUND when there is none. */
MUST_CHECK int checkpoint_load(const char *out_dir, struct model *m, struct optimizer *opt, struct checkpoint_state *s,
                               char *run_buf, size_t run_size, struct err *err);
bool checkpoint_exists(const char *out_dir);
/* Only the cursor: where to begin to read when the checkpoint is resumed. */
MUST_CHECK int checkpoint_peek(const char *out_dir, uint64_t *out_cursor, struct err *err);

struct checkpoint_version { char manifest_path[CHECKPOINT_PATH_SIZE]; char manifest_sha256[65]; };
/* Write version `version` as a folder that Hugging Face tools read. A folder that is there already is replaced. */
MUST_CHECK int checkpoint_export(struct checkpoint_version *out, const char *out_dir, const struct model *m, uint64_t version,
                                 const char *run, struct err *err);
/* config.json and model.safetensors of a folder, HF names; float32 Llama layout only. *out is owned. */
MUST_CHECK int checkpoint_import(struct model **out, const char *dir, size_t tokens_max, size_t rows_max, struct err *err);

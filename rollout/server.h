/*
 * server.h - private to assayd's own files: what the program holds together, and who owns which part.
 *
 * assayd.c    options, rights, start and stop       runner.c            the engine's world: carries out its effects
 * rpc.c       method table, Rollout, Policy         rpc_trajectories.c  Append, Subscribe, Get, List
 * rpc_catalog.c  Get, List, Duplicates, and Import by a child process
 *
 * Everything runs on one loop. No callback of libuv, the jail, the workers or gRPC decides anything: each turns into an
 * engine event or a call of one of the functions below, and server_turn() lets the engine act once per loop round.
 */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "rollout/index.h"
#include "rollout/trajlog.h"
#include <stdint.h>
#include <uv.h>

struct catalog;
struct engine;
struct grpc_method;
struct grpc_server;
struct grpc_stream;
struct imports;
struct runner;
struct store;
struct stream;

#define ASSAY_VERSION "0.1.0"
#define SERVER_LISTEN_MAX 8

struct server_config {
    const char *state_dir;                      /* everything lives below it */
    const char *listen[SERVER_LISTEN_MAX];
    uint32_t    listen_count;
    uint32_t    slots;                          /* sandboxes at once */
    uint32_t    queue_max;                      /* evaluations waiting or running */
    int         ready_fd, lifeline_fd;          /* -1: none */
    const char *bin_dir;                        /* where assay-jail and assay-worker lie */
};

struct server {
    uv_loop_t loop;
    struct server_config config;
    char store_dir[4096];
    int  state_fd, policies_fd;
    struct catalog *catalog;
    struct store   *store;
    struct trajlog *log;
    struct stream  *stream;         /* the log's subscribers */
    struct engine  *engine;
    struct runner  *runner;
    struct imports *imports;
    struct index    index;          /* episode and request ids of the records before `indexed` */
    struct trajlog_place indexed;
    struct grpc_server *grpc;
    bool stopping;
};

/* rpc.c: the method table, for grpc_server_config. `arg` of every handler is the struct server. */
const struct grpc_method *rpc_methods(uint32_t *out_count);
/* Finish a call with an error. */
void rpc_fail(struct grpc_stream *s, const struct err *err);
/* Send one message and end the call; when rc < 0 the call ends with *err instead. */
void rpc_answer(struct grpc_stream *s, int rc, const struct buf *message, struct err *err);

/* rpc_trajectories.c */
void rpc_append(void *arg, struct grpc_stream *s, const void *bytes, size_t n);
void rpc_append_closed(void *arg, struct grpc_stream *s);
void rpc_subscribe(void *arg, struct grpc_stream *s, const void *bytes, size_t n);
void rpc_subscribe_writable(void *arg, struct grpc_stream *s);
void rpc_subscribe_closed(void *arg, struct grpc_stream *s);
void rpc_get_trajectory(void *arg, struct grpc_stream *s, const void *bytes, size_t n);
void rpc_list_trajectories(void *arg, struct grpc_stream *s, const void *bytes, size_t n);

/* rpc_catalog.c */
MUST_CHECK int imports_open(struct imports **out, struct server *server, struct err *err);
void imports_close(struct imports *i);          /* kills a running child; calls waiting end with UNAVAILABLE */
bool imports_idle(const struct imports *i);
void rpc_import(void *arg, struct grpc_stream *s, const void *bytes, size_t n);
void rpc_import_closed(void *arg, struct grpc_stream *s);
void rpc_get_task(void *arg, struct grpc_stream *s, const void *bytes, size_t n);
void rpc_list_tasks(void *arg, struct grpc_stream *s, const void *bytes, size_t n);
void rpc_duplicates(void *arg, struct grpc_stream *s, const void *bytes, size_t n);

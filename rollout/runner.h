/*
 * runner.h - the engine's world: jail, workers, catalog and log behind one loop. It carries out effects and decides nothing.
 *
 * Each effect of engine.h is one function here; each answer goes back by engine_on_*(). A lost jail or worker fails what
 * it held (the engine tries again) and is started anew.
 */
#pragma once
#include "rollout/engine.h"
#include "rollout/server.h"

/* Start jail and workers below server->config and fill *world. The engine is read from server->engine later, at answers. */
MUST_CHECK int runner_open(struct runner **out, struct server *server, struct engine_world *world, struct err *err);
/* Append records that are not episodes (Trajectories.Append): `cb` once the record is durable, or has failed. */
typedef void (*runner_logged_cb)(void *arg, int rc, uint64_t cursor, const struct err *err);
void runner_append(struct runner *r, const void *record, size_t n, runner_logged_cb cb, void *arg);
/* Stop jail and workers, finish the log's last commit. Handles are closed by the loop's next rounds. */
void runner_close(struct runner *r);
bool runner_log_idle(const struct runner *r);       /* nothing waits for a commit */

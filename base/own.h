/*
 * own.h - cleanup attributes: what a function owns is released when it leaves scope.
 *
 * own_fd fd = open(...);  ... return give_fd(&fd);     hand over: the variable is emptied
 * own_mem char *p = malloc(n);  ... *out = give_ptr(&p);
 */
#pragma once
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static inline void own_fd_done(int *fd) { if (*fd >= 0) close(*fd); }
static inline void own_mem_done(void *p) { void *m; __builtin_memcpy(&m, p, sizeof m); free(m); }
static inline void own_file_done(FILE **f) { if (*f != NULL) fclose(*f); }

#define own_fd   __attribute__((cleanup(own_fd_done))) int
#define own_mem  __attribute__((cleanup(own_mem_done)))
#define own_file __attribute__((cleanup(own_file_done))) FILE *

/* Close it, where there is one, and forget it. */
static inline void drop_fd(int *fd) { own_fd_done(fd); *fd = -1; }
static inline int give_fd(int *fd) { int v = *fd; *fd = -1; return v; }
#define give_ptr(pp) __extension__({ __typeof__(*(pp)) give_v_ = *(pp); *(pp) = NULL; give_v_; })

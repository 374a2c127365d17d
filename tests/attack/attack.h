/*
 * attack.h - what a trick is. One file of tricks/ holds one trick: the attacker's program, its honest twin, and a row that
 * says what must come of it. All files are linked into one static program, `attacker NAME PART`, which any launcher can run.
 *
 * A part prints, per attempt, "NAME refused ERRNO" or "NAME GOT" (and what it got). Every attempt is bounded and harmless
 * where nothing stops it, because each trick is also run with its defence removed, in a bare child of the test (namespaces of
 * its own for what it could break, but root, no filter, no limits), and must get there what `bare` names: so the test can fail.
 */
#pragma once
#include "sandbox/sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define SECOND 1000000000ull

typedef int attack_part(void);

struct attack {
    char name[48];                  /* of the file */
    char tries[128];                /* in one line, with the public case of its kind */
    attack_part *attack, *twin;     /* twin: the honest neighbour of the trick; prints "ok" and nothing else */
    attack_part *holder;            /* runs in another sandbox meanwhile; prints "holding" when it is at it */
    attack_part *earlier;           /* ran before, in sandboxes that are closed by now */
    attack_part *image, *tree;      /* on the host, cwd in an empty directory: fills the environment's root, or the tree */
    char bare[48];                  /* the attempt that succeeds with the defence removed */
    char not_bare[96];              /* or why that cannot be shown here */
    enum sandbox_end end;           /* SANDBOX_END_COUNT: any; whom the memory killer takes is its choice */
    int value;                      /* of an exit or signal; -1: any */
    uint32_t hits;                  /* limits that must be among those hit */
    bool image_refused;             /* the root is not even mounted: bad input, said so */
    char must[3][48];               /* all in the output */
    struct { char grants[128]; char must[3][48]; } compatible;  /* where that profile differs: the attempts that it grants, by
                                     * name, in one string; what the output must hold in place of `must`, if anything is said */
    struct sandbox_limits limits;   /* zero: usual */
};

#define ATTACK(...) \
    static const struct attack row = { .name = __FILE_NAME__, __VA_ARGS__ }; \
    static const struct attack *const entry __attribute__((used, section("attacks"))) = &row

/* attacker.c */
void tried(const char *what, long rc);              /* refused when rc < 0, by errno */
void tried_open(const char *path, int flags);
void judged(const char *what, bool got);            /* refused or GOT, by looking */
void hold(void);                                    /* say "holding", stay until killed */
int  says_ok(bool ok);                              /* a twin's last line */
pid_t idle_child(void);                             /* one that only waits to be killed */
int  child_status(pid_t pid);                       /* wait for it */
const char *given(const char *name);                /* an environment variable, or "" */
int  abstract_socket(const char *name, bool listens);
double seconds(void);

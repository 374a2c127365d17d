/*
 * harness.h - runs the parts of tricks by three launchers: our own jail, none (the bare child, which proves that a trick can
 * succeed), and any other by one line of shell (`run`).
 */
#pragma once
#include "tests/attack/attack.h"
#include "tests/sandbox/box.h"

struct run_end {
    bool ok;                        /* it ran; no part of the launcher failed */
    bool stuck;                     /* it had to be killed by the harness */
    int status;                     /* wait status */
    size_t len;
    char text[65536];               /* what it printed, NUL-terminated */
};

struct harness {
    char dir[64], program[96], host_file[96], host_socket[48], host_port[16];
    char env[8][200];
    const char *env_list[9];
    int listeners[2], leaked_fd, tree_fd;
    const struct attack *rows;
    size_t count;
    enum sandbox_profile profile;   /* of the sandboxes that harness_ours() makes */
    struct sandbox_client *client;  /* NULL until harness_jail() */
    struct sandbox *neighbour;
};

int  harness_open(struct harness *h);                   /* the program, the secret, the sockets, the rows */
void harness_jail(struct harness *h);                   /* and the jail, with a neighbour that lives through all */
void harness_close(struct harness *h);
void harness_name(const struct attack *a, char out[48]);

/* A part in the jail: `earlier` in sandboxes before, `holder` in one beside. Acquire refused: ok is false, *why says it. */
struct outcome harness_ours(struct harness *h, const struct attack *a, const char *part, struct err *why);
/* A part by `adapter`, one line of shell that ends in "$@"; NULL: in a bare child. */
void harness_other(struct harness *h, const struct attack *a, const char *part, const char *adapter, struct run_end *out);

const char *harness_first_got(const char *text, const char *granted);    /* the first line that says GOT of a name not in granted */
bool harness_has_got(const char *text, const char *what);

/* grpc_call.c - our client as a program, to be run against other servers.
 * Usage: grpc_call ADDRESS METHOD TIMEOUT_MS MESSAGE...
 * Sends the messages ("@N": N zero bytes), prints each answer as "LENGTH FIRST-40-BYTES", then "ok" or "CODE: text". */
#include "base/buf.h"
#include "base/clock.h"
#include "base/own.h"
#include "proto/grpc_client.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int talk(struct grpc_call *k, int n, char **messages, struct err *err)
{
    own_buf answer = { 0 };
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++) {
        size_t zeroes = messages[i][0] == '@' ? strtoul(messages[i] + 1, NULL, 10) : 0;
        own_mem void *block = calloc(1, zeroes + 1);
        rc = grpc_call_send(k, zeroes > 0 ? block : messages[i], zeroes > 0 ? zeroes : strlen(messages[i]), err);
    }
    if (rc == 0)
        rc = grpc_call_send_end(k, err);
    while ((rc == 0 || rc == ERR_CANCELLED) && (rc = grpc_call_recv(k, &answer, UINT64_MAX, err)) == 1) {
        char text[200];
        err_quote(text, sizeof text, answer.data, answer.len < 40 ? answer.len : 40);
        printf("%zu %s\n", answer.len, text);
        rc = 0;
    }
    return rc;
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    struct grpc_client *c = NULL;
    struct grpc_call *k = NULL;
    if (argc < 4)
        return 64;
    int rc = grpc_client_open(&c, argv[1], 5 * NS_PER_S, &err);
    if (rc == 0)
        rc = grpc_call_start(&k, c, argv[2], strtoull(argv[3], NULL, 10) * NS_PER_MS, &err);
    if (rc == 0)
        rc = talk(k, argc - 4, argv + 4, &err);
    if (rc == 0)
        printf("ok\n");
    else
        printf("%s: %s\n", err_info(rc)->name, err.msg);
    grpc_call_end(k);
    grpc_client_close(c);
    return 0;
}

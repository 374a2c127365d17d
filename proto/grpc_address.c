/* grpc_address.c - where a server listens or a client connects. */
#include "proto/grpc_address.h"
#include "proto/grpc_frame.h"
#include <netdb.h>
#include <stdio.h>
#include <string.h>

int grpc_address_parse(struct grpc_address *out, const char *text, struct err *err)
{
    memset(out, 0, sizeof *out);
    if (strncmp(text, "unix:", 5) == 0) {
        const char *path = text + 5;
        size_t n = strlen(path);
        if (n == 0 || n >= sizeof out->un.sun_path)
            return err_set(err, ERR_USAGE, "address '%.120s': a socket path has 1 to %zu bytes", text,
                           sizeof out->un.sun_path - 1);
        out->is_unix = true;
        out->un.sun_family = AF_UNIX;
        memcpy(out->un.sun_path, path, n + 1);
        return 0;
    }
    const char *colon = strrchr(text, ':');
    uint32_t port = 0;
    if (colon == NULL || !grpc_number(&port, colon + 1, strlen(colon + 1)) || port > 65535)
        return err_set(err, ERR_USAGE, "address '%.120s': want unix:/path or host:port", text);
    const char *host = text;
    size_t n = (size_t)(colon - text);
    if (n >= 2 && host[0] == '[' && host[n - 1] == ']') {
        host++;
        n -= 2;
    } else if (memchr(host, ':', n) != NULL) {
        return err_set(err, ERR_USAGE, "address '%.120s': put an IPv6 address in brackets", text);
    }
    if (n == 0 || n >= sizeof out->host)
        return err_set(err, ERR_USAGE, "address '%.120s': the host is empty or too long", text);
    memcpy(out->host, host, n);
    snprintf(out->port, sizeof out->port, "%u", port);
    return 0;
}

int grpc_address_resolve(struct addrinfo **out, const struct grpc_address *a, bool to_listen, struct err *err)
{
    struct addrinfo hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
                              .ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0) };
    int rc = getaddrinfo(a->host, a->port, &hints, out);
    if (rc != 0)
        return err_set(err, ERR_UNAVAILABLE, "%s:%s: %s", a->host, a->port, gai_strerror(rc));
    return 0;
}

/* grpc_address.h - "unix:/path" or "host:port" taken apart. Private to proto/grpc_*.c. */
#pragma once
#include "base/err.h"
#include <sys/socket.h>
#include <sys/un.h>

struct grpc_address {
    bool               is_unix;
    struct sockaddr_un un;
    char               host[256];   /* brackets of an IPv6 address removed */
    char               port[8];
};

MUST_CHECK int grpc_address_parse(struct grpc_address *out, const char *text, struct err *err);

struct addrinfo;
/* Resolve host and port (blocking). *out is owned: freeaddrinfo(). */
MUST_CHECK int grpc_address_resolve(struct addrinfo **out, const struct grpc_address *a, bool to_listen, struct err *err);

/* echo_server.c - the echo service as a program, for the Python tests and the bench. Usage: echo_server ADDRESS
 * Prints the TCP port (0 for a Unix socket) once it listens; ends when stdin does, so that no test leaves it behind. */
#include "tests/proto/echo.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static struct echo echo;
static uv_pipe_t in;
static char bytes[64];

static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *out)
{
    (void)h; (void)hint;
    *out = uv_buf_init(bytes, sizeof bytes);
}

static void on_stdin(uv_stream_t *h, ssize_t n, const uv_buf_t *b)
{
    (void)b;
    if (n >= 0)
        return;
    uv_close((uv_handle_t *)h, NULL);
    if (echo.server != NULL)
        grpc_server_close(echo.server);
}

int main(int argc, char **argv)
{
    struct err err = { 0 };
    uv_loop_t *loop = uv_default_loop();
    if (argc != 2) {
        fprintf(stderr, "usage: echo_server ADDRESS\n");
        return 64;
    }
    if (echo_start(&echo, loop, (struct grpc_server_config){ 0 }, &err) < 0
        || grpc_server_listen(echo.server, argv[1], &err) < 0) {
        fprintf(stderr, "echo_server: %s\n", err.msg);
        return 69;
    }
    uv_pipe_init(loop, &in, 0);
    uv_pipe_open(&in, 0);
    uv_read_start((uv_stream_t *)&in, on_alloc, on_stdin);
    printf("%u\n", grpc_server_port(echo.server));
    fflush(stdout);
    uv_run(loop, UV_RUN_DEFAULT);
    printf("calls %" PRIu64 " closed %" PRIu64 "\n", echo.opened, echo.closed);
    return uv_loop_close(loop) == 0 && echo.opened == echo.closed ? 0 : 1;
}

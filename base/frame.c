/* frame.c - one packet, one frame; descriptors beside it (unix(7), SCM_RIGHTS). */
#include "base/frame.h"
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int frame_send(int sock, const void *bytes, size_t size, const int *fds, int nfds, struct err *err)
{
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX)]; } c = { 0 };
    struct iovec iov = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = size };
    struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
    if (nfds < 0 || nfds > FRAME_FDS_MAX)
        return err_set(err, ERR_INTERNAL, "frame: %d descriptors", nfds);
    if (nfds > 0) {
        size_t n = sizeof(int) * (size_t)nfds;
        m.msg_control = c.space;
        m.msg_controllen = CMSG_SPACE(n);
        struct cmsghdr *h = CMSG_FIRSTHDR(&m);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(n);
        memcpy(CMSG_DATA(h), fds, n);
    }
    for (;;) {
        ssize_t n = sendmsg(sock, &m, MSG_NOSIGNAL);
        if (n == (ssize_t)size)
            return 0;
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return err_set(err, ERR_BUSY, "frame: the peer's queue is full");
        if (n < 0 && (errno == EPIPE || errno == ECONNRESET))
            return err_sys(err, ERR_LOST, "frame: the peer is gone");
        return err_sys(err, ERR_SYS, "frame: send");
    }
}

int frame_recv(int sock, void *bytes, size_t size, int *fds, int *out_nfds, struct err *err)
{
    return frame_recv_apart(sock, bytes, size, NULL, 0, fds, out_nfds, err);
}

int frame_recv_apart(int sock, void *bytes, size_t size, void *rest, size_t rest_size, int *fds, int *out_nfds, struct err *err)
{
    union { struct cmsghdr head; char space[CMSG_SPACE(sizeof(int) * FRAME_FDS_MAX)]; } c;
    struct iovec iov[] = { { .iov_base = bytes, .iov_len = size }, { .iov_base = rest, .iov_len = rest_size } };
    struct msghdr m = { .msg_iov = iov, .msg_iovlen = rest_size > 0 ? 2 : 1, .msg_control = c.space, .msg_controllen = sizeof c.space };
    ssize_t n;
    int nfds = 0;
    *out_nfds = 0;
    do
        n = recvmsg(sock, &m, MSG_CMSG_CLOEXEC);
    while (n < 0 && errno == EINTR);
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return err_set(err, ERR_BUSY, "frame: nothing there");
    if (n < 0 && errno == ECONNRESET)
        return 0;
    if (n < 0)
        return err_sys(err, ERR_SYS, "frame: receive");
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&m); h != NULL; h = CMSG_NXTHDR(&m, h))
        if (h->cmsg_level == SOL_SOCKET && h->cmsg_type == SCM_RIGHTS) {
            int got = (int)((h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            for (int i = 0; i < got; i++) {
                int fd;
                memcpy(&fd, CMSG_DATA(h) + sizeof(int) * (size_t)i, sizeof fd);
                if (nfds < FRAME_FDS_MAX)
                    fds[nfds++] = fd;
                else
                    close(fd);
            }
        }
    if ((m.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
        for (int i = 0; i < nfds; i++)
            close(fds[i]);
        return err_set(err, ERR_PROTOCOL, "frame: larger than %zu bytes or %d descriptors", size + rest_size, FRAME_FDS_MAX);
    }
    *out_nfds = nfds;
    return (int)n;
}

int frame_memfd(const char *name, const void *bytes, size_t n, struct err *err)
{
    int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0)
        return err_sys(err, ERR_SYS, "memfd %s", name);
    const uint8_t *p = bytes;
    for (size_t done = 0; done < n; ) {
        ssize_t w = write(fd, p + done, n - done);
        if (w < 0 && errno == EINTR)
            continue;
        if (w <= 0) {
            int rc = err_sys(err, ERR_SYS, "memfd %s: write", name);
            close(fd);
            return rc;
        }
        done += (size_t)w;
    }
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) {
        int rc = err_sys(err, ERR_SYS, "memfd %s: seal", name);
        close(fd);
        return rc;
    }
    return fd;
}

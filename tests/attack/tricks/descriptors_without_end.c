#include "tests/attack/attack.h"
#include <sys/epoll.h>
#include <sys/eventfd.h>

static int attack(void)
{
    int n = 0;
    while (n < 5000 && eventfd(0, 0) >= 0)
        n++;
    judged("descriptors", n >= 5000);
    for (int fd = 3; fd < 4096; fd++)
        close(fd);
    int deep = 0;
    for (int inner = epoll_create1(0); deep < 100; deep++) {
        int outer = epoll_create1(0);
        struct epoll_event e = { .events = EPOLLIN };
        if (epoll_ctl(outer, EPOLL_CTL_ADD, inner, &e) < 0)
            break;
        inner = outer;
    }
    judged("epoll-nest", deep >= 100);
    return 0;
}

static int twin(void) { return says_ok(eventfd(0, 0) >= 0 && epoll_create1(0) >= 0); }

ATTACK(.tries = "descriptors and nested epolls without end", .attack = attack, .twin = twin, .bare = "descriptors", .must = { "descriptors refused", "epoll-nest refused" });

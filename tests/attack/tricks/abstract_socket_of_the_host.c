#include "tests/attack/attack.h"

static int attack(void)
{
    static const char *const names[] = { "/tmp/.X11-unix/X0", "/tmp/dbus-test", "/containerd-shim/x.sock" };
    tried("abstract-host", abstract_socket(given("HOST_SOCKET"), false));
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        tried(names[i], abstract_socket(names[i], false));
    return 0;
}

static int twin(void) { return says_ok(abstract_socket("own", true) >= 0 && abstract_socket("own", false) >= 0); }

ATTACK(.tries = "abstract Unix sockets of the host (containerd CVE-2020-15257)", .attack = attack, .twin = twin, .bare = "abstract-host",
       .must = { "abstract-host refused ECONNREFUSED" });

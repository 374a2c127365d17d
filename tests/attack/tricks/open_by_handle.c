#include "tests/attack/attack.h"

/* "Shocker" of docker 0.11: inode 2 of the disk by handle. */
static int attack(void)
{
    union { struct file_handle h; char bytes[160]; } f = { .h = { .handle_bytes = 128 } };
    int mount_id;
    tried("name_to_handle_at", name_to_handle_at(AT_FDCWD, "/usr", &f.h, &mount_id, 0));
    int at = open("/usr", O_RDONLY);
    tried("open_by_handle_at", open_by_handle_at(at, &f.h, O_RDONLY));
    f.h = (struct file_handle){ .handle_bytes = 8, .handle_type = 1 };
    *(uint32_t *)(f.bytes + sizeof(struct file_handle)) = 2;
    tried("inode-2", open_by_handle_at(at, &f.h, O_RDONLY));
    return 0;
}

static int twin(void)
{
    struct stat st;
    return says_ok(stat("/usr", &st) == 0 && st.st_ino != 0);
}

ATTACK(.tries = "the host's files by handle (docker's \"shocker\")", .attack = attack, .twin = twin, .bare = "open_by_handle_at",
       .must = { "open_by_handle_at refused ENOSYS", "inode-2 refused ENOSYS" });

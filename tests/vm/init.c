/* init.c - first program of the test machine: loads the kernel modules it finds, and goes on in the disk's /vm/guest. */
#include <errno.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* One that needs another is loaded in a later round. Returns how many were loaded. */
static int load_some(void)
{
    int loaded = 0;
    DIR *d = opendir("/modules");
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL; ) {
        char path[300];
        snprintf(path, sizeof path, "/modules/%s", e->d_name);
        int fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0 && e->d_name[0] != '.' && syscall(SYS_finit_module, fd, "", 0) == 0) {
            loaded++;
            unlink(path);
        }
        if (fd >= 0)
            close(fd);
    }
    if (d != NULL)
        closedir(d);
    return loaded;
}

int main(void)
{
    if (mount("dev", "/dev", "devtmpfs", 0, NULL) < 0)
        perror("devtmpfs");
    while (load_some() > 0)
        ;
    for (int i = 0; i < 200 && access("/dev/vda", F_OK) < 0; i++)
        nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    if (mount("/dev/vda", "/disk", "ext4", 0, NULL) < 0 || mount("/dev", "/disk/dev", NULL, MS_MOVE, NULL) < 0 ||
        chdir("/disk") < 0 || mount(".", "/", NULL, MS_MOVE, NULL) < 0 || chroot(".") < 0)
        perror("disk");
    else
        execl("/bin/bash", "bash", "/vm/guest", (char *)NULL);
    perror("/vm/guest");
    reboot(RB_AUTOBOOT);
}

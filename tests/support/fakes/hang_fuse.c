/*
 * A file system whose every file hangs: who opens one sleeps inside the kernel, and KILL does not reach it
 * until this program ends. hang_fuse FOLDER READY: mount there, answer the kernel's greeting, take requests
 * and answer none. READY is made when it is mounted, and gets a line with the pid of each process whose
 * request was taken. From then on KILL does not end that process. Needs root and /dev/fuse; exits with 77
 * where they are not to be had.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    static char request[1 << 17];
    char options[128];
    int fd, ready = -1;

    if (argc != 3)
        return 2;
    fd = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return 77;
    snprintf(options, sizeof options, "fd=%d,rootmode=40000,user_id=0,group_id=0", fd);
    if (mount("hang", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) < 0)
        return 77;
    for (;;) {
        const ssize_t n = read(fd, request, sizeof request);
        const struct fuse_in_header *in = (const void *)request;

        if (n < 0 && errno == EINTR)
            continue;
        if (n < (ssize_t)sizeof *in)
            return n < 0 && errno == ENODEV ? 0 : 1; /* unmounted */
        if (in->opcode == FUSE_INIT) {
            const struct fuse_init_in *init = (const void *)(in + 1);
            struct {
                struct fuse_out_header head;
                struct fuse_init_out init;
            } out = { .head = { .len = sizeof out, .unique = in->unique },
                      .init = { .major = FUSE_KERNEL_VERSION,
                                .minor = FUSE_KERNEL_MINOR_VERSION,
                                .max_readahead = init->max_readahead,
                                .flags = FUSE_PARALLEL_DIROPS, /* a look-up does not wait for another's */
                                .max_write = 4096 } };

            if (write(fd, &out, sizeof out) != (ssize_t)sizeof out)
                return 1;
            ready = open(argv[2], O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
            if (ready < 0)
                return 1;
        } else if (dprintf(ready, "%u\n", in->pid) < 0) {
            return 1;
        }
    }
}

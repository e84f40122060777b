/*
 * A folder as one host of several sees it over a network. Each mount is a host with caches of its own, as an
 * NFS client has them. Names, missing names and attributes are believed for a time, and the data of a file
 * until it is opened again.
 *   far_fuse MOUNTPOINT FOLDER READY CACHE_S DELAY_MS
 * READY is made when it is mounted. Each request waits for DELAY_MS. USR1: requests are not answered until
 * USR2 comes. Needs root and /dev/fuse; exits with 77 where they are not to be had.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fuse.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NODES = 10000, MOST_BYTES = 1 << 17 };

/* A file that the kernel knows: its number is the place here. A file with two names is one node. */
static struct node {
    char *path; /* the newest name of it that was looked up */
    dev_t device;
    ino_t inode;
} nodes[NODES];
static uint64_t n_nodes = FUSE_ROOT_ID;

static int fuse, cache_s;
static union {
    struct fuse_in_header head;
    char bytes[2 * MOST_BYTES];
} request;
static char reply_bytes[2 * MOST_BYTES];

static void reply(const void *out, size_t n_bytes)
{
    struct fuse_out_header head = { .len = (uint32_t)(sizeof head + n_bytes), .unique = request.head.unique };

    memcpy(reply_bytes, &head, sizeof head);
    if (n_bytes > 0)
        memmove(reply_bytes + sizeof head, out, n_bytes);
    (void)!write(fuse, reply_bytes, head.len); /* ENOENT: the caller was killed meanwhile */
}

static void reply_error(int error)
{
    const struct fuse_out_header head = { sizeof head, -error, request.head.unique };

    (void)!write(fuse, &head, sizeof head);
}

/* 0 or an errno, after a system call */
static void reply_result(int result)
{
    reply_error(result < 0 ? errno : 0);
}

static const char *path_of(uint64_t node)
{
    return nodes[node].path;
}

/* "FOLDER/.../NAME" in one of two buffers */
static const char *join(uint64_t parent, const char *name)
{
    static char paths[2][PATH_MAX];
    static int next;
    char *path = paths[next++ % 2];

    if (snprintf(path, PATH_MAX, "%s/%s", path_of(parent), name) >= PATH_MAX)
        exit(1);
    return path;
}

static uint64_t node_of(const char *path, const struct stat *stat)
{
    uint64_t i = FUSE_ROOT_ID;

    while (i < n_nodes && (nodes[i].device != stat->st_dev || nodes[i].inode != stat->st_ino))
        i++;
    if (i == NODES)
        exit(1);
    n_nodes += i == n_nodes;
    free(nodes[i].path);
    nodes[i] = (struct node){ strdup(path), stat->st_dev, stat->st_ino };
    return i;
}

static struct fuse_attr attr_of(uint64_t node, const struct stat *stat)
{
    return (struct fuse_attr){ .ino = node,
                               .size = (uint64_t)stat->st_size,
                               .blocks = (uint64_t)stat->st_blocks,
                               .atime = (uint64_t)stat->st_atim.tv_sec,
                               .mtime = (uint64_t)stat->st_mtim.tv_sec,
                               .ctime = (uint64_t)stat->st_ctim.tv_sec,
                               .mtimensec = (uint32_t)stat->st_mtim.tv_nsec,
                               .mode = stat->st_mode,
                               .nlink = (uint32_t)stat->st_nlink,
                               .uid = stat->st_uid,
                               .gid = stat->st_gid,
                               .blksize = 4096 };
}

/* What the kernel learns of a name: also that there is none. Returns false then. */
static bool make_entry(const char *path, struct fuse_entry_out *out)
{
    struct stat stat;

    *out = (struct fuse_entry_out){ .entry_valid = (uint64_t)cache_s, .attr_valid = (uint64_t)cache_s };
    if (lstat(path, &stat) < 0)
        return false;
    out->nodeid = node_of(path, &stat);
    out->attr = attr_of(out->nodeid, &stat);
    return true;
}

static void reply_entry(const char *path, int result)
{
    struct fuse_entry_out out;

    if (result < 0 || !make_entry(path, &out))
        reply_error(errno);
    else
        reply(&out, sizeof out);
}

static void look_up(const char *name)
{
    struct fuse_entry_out out;

    if (make_entry(join(request.head.nodeid, name), &out) || errno == ENOENT)
        reply(&out, sizeof out);
    else
        reply_error(errno);
}

static void reply_attr(int result)
{
    struct fuse_attr_out out = { .attr_valid = (uint64_t)cache_s };
    struct stat stat;

    if (result < 0 || lstat(path_of(request.head.nodeid), &stat) < 0) {
        reply_error(errno);
        return;
    }
    out.attr = attr_of(request.head.nodeid, &stat);
    reply(&out, sizeof out);
}

static void create(const struct fuse_create_in *in)
{
    struct {
        struct fuse_entry_out entry;
        struct fuse_open_out open;
    } out = { .open = { .open_flags = 0 } };
    const char *path = join(request.head.nodeid, (const char *)(in + 1));
    const int fd = open(path, (int)in->flags | O_CREAT | O_CLOEXEC, in->mode & ~in->umask);

    if (fd < 0 || !make_entry(path, &out.entry)) {
        reply_error(errno);
        return;
    }
    out.open.fh = (uint64_t)fd;
    reply(&out, sizeof out);
}

/* No FOPEN_KEEP_CACHE: the data that the kernel has of this file is dropped. */
static void open_file(const struct fuse_open_in *in)
{
    struct fuse_open_out out = { .open_flags = 0 };
    const int fd = open(path_of(request.head.nodeid), (int)in->flags | O_CLOEXEC);

    if (fd < 0) {
        reply_error(errno);
        return;
    }
    out.fh = (uint64_t)fd;
    reply(&out, sizeof out);
}

static void read_file(const struct fuse_read_in *in)
{
    static char bytes[MOST_BYTES];
    const ssize_t n =
        pread((int)in->fh, bytes, in->size < MOST_BYTES ? in->size : MOST_BYTES, (off_t)in->offset);

    if (n < 0)
        reply_error(errno);
    else
        reply(bytes, (size_t)n);
}

static void write_file(const struct fuse_write_in *in)
{
    struct fuse_write_out out = { .size = 0 };
    const ssize_t n = pwrite((int)in->fh, in + 1, in->size, (off_t)in->offset);

    out.size = n < 0 ? 0 : (uint32_t)n;
    if (n < 0)
        reply_error(errno);
    else
        reply(&out, sizeof out);
}

static void open_folder(void)
{
    struct fuse_open_out out = { .open_flags = 0 };
    DIR *folder = opendir(path_of(request.head.nodeid));

    if (folder == NULL) {
        reply_error(errno);
        return;
    }
    out.fh = (uint64_t)(uintptr_t)folder;
    reply(&out, sizeof out);
}

static void read_folder(const struct fuse_read_in *in)
{
    static char bytes[MOST_BYTES];
    DIR *folder = (DIR *)(uintptr_t)in->fh;
    const struct dirent *entry;
    size_t n = 0;

    if (in->offset == 0)
        rewinddir(folder);
    else
        seekdir(folder, (long)in->offset);
    while ((entry = readdir(folder)) != NULL) {
        const size_t length = strlen(entry->d_name);
        struct fuse_dirent *out = (struct fuse_dirent *)(bytes + n);

        if (n + FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length) > in->size)
            break;
        *out = (struct fuse_dirent){ .ino = entry->d_ino,
                                     .off = (uint64_t)telldir(folder),
                                     .namelen = (uint32_t)length,
                                     .type = entry->d_type };
        memcpy(out->name, entry->d_name, length);
        n += FUSE_DIRENT_SIZE(out);
    }
    reply(bytes, n);
}

static void rename_name(uint64_t to_folder, const char *from)
{
    const char *from_path = join(request.head.nodeid, from),
               *to_path = join(to_folder, from + strlen(from) + 1);
    struct fuse_entry_out entry;
    const int result = rename(from_path, to_path);

    if (result == 0)
        (void)make_entry(to_path, &entry); /* the node has this name now */
    reply_result(result);
}

static void greet(const struct fuse_init_in *in, const char *ready)
{
    const struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION,
                                       .minor = FUSE_KERNEL_MINOR_VERSION,
                                       .max_readahead = in->max_readahead,
                                       .flags = FUSE_BIG_WRITES,
                                       .max_write = MOST_BYTES / 2 };

    reply(&out, sizeof out);
    close(open(ready, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
}

static void serve(const char *ready)
{
    const void *in = &request.head + 1;
    const char *name = in;

    switch (request.head.opcode) {
    case FUSE_INIT:
        greet(in, ready);
        break;
    case FUSE_LOOKUP:
        look_up(name);
        break;
    case FUSE_GETATTR:
        reply_attr(0);
        break;
    case FUSE_SETATTR: {
        const struct fuse_setattr_in *set = in;

        reply_attr((set->valid & FATTR_SIZE) != 0 ? truncate(path_of(request.head.nodeid), (off_t)set->size)
                                                  : 0);
        break;
    }
    case FUSE_MKDIR: {
        const struct fuse_mkdir_in *make = in;
        const char *path = join(request.head.nodeid, (const char *)(make + 1));

        reply_entry(path, mkdir(path, make->mode & ~make->umask));
        break;
    }
    case FUSE_CREATE:
        create(in);
        break;
    case FUSE_OPEN:
        open_file(in);
        break;
    case FUSE_READ:
        read_file(in);
        break;
    case FUSE_WRITE:
        write_file(in);
        break;
    case FUSE_FSYNC:
        reply_result(fsync((int)((const struct fuse_fsync_in *)in)->fh));
        break;
    case FUSE_RELEASE:
        reply_result(close((int)((const struct fuse_release_in *)in)->fh));
        break;
    case FUSE_LINK: {
        const struct fuse_link_in *link_in = in;
        const char *path = join(request.head.nodeid, (const char *)(link_in + 1));

        reply_entry(path, link(path_of(link_in->oldnodeid), path));
        break;
    }
    case FUSE_UNLINK:
        reply_result(unlink(join(request.head.nodeid, name)));
        break;
    case FUSE_RMDIR:
        reply_result(rmdir(join(request.head.nodeid, name)));
        break;
    case FUSE_RENAME:
        rename_name(((const struct fuse_rename_in *)in)->newdir,
                    (const char *)((const struct fuse_rename_in *)in + 1));
        break;
    case FUSE_RENAME2:
        rename_name(((const struct fuse_rename2_in *)in)->newdir,
                    (const char *)((const struct fuse_rename2_in *)in + 1));
        break;
    case FUSE_OPENDIR:
        open_folder();
        break;
    case FUSE_READDIR:
        read_folder(in);
        break;
    case FUSE_RELEASEDIR:
        reply_result(closedir((DIR *)(uintptr_t)((const struct fuse_release_in *)in)->fh));
        break;
    case FUSE_FLUSH:
    case FUSE_FSYNCDIR:
        reply_error(0);
        break;
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_INTERRUPT:
        break; /* these have no answer */
    default:
        reply_error(ENOSYS);
    }
}

static volatile sig_atomic_t is_stuck;

static void on_signal(int signal)
{
    is_stuck = signal == SIGUSR1;
}

/* Answers no request while it is told so. */
static void wait_for_leave(int delay_ms)
{
    sigset_t both, before;

    usleep((useconds_t)delay_ms * 1000);
    sigemptyset(&both);
    sigaddset(&both, SIGUSR1);
    sigaddset(&both, SIGUSR2);
    sigprocmask(SIG_BLOCK, &both, &before);
    while (is_stuck)
        sigsuspend(&before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

int main(int argc, char **argv)
{
    const struct sigaction action = { .sa_handler = on_signal };
    struct stat stat;
    char options[128];

    if (argc != 6)
        return 2;
    cache_s = atoi(argv[4]);
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGUSR2, &action, NULL);
    fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
    if (fuse < 0 || lstat(argv[2], &stat) < 0)
        return 77;
    node_of(argv[2], &stat);
    snprintf(options, sizeof options,
             "fd=%d,rootmode=40000,user_id=0,group_id=0,default_permissions,allow_other", fuse);
    if (mount("far", argv[1], "fuse", MS_NOSUID | MS_NODEV, options) < 0)
        return 77;
    for (;;) {
        const ssize_t n = read(fuse, &request, sizeof request - 1);

        if (n < 0 && (errno == EINTR || errno == ENOENT))
            continue;
        if (n < (ssize_t)sizeof request.head)
            return n < 0 && errno == ENODEV ? 0 : 1; /* unmounted */
        request.bytes[n] = '\0';
        wait_for_leave(atoi(argv[5]));
        serve(argv[3]);
    }
}

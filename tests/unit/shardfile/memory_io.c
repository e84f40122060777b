#include "tests/unit/shardfile/memory_io.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"

enum { MAX_ENTRIES = 64, NAME = 64, BLOCK = 4096 };

struct bytes {
    unsigned char *at;
    size_t n;
};

struct entry {
    char name[NAME];
    struct memory_node *node;
};

struct entries {
    struct entry at[MAX_ENTRIES];
    int n;
};

/* One unsynced change of a directory. */
struct change {
    enum { ADD, REMOVE, RENAME, EXCHANGE } kind;
    char one[NAME], two[NAME];
    struct memory_node *node;
};

struct memory_node {
    bool directory;
    struct bytes now, synced;        /* of a file */
    struct entries entries, durable; /* of a directory */
    struct change *changes;
    int n_changes;
    struct memory_node *next, *copy;
};

/* Nodes and paths */

static struct memory_node *make_node(struct memory_io *io, bool directory)
{
    struct memory_node *node = calloc(1, sizeof *node);

    if (node == NULL)
        abort();
    node->directory = directory;
    node->next = io->nodes;
    io->nodes = node;
    return node;
}

static void resize(struct bytes *bytes, size_t n)
{
    bytes->at = realloc(bytes->at, n + 1);
    if (bytes->at == NULL)
        abort();
    if (n > bytes->n)
        memset(bytes->at + bytes->n, 0, n - bytes->n);
    bytes->n = n;
}

static void set_bytes(struct bytes *bytes, const struct bytes *from)
{
    resize(bytes, from->n);
    if (from->n > 0)
        memcpy(bytes->at, from->at, from->n);
}

static int find(const struct entries *entries, const char *name)
{
    for (int i = 0; i < entries->n; i++)
        if (strcmp(entries->at[i].name, name) == 0)
            return i;
    return -1;
}

/* Apply one change to a list of entries; the running list and the replay after a crash share it. */
static void apply(struct entries *entries, const struct change *change)
{
    int one = find(entries, change->one), two;

    switch (change->kind) {
    case ADD:
        if (entries->n == MAX_ENTRIES)
            abort();
        snprintf(entries->at[entries->n].name, NAME, "%s", change->one);
        entries->at[entries->n++].node = change->node;
        break;
    case REMOVE:
        entries->at[one] = entries->at[--entries->n];
        break;
    case RENAME:
        two = find(entries, change->two);
        if (two >= 0) {
            entries->at[two] = entries->at[--entries->n];
            one = find(entries, change->one);
        }
        snprintf(entries->at[one].name, NAME, "%s", change->two);
        break;
    case EXCHANGE: {
        struct memory_node *node = entries->at[one].node;

        two = find(entries, change->two);
        entries->at[one].node = entries->at[two].node;
        entries->at[two].node = node;
        break;
    }
    }
}

static void change(struct memory_node *directory, int kind, const char *one, const char *two,
                   struct memory_node *node)
{
    struct change *grown = reallocarray(directory->changes, (size_t)directory->n_changes + 1, sizeof *grown);
    struct change *last;

    if (grown == NULL)
        abort();
    directory->changes = grown;
    last = &grown[directory->n_changes++];
    *last = (struct change){ .kind = kind, .node = node };
    snprintf(last->one, NAME, "%s", one);
    snprintf(last->two, NAME, "%s", two == NULL ? "" : two);
    apply(&directory->entries, last);
}

/*
 * The node of `path`, or NULL with errno. *parent and `name` are its last step, set also where it is not
 * there.
 */
static struct memory_node *walk(struct memory_io *io, const char *path, struct memory_node **parent,
                                char name[NAME])
{
    struct memory_node *node = io->root;

    *parent = NULL;
    name[0] = '\0';
    while (*path != '\0') {
        const size_t n = strcspn(path, "/");
        int index;

        if (n == 0 || (n == 1 && path[0] == '.')) {
            path++;
            continue;
        }
        if (node == NULL || !node->directory || n >= NAME) {
            errno = node == NULL ? ENOENT : ENOTDIR;
            *parent = NULL;
            return NULL;
        }
        snprintf(name, NAME, "%.*s", (int)n, path);
        path += n;
        *parent = node;
        index = find(&node->entries, name);
        node = index < 0 ? NULL : node->entries.at[index].node;
    }
    if (node == NULL)
        errno = ENOENT;
    return node;
}

/* The calls */

static int fail(int error)
{
    errno = error;
    return -1;
}

/* Every call begins here: 0, or -1 with errno where it must fail. */
static int begin(struct fsdp_io *base, const char *name)
{
    struct memory_io *io = (struct memory_io *)base;

    io->calls++;
    io->last = name;
    if (io->stop_at > 0 && io->calls >= io->stop_at)
        return fail(EIO);
    if (io->calls != io->fail_at)
        return 0;
    io->has_failed = true;
    return fail(io->fail_errno);
}

/* As begin(), for calls that may be interrupted. */
static int begin_slow(struct fsdp_io *base, const char *name)
{
    const struct memory_io *io = (struct memory_io *)base;

    if (begin(base, name) < 0)
        return -1;
    return io->short_calls && io->calls % 3 == 0 ? fail(EINTR) : 0;
}

/* To use what is not open is a bug that must not pass as a failed call. */
static struct memory_file *file_of(struct fsdp_io *base, int fd)
{
    struct memory_io *io = (struct memory_io *)base;

    if (fd < 3 || fd >= 3 + 64 || io->open_files[fd - 3].node == NULL)
        abort();
    return &io->open_files[fd - 3];
}

static int memory_open(struct fsdp_io *base, const char *path, int flags, mode_t mode)
{
    struct memory_io *io = (struct memory_io *)base;
    struct memory_node *parent, *node;
    char name[NAME];
    int slot = 0;

    (void)mode;
    if (begin_slow(base, "open") < 0)
        return -1;
    node = walk(io, path, &parent, name);
    if (node == NULL && ((flags & O_CREAT) == 0 || parent == NULL))
        return -1;
    if ((flags & O_DIRECT) != 0 && !io->takes_direct)
        return fail(EINVAL);
    if (node != NULL && (flags & O_CREAT) != 0 && (flags & O_EXCL) != 0)
        return fail(EEXIST);
    if (node != NULL && (flags & O_DIRECTORY) != 0 && !node->directory)
        return fail(ENOTDIR);
    while (slot < 64 && io->open_files[slot].node != NULL)
        slot++;
    if (slot == 64)
        return fail(EMFILE);
    if (node == NULL) {
        node = make_node(io, false);
        change(parent, ADD, name, NULL, node);
    }
    io->open_files[slot] = (struct memory_file){ node, (flags & O_DIRECT) != 0, (flags & O_DSYNC) != 0 };
    io->n_open++;
    return slot + 3;
}

static int memory_close(struct fsdp_io *base, int fd)
{
    file_of(base, fd)->node = NULL; /* as on Linux the descriptor is gone even when close() fails */
    ((struct memory_io *)base)->n_open--;
    return begin(base, "close");
}

static ssize_t memory_pwrite(struct fsdp_io *base, int fd, const void *bytes, size_t n, uint64_t offset)
{
    const struct memory_file *file = file_of(base, fd);

    if (begin_slow(base, "pwrite") < 0)
        return -1;
    if (file->direct && ((uintptr_t)bytes % BLOCK != 0 || n % BLOCK != 0 || offset % BLOCK != 0))
        return fail(EINVAL);
    if (((struct memory_io *)base)->short_calls && n > 1)
        n /= 2;
    if (file->node->now.n < offset + n)
        resize(&file->node->now, offset + n);
    memcpy(file->node->now.at + offset, bytes, n);
    if (file->syncs)
        set_bytes(&file->node->synced, &file->node->now);
    return (ssize_t)n;
}

static ssize_t memory_pread(struct fsdp_io *base, int fd, void *bytes, size_t n, uint64_t offset)
{
    const struct bytes *now = &file_of(base, fd)->node->now;
    const size_t left = offset < now->n ? now->n - offset : 0;

    if (begin_slow(base, "pread") < 0)
        return -1;
    n = n < left ? n : left;
    if (((struct memory_io *)base)->short_calls && n > 1)
        n /= 2;
    if (n > 0)
        memcpy(bytes, now->at + offset, n);
    return (ssize_t)n;
}

static int memory_allocate(struct fsdp_io *base, int fd, uint64_t n)
{
    struct bytes *now = &file_of(base, fd)->node->now;

    if (begin(base, "allocate") < 0)
        return -1;
    if (now->n < n)
        resize(now, n);
    return 0;
}

static int memory_ftruncate(struct fsdp_io *base, int fd, uint64_t n)
{
    if (begin(base, "ftruncate") < 0)
        return -1;
    resize(&file_of(base, fd)->node->now, n);
    return 0;
}

static int memory_fsync(struct fsdp_io *base, int fd)
{
    struct memory_node *node = file_of(base, fd)->node;

    if (begin(base, "fsync") < 0)
        return -1;
    node->durable = node->entries;
    node->n_changes = 0;
    set_bytes(&node->synced, &node->now);
    return 0;
}

static uint64_t count_names(const struct memory_io *io, const struct memory_node *node)
{
    uint64_t n = 0;

    for (const struct memory_node *directory = io->nodes; directory != NULL; directory = directory->next)
        for (int i = 0; i < directory->entries.n; i++)
            n += directory->entries.at[i].node == node;
    return n;
}

static int describe(struct fsdp_io *base, const struct memory_node *node, struct io_stat *out)
{
    if (node == NULL)
        return -1;
    *out = (struct io_stat){ .kind = node->directory ? IO_DIRECTORY : IO_FILE,
                             .size_bytes = node->now.n,
                             .inode = (uintptr_t)node,
                             .n_links = count_names((struct memory_io *)base, node) };
    return 0;
}

static int memory_fstat(struct fsdp_io *base, int fd, struct io_stat *out)
{
    return begin(base, "fstat") < 0 ? -1 : describe(base, file_of(base, fd)->node, out);
}

/* A memory_io is one process's; what two processes do is a real file system's to say. */
static int memory_lock(struct fsdp_io *base, int fd, int operation)
{
    (void)fd, (void)operation;
    return begin(base, "lock");
}

static int memory_stat(struct fsdp_io *base, const char *path, struct io_stat *out)
{
    struct memory_node *parent;
    char name[NAME];

    return begin(base, "stat") < 0 ? -1
                                   : describe(base, walk((struct memory_io *)base, path, &parent, name), out);
}

static int memory_mkdir(struct fsdp_io *base, const char *path, mode_t mode)
{
    struct memory_io *io = (struct memory_io *)base;
    struct memory_node *parent;
    char name[NAME];

    (void)mode;
    if (begin(base, "mkdir") < 0)
        return -1;
    if (walk(io, path, &parent, name) != NULL)
        return fail(EEXIST);
    if (parent == NULL)
        return -1;
    change(parent, ADD, name, NULL, make_node(io, true));
    return 0;
}

static int memory_link(struct fsdp_io *base, const char *from, const char *to)
{
    struct memory_io *io = (struct memory_io *)base;
    struct memory_node *parent, *node;
    char name[NAME];

    if (begin(base, "link") < 0)
        return -1;
    node = walk(io, from, &parent, name);
    if (node == NULL)
        return -1;
    if (walk(io, to, &parent, name) != NULL)
        return fail(EEXIST);
    if (parent == NULL)
        return -1;
    change(parent, ADD, name, NULL, node);
    return 0;
}

static int memory_remove(struct fsdp_io *base, const char *path, bool directory)
{
    struct memory_node *parent, *node;
    char name[NAME];

    if (begin(base, directory ? "rmdir" : "unlink") < 0)
        return -1;
    node = walk((struct memory_io *)base, path, &parent, name);
    if (node == NULL)
        return -1;
    if (node->directory != directory || node->entries.n > 0)
        return fail(!node->directory ? ENOTDIR : directory ? ENOTEMPTY : EISDIR);
    change(parent, REMOVE, name, NULL, NULL);
    return 0;
}

static int memory_rmdir(struct fsdp_io *base, const char *path)
{
    return memory_remove(base, path, true);
}

static int memory_unlink(struct fsdp_io *base, const char *path)
{
    return memory_remove(base, path, false);
}

/* Both stay within one directory here, as they do in what is tested. */
static int move(struct memory_io *io, int kind, const char *one, const char *two)
{
    struct memory_node *parent, *other_parent, *node, *other;
    char name[NAME], other_name[NAME];

    if (begin(&io->base, kind == RENAME ? "rename" : "exchange") < 0)
        return -1;
    if (kind == EXCHANGE && io->cannot_exchange)
        return fail(EINVAL);
    node = walk(io, one, &parent, name);
    if (node == NULL)
        return -1;
    other = walk(io, two, &other_parent, other_name);
    if (parent != other_parent)
        abort();
    if (kind == EXCHANGE && other == NULL)
        return -1;
    if (kind == RENAME && other != NULL && (node->directory != other->directory || other->entries.n > 0))
        return fail(node->directory == other->directory ? EEXIST : ENOTDIR);
    change(parent, kind, name, other_name, NULL);
    return 0;
}

static int memory_rename(struct fsdp_io *base, const char *from, const char *to)
{
    return move((struct memory_io *)base, RENAME, from, to);
}

static int memory_exchange(struct fsdp_io *base, const char *one, const char *two)
{
    return move((struct memory_io *)base, EXCHANGE, one, two);
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static int memory_list(struct fsdp_io *base, const char *path, struct io_names *out)
{
    struct memory_node *parent, *node;
    char name[NAME];

    *out = (struct io_names){ 0 };
    if (begin(base, "list") < 0)
        return -1;
    node = walk((struct memory_io *)base, path, &parent, name);
    if (node == NULL)
        return -1;
    if (!node->directory)
        return fail(ENOTDIR);
    out->names = calloc((size_t)node->entries.n + 1, sizeof *out->names);
    for (int i = 0; i < node->entries.n; i++)
        out->names[out->n++] = strdup(node->entries.at[i].name);
    qsort(out->names, out->n, sizeof *out->names, compare_names);
    return 0;
}

static const struct fsdp_io memory_calls = { .open = memory_open,
                                             .close = memory_close,
                                             .pwrite = memory_pwrite,
                                             .pread = memory_pread,
                                             .allocate = memory_allocate,
                                             .ftruncate = memory_ftruncate,
                                             .fsync = memory_fsync,
                                             .fstat = memory_fstat,
                                             .lock = memory_lock,
                                             .stat = memory_stat,
                                             .mkdir = memory_mkdir,
                                             .rmdir = memory_rmdir,
                                             .rename = memory_rename,
                                             .exchange = memory_exchange,
                                             .link = memory_link,
                                             .unlink = memory_unlink,
                                             .list = memory_list };

/* Life, copies and crashes */

void memory_io_init(struct memory_io *io)
{
    *io = (struct memory_io){ .base = memory_calls, .takes_direct = true, .fail_errno = EIO };
    io->root = make_node(io, true);
}

void memory_io_fini(struct memory_io *io)
{
    while (io->nodes != NULL) {
        struct memory_node *node = io->nodes;

        io->nodes = node->next;
        free(node->now.at);
        free(node->synced.at);
        free(node->changes);
        free(node);
    }
}

static void redirect(struct entries *entries)
{
    for (int i = 0; i < entries->n; i++)
        entries->at[i].node = entries->at[i].node->copy;
}

void memory_io_copy(struct memory_io *to, const struct memory_io *from)
{
    memory_io_init(to);
    for (struct memory_node *node = from->nodes; node != NULL; node = node->next) {
        struct memory_node *copy = node == from->root ? to->root : make_node(to, node->directory);

        node->copy = copy;
        set_bytes(&copy->now, &node->now);
        set_bytes(&copy->synced, &node->synced);
        copy->entries = node->entries;
        copy->durable = node->durable;
        copy->n_changes = node->n_changes;
        copy->changes = calloc((size_t)node->n_changes + 1, sizeof *copy->changes);
        for (int i = 0; i < node->n_changes; i++)
            copy->changes[i] = node->changes[i];
    }
    for (struct memory_node *node = from->nodes; node != NULL; node = node->next) {
        redirect(&node->copy->entries);
        redirect(&node->copy->durable);
        for (int i = 0; i < node->n_changes; i++)
            if (node->copy->changes[i].node != NULL)
                node->copy->changes[i].node = node->copy->changes[i].node->copy;
    }
    to->takes_direct = from->takes_direct;
    to->cannot_exchange = from->cannot_exchange;
}

/*
 * Any block of a file may have been written back, or none; a file may have its new length without its bytes.
 */
static void crash_file(struct memory_node *node, enum memory_crash kind, uint64_t *random, uint64_t seed)
{
    struct bytes now = { 0 };

    if (kind == CRASH_KEEP_ALL)
        return;
    set_bytes(&now, &node->synced);
    if (kind == CRASH_KEEP_NAMES || (kind == CRASH_KEEP_RANDOM && rng_below(seed, (*random)++, 2) == 0))
        resize(&now, node->now.n);
    for (size_t at = 0; kind == CRASH_KEEP_RANDOM && at < now.n && at < node->now.n; at += BLOCK) {
        const size_t end = at + BLOCK < now.n ? at + BLOCK : now.n,
                     n = (end < node->now.n ? end : node->now.n) - at;

        if (rng_below(seed, (*random)++, 2) == 0)
            memcpy(now.at + at, node->now.at + at, n);
    }
    free(node->now.at);
    node->now = now;
}

static void crash_directory(struct memory_node *node, enum memory_crash kind, uint64_t *random, uint64_t seed)
{
    const int kept = kind == CRASH_KEEP_SYNCED ? 0
                     : kind == CRASH_KEEP_RANDOM
                         ? (int)rng_below(seed, (*random)++, (uint64_t)node->n_changes + 1)
                         : node->n_changes;

    node->entries = node->durable;
    for (int i = 0; i < kept; i++)
        apply(&node->entries, &node->changes[i]);
}

void memory_io_crash(struct memory_io *io, enum memory_crash kind, uint64_t seed)
{
    uint64_t random = 0;

    for (struct memory_node *node = io->nodes; node != NULL; node = node->next) {
        if (node->directory)
            crash_directory(node, kind, &random, seed);
        else
            crash_file(node, kind, &random, seed);
        /* What came up is what is on the disk. */
        node->durable = node->entries;
        node->n_changes = 0;
        set_bytes(&node->synced, &node->now);
    }
    memset(io->open_files, 0, sizeof io->open_files);
    io->n_open = io->calls = io->fail_at = io->stop_at = 0;
}

int memory_io_fail_each(int error, void (*body)(struct memory_io *io, int n))
{
    bool reached = true;
    int n = 0;

    while (reached) {
        struct memory_io io;

        memory_io_init(&io);
        io.fail_errno = error;
        body(&io, ++n);
        reached = io.has_failed;
        cr_assert(io.n_open == 0, "call %d: %d descriptors are left open", n, io.n_open);
        memory_io_fini(&io);
    }
    return n - 1;
}

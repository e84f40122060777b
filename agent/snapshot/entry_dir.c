#include "agent/snapshot/entry_dir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/snapshot/entry_files.h"
#include "shard_runtime/core/files.h"

/* Small files of an entry that came from another node. A list, the newest first. */
struct parcel {
    struct parcel *next;
    char name[ENTRY_NAME_BYTES];
    /* number: how often that node had used the name; first_rank: the first rank of that node */
    int number, first_rank;
    size_t bytes;
    char files[];
};

struct known {
    char name[ENTRY_NAME_BYTES];
    int number;
    bool complete;
};

struct entry_dir {
    uv_poll_t events;
    uv_loop_t *loop;
    struct entry_dir_handlers handlers;
    int fd, watch_fd;
    bool is_mounted;
    uint64_t limit_bytes;
    int first_rank, world_size;      /* of the generation; 0: none has begun */
    struct known known[ENTRIES_MAX]; /* (n_known) the oldest first */
    int n_known;
    struct parcel *parcels;
    struct persist *persist; /* NULL: entries are not written to a disk */
    unsigned n_removed;
};

static void say(struct entry_dir *dir, const char *name, const char *words)
{
    char line[ENTRY_NAME_BYTES + 512];

    snprintf(line, sizeof line, "snapshot %s: %s", name, words);
    dir->handlers.line(dir->handlers.arg, line);
}

/* What goes away */

struct removal {
    uv_work_t work;
    int fd;
    char name[32];
};

static void do_remove(uv_work_t *work)
{
    const struct removal *removal = work->data;

    entry_remove(removal->fd, removal->name);
}

static void on_removed(uv_work_t *work, int status)
{
    struct removal *removal = work->data;

    (void)status;
    close(removal->fd);
    free(removal);
}

/* The workers stop seeing the entry at once; another thread gives its memory back. */
static void remove_entry(struct entry_dir *dir, const char *name)
{
    struct removal *removal = malloc(sizeof *removal);

    if (removal != NULL) {
        snprintf(removal->name, sizeof removal->name, ".removed-%u", dir->n_removed++);
        removal->fd = fcntl(dir->fd, F_DUPFD_CLOEXEC, 0);
        removal->work.data = removal;
        if (removal->fd >= 0 && renameat(dir->fd, name, dir->fd, removal->name) == 0 &&
            uv_queue_work(dir->loop, &removal->work, do_remove, on_removed) == 0)
            return;
        if (removal->fd >= 0)
            close(removal->fd);
        free(removal);
    }
    entry_remove(dir->fd, name);
}

static void forget(struct entry_dir *dir, int i)
{
    memmove(&dir->known[i], &dir->known[i + 1], sizeof *dir->known * (size_t)(--dir->n_known - i));
}

static int find(const struct entry_dir *dir, const char *name)
{
    for (int i = 0; i < dir->n_known; i++)
        if (strcmp(dir->known[i].name, name) == 0)
            return i;
    return -1;
}

static void drop_parcels(struct entry_dir *dir, const char *name) /* NULL: all */
{
    for (struct parcel **at = &dir->parcels; *at != NULL;) {
        struct parcel *parcel = *at;

        if (name != NULL && strcmp(parcel->name, name) != 0) {
            at = &parcel->next;
            continue;
        }
        *at = parcel->next;
        free(parcel);
    }
}

/* What comes */

struct report {
    struct entry_dir *dir;
    struct snapshot_entry entry;
};

static void report_pack(void *arg, const char *files, size_t files_bytes, bool more)
{
    struct report *report = arg;

    report->entry.files = files;
    report->entry.files_bytes = files_bytes;
    report->entry.more = more;
    report->dir->handlers.found(report->dir->handlers.arg, &report->entry);
}

static struct report report_of(struct entry_dir *dir, const struct known *known)
{
    struct report report = { .dir = dir,
                             .entry = { .number = known->number,
                                        .first_rank = dir->first_rank,
                                        .world_size = dir->world_size,
                                        .complete = known->complete } };

    memcpy(report.entry.name, known->name, sizeof report.entry.name);
    return report;
}

/*
 * Does everything that is kept fit into the limit? If the place is a file system of its own, the limit is its
 * size.
 */
static bool fits(const struct entry_dir *dir)
{
    return dir->is_mounted || entry_size(dir->fd, ".") <= dir->limit_bytes;
}

/* Something was renamed to this name. */
static void take_name(struct entry_dir *dir, const char *name)
{
    const int before = find(dir, name);
    struct fsdp_err err = { 0 };
    struct known known = { .number = before < 0 ? 1 : dir->known[before].number + 1 };
    struct report report;

    if (dir->world_size == 0 || !entry_name_is_valid(name) ||
        faccessat(dir->fd, name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
        return;
    if (!fits(dir)) {
        say(dir, name,
            "removed, because with it the snapshots take more memory than --snapshot-memory allows");
        remove_entry(dir, name);
        return;
    }
    if (before >= 0)
        forget(dir, before);
    if (dir->n_known == ENTRIES_MAX) {
        say(dir, dir->known[0].name, "forgotten, because there are too many");
        forget(dir, 0);
    }
    snprintf(known.name, sizeof known.name, "%s", name);
    dir->known[dir->n_known++] = known;
    report = report_of(dir, &known);
    if (entry_pack(dir->fd, name, report_pack, &report, &err) != FSDP_OK)
        say(dir, name, err.message);
}

static void read_events(struct entry_dir *dir)
{
    alignas(struct inotify_event) char bytes[8192];
    ssize_t n;

    while ((n = read(dir->watch_fd, bytes, sizeof bytes)) > 0)
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const struct inotify_event *)(bytes + at);

            at += (ssize_t)(sizeof *event + event->len);
            if (event->len == 0)
                continue;
            if ((event->mask & IN_MOVED_TO) != 0)
                take_name(dir, event->name);
            else if (find(dir, event->name) >= 0 &&
                     faccessat(dir->fd, event->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0)
                forget(dir, find(dir, event->name)); /* the program has removed it */
        }
}

static void on_events(uv_poll_t *poll, int status, int events)
{
    (void)status, (void)events;
    read_events(poll->data);
}

/* From outside */

void entry_dir_begin(struct entry_dir *dir, const char *keep, int first_rank, int world_size,
                     const struct persist_seat *seat)
{
    const int copy = openat(dir->fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *listing = copy < 0 ? NULL : fdopendir(copy);
    struct dirent *entry;
    int at;

    read_events(dir);
    at = find(dir, keep);
    if (copy >= 0 && listing == NULL)
        close(copy);
    while (listing != NULL && (entry = readdir(listing)) != NULL)
        if (strcmp(entry->d_name, keep) != 0 && strcmp(entry->d_name, ".") != 0 &&
            strcmp(entry->d_name, "..") != 0 && strncmp(entry->d_name, ".removed-", 9) != 0 &&
            !persist_is_link(entry->d_name))
            remove_entry(dir, entry->d_name);
    if (listing != NULL)
        closedir(listing);
    drop_parcels(dir, NULL);
    if (at >= 0)
        dir->known[0] = dir->known[at];
    dir->n_known = at >= 0;
    dir->first_rank = first_rank;
    dir->world_size = world_size;
    if (dir->persist != NULL)
        persist_begin(dir->persist, seat);
}

void entry_dir_tell(struct entry_dir *dir)
{
    if (dir == NULL)
        return;
    read_events(dir);
    for (int i = 0; i < dir->n_known; i++) {
        struct report report = report_of(dir, &dir->known[i]);

        report_pack(&report, NULL, 0, false);
    }
}

/* Drops what the node has sent for an earlier use of the same name. */
static void drop_replaced(struct entry_dir *dir, const struct snapshot_entry *entry)
{
    for (struct parcel **at = &dir->parcels; *at != NULL;) {
        struct parcel *parcel = *at;

        if (strcmp(parcel->name, entry->name) == 0 && parcel->first_rank == entry->first_rank &&
            parcel->number != entry->number) {
            *at = parcel->next;
            free(parcel);
        } else
            at = &parcel->next;
    }
}

/*
 * If there are too many names, drops the oldest. The coordinator forgets the same one, so it would never
 * become complete.
 */
static void drop_oldest_name(struct entry_dir *dir)
{
    char oldest[ENTRY_NAME_BYTES] = "";
    int n = 0;

    for (const struct parcel *parcel = dir->parcels; parcel != NULL; parcel = parcel->next) {
        bool seen = false;

        for (const struct parcel *other = dir->parcels; other != parcel && !seen; other = other->next)
            seen = strcmp(other->name, parcel->name) == 0;
        n += !seen;
        if (!seen)
            memcpy(oldest, parcel->name, sizeof oldest);
    }
    if (n > ENTRIES_MAX)
        drop_parcels(dir, oldest);
}

static void keep_parcel(struct entry_dir *dir, const struct snapshot_entry *entry)
{
    struct parcel *parcel = malloc(sizeof *parcel + entry->files_bytes);

    if (parcel == NULL) {
        say(dir, entry->name, "no memory for files of another node");
        return;
    }
    drop_replaced(dir, entry);
    parcel->next = dir->parcels;
    parcel->number = entry->number;
    parcel->first_rank = entry->first_rank;
    parcel->bytes = entry->files_bytes;
    memcpy(parcel->name, entry->name, sizeof parcel->name);
    memcpy(parcel->files, entry->files, entry->files_bytes);
    dir->parcels = parcel;
    drop_oldest_name(dir);
}

static void remove_older(struct entry_dir *dir, const char *name)
{
    for (int at = find(dir, name); at > 0; at--) {
        remove_entry(dir, dir->known[0].name);
        forget(dir, 0);
    }
}

static void on_synced(void *arg, const char *name)
{
    remove_older(arg, name);
}

static void on_persist_line(void *arg, const char *name, const char *words)
{
    say(arg, name, words);
}

/* All nodes have the entry: puts the small files of the other nodes into it, and removes older entries. */
static void complete(struct entry_dir *dir, const char *name)
{
    struct fsdp_err err = { 0 };
    const int at = find(dir, name);

    if (at < 0 || dir->known[at].complete)
        return; /* the program has removed the entry, or this message came before */
    for (const struct parcel *parcel = dir->parcels; parcel != NULL; parcel = parcel->next)
        if (strcmp(parcel->name, name) == 0 &&
            entry_unpack(dir->fd, name, parcel->files, parcel->bytes, &err) != FSDP_OK) {
            say(dir, name, err.message);
            break;
        }
    drop_parcels(dir, name);
    dir->known[at].complete = err.status == FSDP_OK;
    if (dir->known[at].complete && dir->persist != NULL)
        persist_add(dir->persist, name);
    else if (dir->known[at].complete)
        remove_older(dir, name);
}

void entry_dir_take(struct entry_dir *dir, const struct snapshot_entry *entry)
{
    read_events(dir);
    if (entry->files_bytes > 0)
        keep_parcel(dir, entry);
    if (entry->complete)
        complete(dir, entry->name);
}

/* Life */

enum fsdp_status entry_dir_open(struct entry_dir **out, uv_loop_t *loop, const struct place *place,
                                const char *persist, const struct entry_dir_handlers *handlers,
                                struct fsdp_err *err)
{
    struct entry_dir *dir = calloc(1, sizeof *dir);
    const struct persist_handlers on_disk = { dir, on_synced, on_persist_line };

    *out = NULL;
    if (dir == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory");
    dir->loop = loop;
    dir->handlers = *handlers;
    dir->is_mounted = place->is_mounted;
    dir->limit_bytes = place->limit_bytes;
    dir->fd = open(place->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    dir->watch_fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (dir->fd < 0 || dir->watch_fd < 0 ||
        inotify_add_watch(dir->watch_fd, place->path, IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE) < 0 ||
        uv_poll_init(loop, &dir->events, dir->watch_fd) != 0) {
        (void)file_fail(err, "watch", place->path);
        if (dir->fd >= 0)
            close(dir->fd);
        if (dir->watch_fd >= 0)
            close(dir->watch_fd);
        free(dir);
        return FSDP_ERR_IO;
    }
    if (persist != NULL && (dir->persist = persist_create(loop, dir->fd, persist, &on_disk)) == NULL)
        say(dir, "directory", "no memory to write to the disk");
    dir->events.data = dir;
    uv_poll_start(&dir->events, UV_READABLE, on_events);
    *out = dir;
    return FSDP_OK;
}

static void on_closed(uv_handle_t *handle)
{
    struct entry_dir *dir = handle->data;

    drop_parcels(dir, NULL);
    persist_close(dir->persist);
    close(dir->watch_fd);
    close(dir->fd);
    free(dir);
}

void entry_dir_close(struct entry_dir *dir)
{
    if (dir != NULL)
        uv_close((uv_handle_t *)&dir->events, on_closed);
}

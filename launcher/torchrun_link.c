#include "launcher/torchrun_link.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"

static const char torchrun[] = "torchrun";
static const char kept[] = "torchrun.before-fsdprun";
/* name of the new link until it is renamed to torchrun */
static const char fresh[] = ".torchrun.fsdprun-new";

enum torchrun_step torchrun_link_step(bool install, enum torchrun_entry now, enum torchrun_entry before,
                                      bool equal)
{
    if (now == ENTRY_FOLDER || before == ENTRY_FOLDER)
        return STEP_FOLDER;
    if (install) {
        if (now == ENTRY_LINK)
            return STEP_HAVE;
        if (now == ENTRY_NONE)
            return STEP_LINK;
        if (before == ENTRY_NONE)
            return STEP_KEEP;
        return equal ? STEP_REPLACE : STEP_CHANGED;
    }
    if (before == ENTRY_NONE)
        return now == ENTRY_LINK ? STEP_REMOVE : STEP_NOTHING;
    if (now == ENTRY_LINK)
        return STEP_RESTORE;
    return equal ? STEP_FORGET : STEP_CHANGED;
}

struct place {
    int fd;              /* descriptor of the folder */
    char path[PATH_MAX]; /* its path, for messages */
    const char *name;    /* name of fsdprun in that folder */
};

/*
 * Opens the folder, and waits until no other fsdprun is changing it. If the file system has no locks, it goes
 * on without one.
 */
static enum fsdp_status open_place(struct place *place, const char *called, struct fsdp_err *err)
{
    const char *slash = strrchr(called, '/');
    const int length = slash == NULL ? 0 : (int)(slash - called);

    place->name = slash == NULL ? called : slash + 1;
    snprintf(place->path, sizeof place->path, "%.*s", slash == NULL ? 1 : length,
             slash == NULL ? "." : called);
    place->fd = open(length == 0 && slash != NULL ? "/" : place->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (place->fd < 0)
        return file_fail(err, "cannot open", place->path);
    (void)flock(place->fd, LOCK_EX);
    return FSDP_OK;
}

/*
 * Returns what kind of entry has the name. `info` receives the entry's own inode, not that of a link's
 * target.
 */
static enum torchrun_entry look(const struct place *place, const char *name, struct stat *info)
{
    struct stat target, own;

    if (fstatat(place->fd, name, info, AT_SYMLINK_NOFOLLOW) != 0)
        return ENTRY_NONE;
    if (S_ISDIR(info->st_mode))
        return ENTRY_FOLDER;
    if (S_ISLNK(info->st_mode) && fstatat(place->fd, name, &target, 0) == 0 &&
        fstatat(place->fd, place->name, &own, 0) == 0 && target.st_dev == own.st_dev &&
        target.st_ino == own.st_ino)
        return ENTRY_LINK;
    return ENTRY_OTHER;
}

static enum fsdp_status cannot(const struct place *place, struct fsdp_err *err)
{
    return file_fail(err, "cannot change torchrun in", place->path);
}

/*
 * Makes the link under another name and renames it to torchrun. So at every moment there is a torchrun, which
 * symlink() alone cannot ensure.
 */
static enum fsdp_status put_link(const struct place *place, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    (void)unlinkat(place->fd, fresh, 0); /* left by a call that was cut short */
    if (symlinkat(place->name, place->fd, fresh) != 0)
        return cannot(place, err);
    if (renameat(place->fd, fresh, place->fd, torchrun) != 0) {
        status = cannot(place, err);
        (void)unlinkat(place->fd, fresh, 0);
    }
    return status;
}

static enum fsdp_status act(const struct place *place, enum torchrun_step step, char *said,
                            struct fsdp_err *err)
{
    const char *const path = place->path;
    enum fsdp_status status = FSDP_OK;
    const char *words = "";

    switch (step) {
    case STEP_KEEP:
        if (linkat(place->fd, torchrun, place->fd, kept, 0) != 0)
            return cannot(place, err);
        /* fallthrough */
    case STEP_REPLACE:
        status = put_link(place, err);
        if (status != FSDP_OK && step == STEP_KEEP)
            (void)unlinkat(place->fd, kept, 0);
        words = " is fsdprun now; the one from before is kept as torchrun.before-fsdprun";
        break;
    case STEP_LINK:
        status = put_link(place, err);
        words = " is fsdprun now";
        break;
    case STEP_HAVE:
        words = " is fsdprun already";
        break;
    case STEP_REMOVE:
        if (unlinkat(place->fd, torchrun, 0) != 0)
            return cannot(place, err);
        words = " is removed; there was none before";
        break;
    case STEP_RESTORE:
        if (renameat(place->fd, kept, place->fd, torchrun) != 0)
            return cannot(place, err);
        words = " is the one from before again";
        break;
    case STEP_FORGET:
        if (unlinkat(place->fd, kept, 0) != 0)
            return cannot(place, err);
        /* fallthrough */
    case STEP_NOTHING:
        words = " is no link to fsdprun: there is nothing to undo";
        break;
    case STEP_FOLDER:
        return fsdp_fail(err, FSDP_ERR_BUSY, "%.160s has a directory named torchrun or %s: it is left alone",
                         path, kept);
    case STEP_CHANGED:
    case STEP_UNSET:
        return fsdp_fail(err, FSDP_ERR_BUSY,
                         "%.160s/torchrun was changed or removed since the one from before was kept as %s: "
                         "rename or remove one of the two, and call again",
                         path, kept);
    }
    if (status == FSDP_OK)
        snprintf(said, TORCHRUN_LINK_SAID_BYTES, "%.300s/torchrun%s", path, words);
    return status;
}

static enum fsdp_status change(bool install, const char *called, char *said, struct fsdp_err *err)
{
    struct place place;
    struct stat now, before;
    enum torchrun_entry has, keeps;
    enum fsdp_status status;

    status = open_place(&place, called, err);
    if (status != FSDP_OK)
        return status;
    has = look(&place, torchrun, &now);
    keeps = look(&place, kept, &before);
    status = act(&place,
                 torchrun_link_step(install, has, keeps,
                                    has != ENTRY_NONE && keeps != ENTRY_NONE && now.st_dev == before.st_dev &&
                                        now.st_ino == before.st_ino),
                 said, err);
    close(place.fd);
    return status;
}

enum fsdp_status torchrun_link_install(const char *called, char *said, struct fsdp_err *err)
{
    return change(true, called, said, err);
}

enum fsdp_status torchrun_link_uninstall(const char *called, char *said, struct fsdp_err *err)
{
    return change(false, called, said, err);
}

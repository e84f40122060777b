/*
 * The file system of the run directory, and the temporary directory. If the run directory does not exist yet,
 * the nearest existing directory above it is checked in its place.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "agent/os/small_file.h"
#include "shard_runtime/core/clock.h"

enum { WRITE_BYTES = 1 << 20, WRITE_MOST = 64, SMALL_SYNCS = 9, SMALL_BYTES = 4096, WRITE_FOR_MS = 300 };
enum { MOUNTS_BYTES = 1 << 18 };

void doctor_directory(char *out, size_t size, const char *wanted)
{
    char path[PATH_MAX], whole[PATH_MAX];
    struct stat info;
    char *slash;

    if (wanted[0] == '/' || getcwd(whole, sizeof whole) == NULL)
        snprintf(path, sizeof path, "%s", wanted);
    else if (snprintf(path, sizeof path, "%s/%s", whole, wanted) >= (int)sizeof path)
        path[0] = '\0';
    while ((stat(path, &info) < 0 || !S_ISDIR(info.st_mode)) && (slash = strrchr(path, '/')) != NULL)
        *slash = '\0';
    if (realpath(path[0] != '\0' ? path : "/", whole) == NULL)
        snprintf(whole, sizeof whole, "/");
    snprintf(out, size, "%s", whole);
}

/*
 * A path belongs to the mount with the longest mount point above it. If two have the same mount point, the
 * later one hides the other.
 */
static void find_mount(struct disk_facts *disk, const struct doctor_host *host)
{
    char *text = malloc(MOUNTS_BYTES), *rest = text, *line;
    char path[SMALL_FILE_PATH_BYTES];
    size_t best = 0;
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/self/mountinfo", host->root);
    file = fopen(path, "re");
    if (text != NULL && file != NULL)
        text[fread(text, 1, MOUNTS_BYTES - 1, file)] = '\0';
    while (text != NULL && file != NULL && (line = strsep(&rest, "\n")) != NULL) {
        char point[PATH_MAX], type[64], source[512], options[512];
        const char *dash = strstr(line, " - ");
        size_t length;

        /* proc(5): ID PARENT DEVICE ROOT POINT OPTIONS [FIELDS...] - TYPE SOURCE SUPER_OPTIONS */
        if (dash == NULL || sscanf(line, "%*d %*d %*s %*s %4095s", point) != 1 ||
            sscanf(dash, " - %63s %511s %511s", type, source, options) != 3)
            continue;
        length = strcmp(point, "/") == 0 ? 0 : strlen(point);
        if (strncmp(disk->path, point, length) != 0 ||
            (disk->path[length] != '/' && disk->path[length] != '\0') || length < best)
            continue;
        best = length;
        snprintf(disk->type, sizeof disk->type, "%.31s", type);
        snprintf(disk->source, sizeof disk->source, "%.159s", source);
        snprintf(disk->options, sizeof disk->options, "%s", options);
    }
    if (file != NULL)
        fclose(file);
    free(text);
}

static int compare(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

    return (x > y) - (x < y);
}

/*
 * Measures what a run does to its disk: large pieces, as checkpoints are written, and small appended lines,
 * as events are, each synced.
 */
static int measure(struct disk_facts *disk, int fd)
{
    char *piece = calloc(1, WRITE_BYTES);
    int64_t took_us[SMALL_SYNCS], began_ns, n = 0;
    int error = piece == NULL ? ENOMEM : 0;

    for (int i = 0; i < SMALL_SYNCS && error == 0; i++) {
        began_ns = clock_now_ns();
        if (pwrite(fd, piece, SMALL_BYTES, (off_t)i * SMALL_BYTES) != SMALL_BYTES || fdatasync(fd) < 0)
            error = errno != 0 ? errno : ENOSPC;
        took_us[i] = (clock_now_ns() - began_ns) / 1000;
    }
    began_ns = clock_now_ns();
    while (error == 0 && n < WRITE_MOST && clock_now_ns() - began_ns < (int64_t)WRITE_FOR_MS * 1000000) {
        memset(piece, (int)n + 1, WRITE_BYTES);
        if (pwrite(fd, piece, WRITE_BYTES, (off_t)n * WRITE_BYTES) != WRITE_BYTES || fdatasync(fd) < 0)
            error = errno != 0 ? errno : ENOSPC;
        n++;
    }
    if (error == 0) {
        disk->write_bytes_per_s =
            (int64_t)((double)n * WRITE_BYTES / ((double)(clock_now_ns() - began_ns) / 1e9));
        qsort(took_us, SMALL_SYNCS, sizeof *took_us, compare);
        disk->sync_us = took_us[SMALL_SYNCS / 2];
    }
    free(piece);
    return error;
}

/* Makes a file in `directory` and removes its name. Returns 0 with *fd open, or the errno. */
static int make_file(const char *directory, int *fd)
{
    char path[DOCTOR_PATH_BYTES + 32];

    snprintf(path, sizeof path, "%s/.fsdprun-doctor.XXXXXX", directory);
    *fd = mkostemp(path, O_CLOEXEC);
    if (*fd < 0)
        return errno;
    (void)unlink(path);
    return 0;
}

static void look_at_temporary(struct disk_facts *disk, const struct doctor_host *host)
{
    const char *named = doctor_env(host, "TMPDIR");
    struct statvfs space;
    int fd;

    snprintf(disk->temporary, sizeof disk->temporary, "%s", named != NULL ? named : "/tmp");
    disk->temporary_free_bytes = -1;
    disk->temporary_error = make_file(disk->temporary, &fd);
    if (disk->temporary_error != 0)
        return;
    if (fstatvfs(fd, &space) == 0)
        disk->temporary_free_bytes = (int64_t)space.f_bavail * (int64_t)space.f_frsize;
    close(fd);
}

void disk_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct disk_facts *disk = &facts->disk;
    struct statvfs space;
    int fd;

    doctor_directory(disk->path, sizeof disk->path, host->run_dir);
    find_mount(disk, host);
    look_at_temporary(disk, host);
    disk->free_bytes = disk->size_bytes = disk->free_inodes = disk->sync_us = disk->write_bytes_per_s = -1;
    if (statvfs(disk->path, &space) == 0) {
        disk->free_bytes = (int64_t)space.f_bavail * (int64_t)space.f_frsize;
        disk->size_bytes = (int64_t)space.f_blocks * (int64_t)space.f_frsize;
        disk->free_inodes = space.f_files > 0 ? (int64_t)space.f_favail : -1; /* btrfs counts none */
    }
    disk->make_error = make_file(disk->path, &fd);
    if (disk->make_error != 0)
        return;
    disk->lock_error = flock(fd, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
    disk->write_error = measure(disk, fd);
    close(fd);
}

static enum doctor_state writable(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct disk_facts *disk = &facts->disk;

    return disk->make_error == 0
               ? doctor_say(DOCTOR_OK, value, "%s", disk->path)
               : doctor_say(DOCTOR_FAIL, value, "%s: %s", disk->path, strerror(disk->make_error));
}

static enum doctor_state space(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct disk_facts *disk = &facts->disk;
    char free_text[32], size[32];

    if (disk->free_bytes < 0)
        return DOCTOR_NOTHING;
    return doctor_say(doctor_least(disk->free_bytes, INT64_C(20) << 30, INT64_C(1) << 30), value,
                      "%s free of %s", doctor_size(free_text, disk->free_bytes),
                      doctor_size(size, disk->size_bytes));
}

static enum doctor_state inodes(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const int64_t n = facts->disk.free_inodes;

    return n < 0 ? DOCTOR_NOTHING
                 : doctor_say(doctor_least(n, 10000, 500), value, "%" PRId64 " files can be made", n);
}

static enum doctor_state sync_write(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct disk_facts *disk = &facts->disk;
    const enum doctor_state fast = doctor_least(disk->write_bytes_per_s, 100000000, 5000000),
                            soon = disk->sync_us > 1000000  ? DOCTOR_FAIL
                                   : disk->sync_us > 100000 ? DOCTOR_WARN
                                                            : DOCTOR_OK;

    if (disk->make_error != 0)
        return DOCTOR_NOTHING;
    if (disk->write_error != 0)
        return doctor_say(DOCTOR_FAIL, value, "a synced write: %s", strerror(disk->write_error));
    return doctor_say(fast > soon ? fast : soon, value, "%.0f MB/s in synced pieces of 1 MiB; a line %.1f ms",
                      (double)disk->write_bytes_per_s / 1e6, (double)disk->sync_us / 1e3);
}

static bool one_of(const char *type, const char *const *types)
{
    for (; *types != NULL; types++)
        if (strcmp(type, *types) == 0)
            return true;
    return false;
}

static bool has_option(const char *options, const char *option)
{
    const size_t length = strlen(option);

    for (const char *at = options; (at = strstr(at, option)) != NULL; at += length)
        if ((at == options || at[-1] == ',') && (at[length] == '\0' || at[length] == ','))
            return true;
    return false;
}

static bool is_network(const char *type)
{
    static const char *const types[] = { "nfs",  "nfs4",    "lustre",     "gpfs", "beegfs", "ceph",
                                         "cifs", "fuse.s3", "fuse.sshfs", "9p",   "wekafs", NULL };

    return one_of(type, types);
}

static enum doctor_state kept(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    static const char *const passing[] = { "tmpfs", "ramfs", "overlay", NULL };
    const struct disk_facts *disk = &facts->disk;

    if (disk->type[0] == '\0')
        return DOCTOR_NOTHING;
    return doctor_say(one_of(disk->type, passing) ? DOCTOR_WARN : DOCTOR_OK, value, "%s%s (%s)", disk->type,
                      is_network(disk->type) ? ", a network file system" : "", disk->source);
}

/*
 * flock() keeps two runs in one directory apart. On these file systems the lock works on one host only, or
 * not at all.
 */
static enum doctor_state locks(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    static const char *const local[] = { "nolock", "local_lock=all", "local_lock=flock", "localflock",
                                         "noflock" };
    const struct disk_facts *disk = &facts->disk;

    if (disk->make_error != 0)
        return DOCTOR_NOTHING;
    if (disk->lock_error != 0)
        return doctor_say(DOCTOR_FAIL, value, "flock: %s", strerror(disk->lock_error));
    for (size_t i = 0; i < sizeof local / sizeof *local && is_network(disk->type); i++)
        if (has_option(disk->options, local[i]))
            return doctor_say(DOCTOR_WARN, value, "mounted with %s: other hosts do not see our lock",
                              local[i]);
    return doctor_say(DOCTOR_OK, value, "flock works");
}

static enum doctor_state hard_mount(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct disk_facts *disk = &facts->disk;

    if (strncmp(disk->type, "nfs", 3) != 0)
        return DOCTOR_NOTHING;
    return has_option(disk->options, "soft") || has_option(disk->options, "softerr")
               ? doctor_say(DOCTOR_WARN, value, "NFS mounted soft: a slow server becomes an I/O error")
               : doctor_say(DOCTOR_OK, value, "NFS mounted hard");
}

static enum doctor_state temporary(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct disk_facts *disk = &facts->disk;
    char size[32];

    if (disk->temporary_error != 0)
        return doctor_say(DOCTOR_FAIL, value, "%s: %s", disk->temporary, strerror(disk->temporary_error));
    return doctor_say(doctor_least(disk->temporary_free_bytes, INT64_C(1) << 30, INT64_C(64) << 20), value,
                      "%s free in %s", doctor_size(size, disk->temporary_free_bytes), disk->temporary);
}

const struct doctor_check disk_checks[] = {
    { "disk.writable", writable,
      "give a run directory that you may write: --run-dir, or run.dir of the job" },
    { "disk.space", space, "free some, keep fewer checkpoints (checkpoint.keep), or use another --run-dir" },
    { "disk.inodes", inodes, "remove files you no longer need: a checkpoint has one for each rank" },
    { "disk.sync", sync_write,
      "saves will be slow: keep checkpoint.async on, save less often, or use a faster disk" },
    { "disk.kept", kept, "what is written there goes with the container or the machine: mount a disk" },
    { "disk.lock", locks,
      "two runs could use one directory: mount with locks (nfs: no nolock; lustre: flock)" },
    { "disk.hard", hard_mount, "mount it hard: with soft, data that was written may be lost" },
    { "disk.temporary", temporary, "free some, or set TMPDIR: programs and sockets use it" },
    { 0 },
};

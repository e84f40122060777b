#include "agent/arbiter/directory_store.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/files.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/io_beneath.h"

/*
 * Each place has a page of its own, because an NFS client may write a whole page to change some bytes of it.
 */
enum {
    TERMS = 4,
    PLACES = 2 * TERMS,
    PLACE_BYTES = 4096,
    FILE_BYTES = PLACES * PLACE_BYTES,
    NAME_BYTES = 32
};

struct directory_store {
    struct arbiter_store store; /* first: callers have a pointer to it */
    struct fsdp_io *io, *own;   /* `own`: made here, or NULL */
    char run_dir[IO_PATH_BYTES], folder[IO_PATH_BYTES], record[IO_PATH_BYTES];
    unsigned char bytes[FILE_BYTES]; /* what was read of `record` */
};

static struct directory_store *of(struct arbiter_store *store)
{
    return (struct directory_store *)store;
}

/*
 * Opens a file for reading and writing, and creates it if it is missing. `flags` are further flags of
 * open(2).
 */
static int try_open(struct directory_store *store, const char *path, int flags)
{
    struct fsdp_io *io = store->io;
    int fd;

    /* O_DSYNC: else an NFS client would write whole pages, even those that another host has changed. */
    do
        fd = io->open(io, path, O_RDWR | O_CREAT | O_DSYNC | O_NOFOLLOW | flags, 0600);
    while (fd < 0 && errno == EINTR);
    return fd;
}

/*
 * Opens the run directory, once. It may belong to another user, so everything in it is found from this
 * descriptor. FSDP_ERR_NOT_FOUND: it does not exist yet.
 */
static enum fsdp_status open_run_dir(struct directory_store *store, struct fsdp_err *err)
{
    struct io_stat stat;

    if (store->io != NULL)
        return FSDP_OK;
    if (io_posix.stat(&io_posix, store->run_dir, &stat) < 0 && errno == ENOENT)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "there is no %s", store->run_dir);
    OK_OR_RETURN(io_beneath_open(&store->own, store->run_dir, err));
    store->io = store->own;
    return FSDP_OK;
}

/* The record's file */

/*
 * Makes the folder, and syncs it even if it exists: several agents may make it at once, and the one that did
 * may not have synced it. FSDP_ERR_NOT_FOUND: there is no run directory.
 */
static enum fsdp_status make_folder(struct directory_store *store, struct fsdp_err *err)
{
    if (store->io->mkdir(store->io, store->folder, 0700) < 0 && errno != EEXIST)
        return fsdp_fail(err, errno == ENOENT ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "make %s: %s",
                         store->folder, strerror(errno));
    return io_sync_directory(store->io, store->run_dir, err);
}

/* Opens the record's file again, so that what other hosts have written to it is read. */
static enum fsdp_status open_record(struct directory_store *store, int *fd, struct fsdp_err *err)
{
    *fd = try_open(store, store->record, 0);
    if (*fd < 0 && errno == ENOENT) {
        OK_OR_RETURN(make_folder(store, err));
        *fd = try_open(store, store->record, 0);
    }
    return *fd >= 0 ? FSDP_OK : file_fail(err, "open", store->record);
}

/*
 * Reads the newest record of all places. *newest has term 0 if there is none. Whichever host opens the file
 * first gives it its full size, because a host may remember an old size as long as it caches attributes.
 */
static enum fsdp_status read_places(struct directory_store *store, int fd, struct leader_record *newest,
                                    struct fsdp_err *err)
{
    struct fsdp_io *io = store->io;
    struct leader_record record;
    struct io_stat stat;

    *newest = (struct leader_record){ .term = 0 };
    if (io->fstat(io, fd, &stat) < 0 ||
        (stat.size_bytes < FILE_BYTES && io->ftruncate(io, fd, FILE_BYTES) < 0))
        return file_fail(err, "size of", store->record);
    OK_OR_RETURN(io_read_all(io, fd, store->bytes, FILE_BYTES, 0, store->record, err));
    for (size_t at = 0; at < FILE_BYTES; at += PLACE_BYTES)
        if (leader_record_decode(&record, store->bytes + at, LEADER_RECORD_BYTES) &&
            leader_record_is_later(&record, newest))
            *newest = record;
    return FSDP_OK;
}

static enum fsdp_status read_record(struct directory_store *store, struct leader_record *newest,
                                    struct fsdp_err *err)
{
    enum fsdp_status status;
    int fd;

    OK_OR_RETURN(open_record(store, &fd, err));
    status = read_places(store, fd, newest, err);
    (void)store->io->close(store->io, fd);
    return status;
}

/* Claims */

static void claim_name(char name[NAME_BYTES], uint64_t term)
{
    snprintf(name, NAME_BYTES, "term-%" PRIu64, term);
}

static enum fsdp_status claim_path(const struct directory_store *store, uint64_t term,
                                   char path[IO_PATH_BYTES], struct fsdp_err *err)
{
    char name[NAME_BYTES];

    claim_name(name, term);
    return io_join(path, store->folder, name, err);
}

/*
 * Reads the claim of a term. If the claim is broken, only the term of *out is set. FSDP_ERR_NOT_FOUND: no
 * agent has claimed the term. After any other error it is not known whether the term is claimed; the caller
 * must not assume that it is, because the leader's record would then seem old.
 */
static enum fsdp_status read_claim(struct directory_store *store, uint64_t term, struct leader_record *out,
                                   struct fsdp_err *err)
{
    char path[IO_PATH_BYTES], *bytes = NULL;
    size_t n_bytes = 0;
    enum fsdp_status status;

    OK_OR_RETURN(claim_path(store, term, path, err));
    status = io_read_file(store->io, path, LEADER_RECORD_BYTES, &bytes, &n_bytes, err);
    if (status == FSDP_ERR_FORMAT ||
        (status == FSDP_OK && (!leader_record_decode(out, bytes, n_bytes) || out->term != term))) {
        *out = (struct leader_record){ .term = term };
        status = FSDP_OK;
    }
    free(bytes);
    return status;
}

/* Finds the highest term that is claimed; *newest is 0 if none is. */
static enum fsdp_status find_newest_claim(struct directory_store *store, uint64_t *newest,
                                          struct fsdp_err *err)
{
    char own[NAME_BYTES];
    struct io_names names;
    uint64_t term;

    *newest = 0;
    if (store->io->list(store->io, store->folder, &names) < 0)
        return file_fail(err, "list", store->folder);
    for (size_t i = 0; i < names.n; i++)
        if (strncmp(names.names[i], "term-", 5) == 0) {
            term = strtoull(names.names[i] + 5, NULL, 10);
            claim_name(own, term);
            if (strcmp(names.names[i], own) == 0 && term < LEADER_TERMS && term > *newest)
                *newest = term;
        }
    io_names_free(&names);
    return FSDP_OK;
}

/*
 * Looks for a claim of a higher term than *newest, and puts it there if there is one. A leader may have died
 * between its claim and its first record, or no record may be readable any more.
 */
static enum fsdp_status look_for_claims(struct directory_store *store, struct leader_record *newest,
                                        struct fsdp_err *err)
{
    struct leader_record claim;
    uint64_t term = newest->term;
    enum fsdp_status status = FSDP_OK;

    if (term == 0) {
        OK_OR_RETURN(find_newest_claim(store, &term, err));
        if (term == 0)
            return FSDP_OK;
        term--;
    }
    while ((status = read_claim(store, ++term, &claim, err)) == FSDP_OK)
        *newest = claim;
    if (status != FSDP_ERR_NOT_FOUND)
        return status;
    fsdp_err_clear(err);
    return FSDP_OK;
}

/*
 * Was the link made although link(2) returned an error? The file then has two names. Opening it asks the
 * server for their number.
 */
static bool has_two_names(struct directory_store *store, const char *path)
{
    struct fsdp_io *io = store->io;
    struct io_stat stat = { .n_links = 0 };
    const int fd = io->open(io, path, O_RDONLY | O_NOFOLLOW, 0);

    if (fd < 0)
        return false;
    (void)io->fstat(io, fd, &stat);
    (void)io->close(io, fd);
    return stat.n_links == 2;
}

static bool has_no_links(int error)
{
    return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EMLINK;
}

/*
 * For file systems without links: creates the claim under its final name, and then writes its contents. The
 * name is kept even if writing fails, because another agent may have found it.
 */
static enum arbiter_answer create_claim(struct directory_store *store, const char *path,
                                        const unsigned char bytes[LEADER_RECORD_BYTES], struct fsdp_err *err)
{
    const int fd = try_open(store, path, O_EXCL);
    enum fsdp_status status;

    if (fd < 0 && errno == EEXIST)
        return ARBITER_TAKEN;
    if (fd < 0) {
        file_fail(err, "create", path);
        return ARBITER_FAILED;
    }
    status = io_write_all(store->io, fd, bytes, LEADER_RECORD_BYTES, 0, path, err);
    if (store->io->close(store->io, fd) < 0 && status == FSDP_OK)
        status = file_fail(err, "close", path);
    return status == FSDP_OK ? ARBITER_DONE : ARBITER_FAILED;
}

/*
 * Gives the term to the claim, by linking the file `written`, which has the claim's bytes. The caller removes
 * that file.
 */
static enum arbiter_answer take_term(struct directory_store *store, const char *written, uint64_t term,
                                     const unsigned char bytes[LEADER_RECORD_BYTES], struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    int error;

    if (claim_path(store, term, path, err) != FSDP_OK)
        return ARBITER_FAILED;
    if (store->io->link(store->io, written, path) == 0)
        return ARBITER_DONE;
    error = errno;
    if (has_two_names(store, written))
        return ARBITER_DONE;
    if (error == EEXIST)
        return ARBITER_TAKEN;
    if (has_no_links(error))
        return create_claim(store, path, bytes, err);
    fsdp_fail(err, FSDP_ERR_IO, "link %s: %s", path, strerror(error));
    return ARBITER_FAILED;
}

/* The calls */

static enum arbiter_answer directory_read(struct arbiter_store *base, struct leader_record *out,
                                          struct fsdp_err *err)
{
    struct directory_store *store = of(base);
    enum fsdp_status status = open_run_dir(store, err);

    if (status == FSDP_OK)
        status = read_record(store, out, err);
    if (status != FSDP_OK)
        return status == FSDP_ERR_NOT_FOUND ? ARBITER_NONE : ARBITER_FAILED;
    if (look_for_claims(store, out, err) != FSDP_OK)
        return ARBITER_FAILED;
    return out->term > 0 ? ARBITER_DONE : ARBITER_NONE;
}

/*
 * Claims a term. Each agent writes its claim under a name of its own, which replaces what an earlier call
 * left there.
 */
static enum arbiter_answer directory_claim(struct arbiter_store *base, const struct leader_record *claim,
                                           struct leader_record *holder, struct fsdp_err *err)
{
    struct directory_store *store = of(base);
    unsigned char bytes[LEADER_RECORD_BYTES];
    char name[sizeof "claim-" + 2 * SESSION_IDENTITY_BYTES] = "claim-", written[IO_PATH_BYTES];
    enum arbiter_answer answer;

    for (int i = 0; i < SESSION_IDENTITY_BYTES; i++)
        snprintf(name + strlen(name), sizeof name - strlen(name), "%02x", claim->identity[i]);
    if (io_join(written, store->folder, name, err) != FSDP_OK || open_run_dir(store, err) != FSDP_OK ||
        make_folder(store, err) != FSDP_OK)
        return ARBITER_FAILED;
    leader_record_encode(claim, bytes);
    (void)store->io->unlink(store->io, written);
    if (io_write_file(store->io, written, bytes, sizeof bytes, err) != FSDP_OK)
        return ARBITER_FAILED;
    answer = take_term(store, written, claim->term, bytes, err);
    (void)store->io->unlink(store->io, written);
    /*
     * Synced also if the answer is TAKEN: an earlier call of this agent may have taken it, and then failed to
     * sync.
     */
    if (answer != ARBITER_FAILED && io_sync_directory(store->io, store->folder, err) != FSDP_OK)
        return ARBITER_FAILED;
    if (answer != ARBITER_TAKEN)
        return answer;
    if (read_record(store, holder, err) != FSDP_OK)
        return ARBITER_FAILED;
    if (holder->term < claim->term && read_claim(store, claim->term, holder, err) != FSDP_OK)
        return ARBITER_FAILED;
    return ARBITER_TAKEN;
}

/*
 * Returns the place for a record. Late writes of a leader then hit neither its next record nor those of the
 * next three terms.
 */
static uint64_t place_of(const struct leader_record *record)
{
    return record->term % TERMS * 2 + record->sequence % 2;
}

static enum arbiter_answer write_record(struct directory_store *store, int fd,
                                        const struct leader_record *record, struct leader_record *newer,
                                        struct fsdp_err *err)
{
    unsigned char bytes[LEADER_RECORD_BYTES];

    if (read_places(store, fd, newer, err) != FSDP_OK)
        return ARBITER_FAILED;
    if (newer->term > record->term ||
        (newer->term == record->term &&
         memcmp(newer->identity, record->identity, sizeof newer->identity) != 0))
        return ARBITER_DEPOSED;
    leader_record_encode(record, bytes);
    return io_write_all(store->io, fd, bytes, sizeof bytes, place_of(record) * PLACE_BYTES, store->record,
                        err) == FSDP_OK
               ? ARBITER_DONE
               : ARBITER_FAILED;
}

static enum arbiter_answer directory_renew(struct arbiter_store *base, const struct leader_record *record,
                                           struct leader_record *newer, struct fsdp_err *err)
{
    struct directory_store *store = of(base);
    enum arbiter_answer answer;
    int fd;

    if (open_run_dir(store, err) != FSDP_OK || open_record(store, &fd, err) != FSDP_OK)
        return ARBITER_FAILED;
    answer = write_record(store, fd, record, newer, err);
    if (store->io->close(store->io, fd) < 0 && answer == ARBITER_DONE) {
        file_fail(err, "close", store->record);
        return ARBITER_FAILED;
    }
    return answer;
}

static void directory_destroy(struct arbiter_store *base)
{
    io_beneath_destroy(of(base)->own);
    free(of(base));
}

enum fsdp_status directory_store_create(struct arbiter_store **out, struct fsdp_io *io, const char *run_dir,
                                        struct fsdp_err *err)
{
    static const struct arbiter_store_ops ops = { .name = "directory",
                                                  .read = directory_read,
                                                  .claim = directory_claim,
                                                  .renew = directory_renew,
                                                  .destroy = directory_destroy };
    struct directory_store *store = calloc(1, sizeof *store);
    enum fsdp_status status;

    *out = NULL;
    if (store == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the arbiter in %s", run_dir);
    store->store.ops = &ops;
    store->io = io;
    snprintf(store->run_dir, sizeof store->run_dir, "%s", run_dir);
    status = io_join(store->folder, run_dir, "leader", err);
    if (status == FSDP_OK)
        status = io_join(store->record, store->folder, "record", err);
    if (status != FSDP_OK) {
        free(store);
        return status;
    }
    *out = &store->store;
    return FSDP_OK;
}

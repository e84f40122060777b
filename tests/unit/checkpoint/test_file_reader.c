/*
 * A file read by several threads: the same bytes and checksum for any number of them, from the page cache and
 * around it, and an end without a deadlock wherever a call fails.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "shard_runtime/checkpoint/file_reader.h"
#include "shard_runtime/shardfile/piece_crew.h"
#include "tests/unit/shardfile/files.h"

enum { FILE_BYTES = 20 * PIECE_BYTES + 12345, PIECES = 21, STORED_FROM = 15 * PIECE_BYTES + 99 };

/* What the page cache says. */
enum cache { HAS_ALL, HAS_NOTHING, HAS_ODD_PIECES, N_CACHES };

/* io_posix with a page cache of our own, one of whose reads fails, or all of whose direct ones do. */
static struct fake {
    struct fsdp_io base;
    atomic_int cache, reads, fail_at; /* counted from 1; 0: none */
    atomic_int direct_fd, direct_reads;
    atomic_bool refuses_direct;
} fake;

static unsigned char *bytes, *got;
static char *path;

static int fake_open(struct fsdp_io *io, const char *name, int flags, mode_t mode)
{
    /* a disk that has no O_DIRECT is as good: the descriptor tells what was asked for */
    const int fd = io_posix.open(&io_posix, name, flags & ~O_DIRECT, mode);

    (void)io;
    if ((flags & O_DIRECT) != 0)
        atomic_store(&fake.direct_fd, fd);
    return fd;
}

static ssize_t fake_pread(struct fsdp_io *io, int fd, void *to, size_t n, uint64_t offset)
{
    (void)io;
    if (fd == atomic_load(&fake.direct_fd)) {
        cr_assert(eq(u64, ((uintptr_t)to | n | offset) % PIECE_BLOCK_BYTES, 0));
        if (atomic_load(&fake.refuses_direct)) {
            errno = EINVAL;
            return -1;
        }
        atomic_fetch_add(&fake.direct_reads, 1);
    }
    if (atomic_fetch_add(&fake.reads, 1) + 1 == atomic_load(&fake.fail_at)) {
        errno = EIO;
        return -1;
    }
    return io_posix.pread(&io_posix, fd, to, n, offset);
}

static bool fake_is_cached(struct fsdp_io *io, int fd, size_t n, uint64_t offset)
{
    const int cache = atomic_load(&fake.cache);

    (void)io, (void)fd, (void)n;
    return cache == HAS_ALL || (cache == HAS_ODD_PIECES && offset / PIECE_BYTES % 2 == 1);
}

static enum fsdp_status store_write(void *user, size_t index, uint64_t offset, const void *from, size_t n,
                                    struct fsdp_err *err)
{
    (void)index, (void)err;
    memcpy((unsigned char *)user + offset, from, n);
    return FSDP_OK;
}

static void begin(void)
{
    path = strdup(files_path(files_begin(), "pieces"));
    bytes = malloc(FILE_BYTES);
    got = aligned_alloc(PIECE_BLOCK_BYTES, 2 * FILE_BYTES / PIECE_BLOCK_BYTES * PIECE_BLOCK_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = (unsigned char)(i * 31 >> 3 ^ i);
    files_write(path, bytes, FILE_BYTES);
    fake.base = io_posix;
    fake.base.open = fake_open;
    fake.base.pread = fake_pread;
    fake.base.is_cached = fake_is_cached;
    atomic_store(&fake.direct_fd, -1);
    atomic_store(&fake.direct_reads, 0);
    atomic_store(&fake.reads, 0);
    atomic_store(&fake.fail_at, 0);
    atomic_store(&fake.cache, HAS_NOTHING);
    atomic_store(&fake.refuses_direct, false);
}

static void end(void)
{
    free(got);
    free(bytes);
    free(path);
    files_end();
}
TestSuite(file_reader, .init = begin, .fini = end, .timeout = 120);

/*
 * Reads of most of the file: whole blocks that lie right in memory, some that do not, one that two readers
 * want, a small one, and the last ones for a store. `got` has each byte where the file has it; the second of
 * two readers has its own place behind.
 */
static enum fsdp_status read_by(int threads, struct file_sum *sum, struct fsdp_err *err)
{
    const struct rows_store store = { .user = got, .write = store_write };
    const struct reshard_read reads[] = {
        { .offset = PIECE_BLOCK_BYTES, .size_bytes = 6 * PIECE_BYTES, .to = got + PIECE_BLOCK_BYTES },
        { .offset = 6 * PIECE_BYTES + 5000, .size_bytes = 7, .to = got + 6 * PIECE_BYTES + 5000 },
        { .offset = 7 * PIECE_BYTES + 1, .size_bytes = 3 * PIECE_BYTES, .to = got + 7 * PIECE_BYTES + 1 },
        { .offset = 8 * PIECE_BYTES, .size_bytes = PIECE_BYTES / 2, .to = got + FILE_BYTES + 3 },
        { .offset = STORED_FROM, .size_bytes = FILE_BYTES - STORED_FROM, .store = &store, .at = STORED_FROM },
    };
    const struct file_reader reader = { .io = &fake.base,
                                        .path = path,
                                        .reads = reads,
                                        .n_reads = sizeof reads / sizeof *reads,
                                        .sum = sum,
                                        .threads_most = threads };

    memset(got, 0xee, FILE_BYTES + PIECE_BYTES);
    return file_reader_run(&reader, err);
}

static bool same(size_t from, size_t n)
{
    return memcmp(got + from, bytes + from, n) == 0;
}

static bool untouched(size_t from, size_t until)
{
    bool is = true;

    for (size_t i = from; i < until && is; i++)
        is = got[i] == 0xee;
    return is;
}

static void check_got(void)
{
    cr_expect(untouched(0, PIECE_BLOCK_BYTES));
    cr_expect(same(PIECE_BLOCK_BYTES, 6 * PIECE_BYTES), "whole blocks");
    cr_expect(same(6 * PIECE_BYTES + 5000, 7), "a small one");
    cr_expect(untouched(6 * PIECE_BYTES + 5007, 7 * PIECE_BYTES + 1));
    cr_expect(same(7 * PIECE_BYTES + 1, 3 * PIECE_BYTES), "one that lies on no block");
    cr_expect(memcmp(got + FILE_BYTES + 3, bytes + 8 * PIECE_BYTES, PIECE_BYTES / 2) == 0, "a second reader");
    cr_expect(untouched(10 * PIECE_BYTES + 1, STORED_FROM));
    cr_expect(same(STORED_FROM, FILE_BYTES - STORED_FROM), "a store");
}

static const int direct_pieces[N_CACHES] = { [HAS_NOTHING] = PIECES, [HAS_ODD_PIECES] = (PIECES + 1) / 2 };

/* Reads and verifies it in each way that the page cache may answer. */
static void check_verified(int threads)
{
    const XXH128_hash_t whole = XXH3_128bits(bytes, FILE_BYTES);
    const struct manifest_file listed = { .size_bytes = FILE_BYTES,
                                          .checksum = { whole.low64, whole.high64 } };
    struct file_sum *sum;

    cr_assert(file_sum_create(&sum, NULL) == FSDP_OK);
    for (int cache = HAS_ALL; cache < N_CACHES; cache++) {
        struct fsdp_err err = { 0 };

        atomic_store(&fake.cache, cache);
        atomic_store(&fake.direct_reads, 0);
        file_sum_begin(sum);
        cr_assert(read_by(threads, sum, &err) == FSDP_OK, "%s", err.message);

        check_got();
        cr_expect(file_sum_check(sum, &listed, path, NULL) == FSDP_OK, "%d threads, cache %d", threads,
                  cache);
        cr_expect(eq(int, atomic_load(&fake.direct_reads),
                     atomic_load(&fake.refuses_direct) ? 0 : direct_pieces[cache]));
    }
    file_sum_destroy(sum);
}

Test(file_reader, what_is_read_and_its_sum_depend_neither_on_threads_nor_on_the_page_cache)
{
    for (int threads = 0; threads <= PIECE_THREADS; threads++)
        check_verified(threads);
}

Test(file_reader, a_disk_that_refuses_direct_reads_is_read_through_the_page_cache)
{
    atomic_store(&fake.refuses_direct, true);
    check_verified(4);
}

Test(file_reader, of_a_file_that_another_rank_verifies_only_what_is_wanted_is_read)
{
    for (int threads = 1; threads <= 4; threads++) {
        atomic_store(&fake.reads, 0);
        cr_assert(read_by(threads, NULL, NULL) == FSDP_OK);

        check_got();
        cr_expect(eq(int, atomic_load(&fake.direct_reads), 0));
        cr_expect(lt(int, atomic_load(&fake.reads), PIECES));
    }
}

Test(file_reader, the_nth_read_that_fails_ends_all_threads_with_its_reason)
{
    struct file_sum *sum;

    cr_assert(file_sum_create(&sum, NULL) == FSDP_OK);
    for (int nth = 1; nth <= PIECES; nth++) {
        struct fsdp_err err = { 0 };

        atomic_store(&fake.reads, 0);
        atomic_store(&fake.fail_at, nth);
        file_sum_begin(sum);
        cr_assert(read_by(4, sum, &err) == FSDP_ERR_IO, "read %d", nth);

        cr_expect(strstr(err.message, strerror(EIO)) != NULL, "read %d: %s", nth, err.message);
        cr_expect(strstr(err.message, path) != NULL, "read %d: %s", nth, err.message);
    }
    file_sum_destroy(sum);
}

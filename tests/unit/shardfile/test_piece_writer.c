/*
 * A file written by several threads: the same bytes and sums for any number of them, and an end without a
 * deadlock wherever a call fails.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/shardfile/piece_writer.h"
#include "tests/unit/shardfile/files.h"

enum { HEAD_BYTES = 4096, FILE_BYTES = HEAD_BYTES + 20 * PIECE_BYTES + 12345, PIECES = 21 };

/* io_posix, one of whose writes fails, or all of whose direct ones do. */
static struct fake {
    struct fsdp_io base;
    atomic_int writes, fail_at; /* counted from 1; 0: none */
    atomic_bool halves;         /* direct writes are short */
    int direct_fd;
} fake;

static unsigned char *bytes;
static char *path;
static atomic_int reads, read_fails_at;

static ssize_t fake_pwrite(struct fsdp_io *io, int fd, const void *from, size_t n, uint64_t offset)
{
    (void)io;
    if (atomic_fetch_add(&fake.writes, 1) + 1 == atomic_load(&fake.fail_at)) {
        errno = ENOSPC;
        return -1;
    }
    if (fd == fake.direct_fd && atomic_load(&fake.halves))
        n /= 2;
    return io_posix.pwrite(&io_posix, fd, from, n, offset);
}

static enum fsdp_status read_bytes(void *user, uint64_t offset, void *to, size_t n, struct fsdp_err *err)
{
    (void)user;
    if (atomic_fetch_add(&reads, 1) + 1 == atomic_load(&read_fails_at))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "the source has ended");
    cr_assert(offset + n <= FILE_BYTES, "it reads beyond the file");
    memcpy(to, bytes + offset, n);
    return FSDP_OK;
}

static void begin(void)
{
    path = strdup(files_path(files_begin(), "pieces"));
    bytes = malloc(FILE_BYTES);
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = (unsigned char)(i * 31 >> 3 ^ i);
    fake.base = io_posix;
    fake.base.pwrite = fake_pwrite;
    fake.direct_fd = -1;
    atomic_store(&fake.writes, 0);
    atomic_store(&fake.fail_at, 0);
    atomic_store(&fake.halves, false);
    atomic_store(&reads, 0);
    atomic_store(&read_fails_at, 0);
}

static void end(void)
{
    free(bytes);
    free(path);
    files_end();
}
TestSuite(piece_writer, .init = begin, .fini = end, .timeout = 120);

/* One file: three tensors, whose borders are no piece's. */
static struct chunk_sums *chunks(void)
{
    static const uint64_t parts[] = { HEAD_BYTES, 77, 5 * PIECE_BYTES + 3,
                                      FILE_BYTES - HEAD_BYTES - 77 - 5 * PIECE_BYTES - 3 };
    struct chunk_sums *sums;

    cr_assert(chunk_sums_create(&sums, NULL) == FSDP_OK);
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        cr_assert(chunk_sums_add(sums, parts[i], NULL) == FSDP_OK);
    return sums;
}

/* Writes the file by so many threads, with O_DIRECT where the disk has it, and its sums beside it. */
static enum fsdp_status write_by(int threads, int *n_threads, XXH128_hash_t *hash, struct fsdp_err *err)
{
    XXH3_state_t *state = XXH3_createState();
    struct chunk_sums *sums = chunks();
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const int direct_fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    const struct piece_writer writer = { .io = &fake.base,
                                         .path = path,
                                         .fd = fd,
                                         .direct_fd = direct_fd,
                                         .begin = HEAD_BYTES,
                                         .end = FILE_BYTES,
                                         .read = read_bytes,
                                         .any_thread = true,
                                         .threads_most = threads,
                                         .hash = state,
                                         .sums = sums };
    enum fsdp_status status;

    cr_assert(fd >= 0 && state != NULL);
    fake.direct_fd = direct_fd;
    XXH3_128bits_reset(state);
    XXH3_128bits_update(state, bytes, HEAD_BYTES);
    chunk_sums_take(sums, 0, HEAD_BYTES, bytes);
    status = piece_writer_run(&writer, n_threads, err);
    *hash = XXH3_128bits_digest(state);
    cr_assert(eq(int, (int)pwrite(fd, bytes, HEAD_BYTES, 0), HEAD_BYTES));
    cr_assert(eq(int, ftruncate(fd, FILE_BYTES), 0));
    if (status == FSDP_OK)
        cr_assert(chunk_sums_write(sums, &io_posix, path, NULL) == FSDP_OK);
    chunk_sums_destroy(sums);
    XXH3_freeState(state);
    close(fd);
    if (direct_fd >= 0)
        close(direct_fd);
    return status;
}

static void check_file(XXH128_hash_t hash)
{
    const XXH128_hash_t whole = XXH3_128bits(bytes, FILE_BYTES);
    struct chunk_sum *list;
    unsigned char *found;
    uint64_t at = 0;
    size_t n, size;

    found = files_read(path, &size);
    cr_assert(eq(sz, size, FILE_BYTES));
    cr_expect(memcmp(found, bytes, size) == 0, "the file has other bytes");
    cr_expect(XXH128_isEqual(hash, whole), "another checksum");
    cr_assert(chunk_sums_read(&io_posix, path, FILE_BYTES, &list, &n, NULL) == FSDP_OK);
    for (size_t i = 0; i < n; i++) {
        cr_expect(eq(u64, list[i].sum, XXH3_64bits(bytes + at, list[i].end - at)), "chunk %zu", i);
        at = list[i].end;
    }
    free(list);
    free(found);
}

Test(piece_writer, the_file_and_its_sums_do_not_depend_on_the_number_of_threads)
{
    for (int threads = 1; threads <= PIECE_THREADS; threads++) {
        XXH128_hash_t hash;
        int n_threads;

        cr_assert(write_by(threads, &n_threads, &hash, NULL) == FSDP_OK);

        check_file(hash);
        cr_expect(n_threads >= (threads > 1 ? 2 : 1) && n_threads <= threads, "%d of %d", n_threads, threads);
    }
}

Test(piece_writer, chosen_at_run_time_there_are_two_threads_at_least)
{
    XXH128_hash_t hash;
    int n_threads;

    cr_assert(write_by(0, &n_threads, &hash, NULL) == FSDP_OK);

    check_file(hash);
    cr_expect(n_threads >= 2 && n_threads <= PIECE_THREADS);
}

Test(piece_writer, files_that_take_one_thread_get_one)
{
    XXH128_hash_t hash;
    int n_threads;

    fake.base.any_thread = false;
    cr_assert(write_by(0, &n_threads, &hash, NULL) == FSDP_OK);

    check_file(hash);
    cr_expect(eq(int, n_threads, 1));
}

Test(piece_writer, direct_writes_that_are_short_are_done_again_without)
{
    XXH128_hash_t hash;

    atomic_store(&fake.halves, true);
    cr_assert(write_by(4, NULL, &hash, NULL) == FSDP_OK);

    check_file(hash);
}

Test(piece_writer, the_nth_write_that_fails_ends_all_threads_with_its_reason)
{
    for (int nth = 1; nth <= PIECES; nth++) {
        struct fsdp_err err = { 0 };
        XXH128_hash_t hash;

        atomic_store(&fake.writes, 0);
        atomic_store(&fake.fail_at, nth);
        cr_assert(write_by(4, NULL, &hash, &err) == FSDP_ERR_IO, "write %d", nth);

        cr_expect(strstr(err.message, strerror(ENOSPC)) != NULL, "write %d: %s", nth, err.message);
        cr_expect(strstr(err.message, path) != NULL, "write %d: %s", nth, err.message);
    }
}

Test(piece_writer, the_nth_read_that_fails_ends_all_threads_with_its_reason)
{
    for (int nth = 1; nth <= PIECES; nth++) {
        struct fsdp_err err = { 0 };
        XXH128_hash_t hash;

        atomic_store(&reads, 0);
        atomic_store(&read_fails_at, nth);
        cr_assert(write_by(4, NULL, &hash, &err) == FSDP_ERR_FORMAT, "read %d", nth);

        cr_expect(strstr(err.message, "the source has ended") != NULL, "read %d: %s", nth, err.message);
    }
}

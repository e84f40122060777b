/*
 * A file that several threads read, sum and write, under the thread sanitizer: through O_DIRECT, and after a
 * write that failed.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/shardfile/piece_writer.h"

enum { FILE_BYTES = 40 * PIECE_BYTES + 4321, FAILING = 17 };

static unsigned char *bytes;
static atomic_int n_writes;
static bool fails;

static void require(bool good, const char *words)
{
    if (good)
        return;
    fprintf(stderr, "%s\n", words);
    exit(1);
}

static enum fsdp_status read_bytes(void *user, uint64_t offset, void *to, size_t n, struct fsdp_err *err)
{
    (void)user, (void)err;
    memcpy(to, bytes + offset, n);
    return FSDP_OK;
}

static ssize_t write_bytes(struct fsdp_io *io, int fd, const void *from, size_t n, uint64_t offset)
{
    (void)io;
    if (fails && atomic_fetch_add(&n_writes, 1) + 1 == FAILING)
        return -1;
    return io_posix.pwrite(&io_posix, fd, from, n, offset);
}

static enum fsdp_status write_file(const char *path, XXH128_hash_t *hash)
{
    struct fsdp_io io = io_posix;
    struct piece_writer writer = { .io = &io, .path = path, .end = FILE_BYTES, .read = read_bytes };
    enum fsdp_status status;
    struct fsdp_err err;

    io.pwrite = write_bytes;
    writer.fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    writer.direct_fd = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    writer.any_thread = true;
    writer.threads_most = PIECE_THREADS;
    writer.hash = XXH3_createState();
    require(writer.fd >= 0 && writer.hash != NULL, "no file");
    require(chunk_sums_create(&writer.sums, NULL) == FSDP_OK, "no sums");
    require(chunk_sums_add(writer.sums, FILE_BYTES, NULL) == FSDP_OK, "no sums");
    XXH3_128bits_reset(writer.hash);
    status = piece_writer_run(&writer, NULL, &err);
    *hash = XXH3_128bits_digest(writer.hash);
    XXH3_freeState(writer.hash);
    chunk_sums_destroy(writer.sums);
    close(writer.fd);
    if (writer.direct_fd >= 0)
        close(writer.direct_fd);
    return status;
}

int main(void)
{
    char path[] = "/var/tmp/fsdp-pieces.XXXXXX";
    const int fd = mkstemp(path);
    XXH128_hash_t hash, whole;

    bytes = malloc(FILE_BYTES);
    require(fd >= 0 && bytes != NULL, "no file");
    close(fd);
    for (size_t i = 0; i < FILE_BYTES; i++)
        bytes[i] = (unsigned char)(i * 31 >> 3);
    whole = XXH3_128bits(bytes, FILE_BYTES);
    for (int i = 0; i < 5; i++) {
        require(write_file(path, &hash) == FSDP_OK, "the file is not written");
        require(XXH128_isEqual(hash, whole), "another checksum");
    }
    fails = true;
    require(write_file(path, &hash) == FSDP_ERR_IO, "a write that fails is not said");
    unlink(path);
    free(bytes);
    return 0;
}

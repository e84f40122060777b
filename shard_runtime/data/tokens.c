#include "shard_runtime/data/tokens.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/core/files.h"

enum { BYTE_VOCAB = 256 };

struct tokens {
    char *path;
    int fd;
    const unsigned char *bytes; /* memory mapping of n_bytes bytes */
    size_t n_bytes;
    uint64_t seq;
};

static enum fsdp_status open_file(struct tokens *tokens, struct fsdp_err *err)
{
    struct stat info;

    /* O_NONBLOCK: opening must not wait for a named pipe, which is refused below. */
    tokens->fd = open(tokens->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (tokens->fd < 0) {
        const bool of_file = errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == ELOOP ||
                             errno == ENAMETOOLONG || errno == ENXIO || errno == EPERM;

        return fsdp_fail(err, of_file ? FSDP_ERR_NOT_FOUND : FSDP_ERR_IO, "data file %s: %s", tokens->path,
                         strerror(errno));
    }
    if (fstat(tokens->fd, &info) != 0)
        return file_fail(err, "data file", tokens->path);
    if (!S_ISREG(info.st_mode))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "data file %s: %s, not a regular file", tokens->path,
                         S_ISDIR(info.st_mode) ? "a directory" : "a device or pipe");
    tokens->n_bytes = (size_t)info.st_size;
    return FSDP_OK;
}

static enum fsdp_status check_size(const struct tokens *tokens, struct fsdp_err *err)
{
    if (tokens->n_bytes == 0)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "data file %s is empty", tokens->path);
    if (tokens->n_bytes - 1 < tokens->seq)
        return fsdp_fail(err, FSDP_ERR_FORMAT,
                         "data file %s has %zu tokens, one sample of model.seq %" PRIu64 " needs %" PRIu64,
                         tokens->path, tokens->n_bytes, tokens->seq, tokens->seq + 1);
    return FSDP_OK;
}

enum fsdp_status tokens_open(struct tokens **out, const char *path, const char *tokenizer, uint64_t seq,
                             struct fsdp_err *err)
{
    struct tokens *tokens = NULL;
    enum fsdp_status status;
    void *mapping;

    *out = NULL;
    if (path[0] == '\0' || seq == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "tokens_open: no path, or samples of no tokens");
    if (strcmp(tokenizer, "byte") != 0)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "data.tokenizer \"%s\" is not supported: only byte is",
                         tokenizer);
    tokens = calloc(1, sizeof *tokens);
    if (tokens == NULL || (tokens->path = strdup(path)) == NULL) {
        free(tokens);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to open %s", path);
    }
    tokens->fd = -1;
    tokens->seq = seq;

    status = open_file(tokens, err);
    if (status == FSDP_OK)
        status = check_size(tokens, err);
    if (status != FSDP_OK)
        goto done;
    mapping = mmap(NULL, tokens->n_bytes, PROT_READ, MAP_SHARED, tokens->fd, 0);
    if (mapping == MAP_FAILED) {
        status = file_fail(err, "mapping data file", path);
        goto done;
    }
    tokens->bytes = mapping;
    *out = tokens;
    tokens = NULL; /* now owned by the caller */
done:
    tokens_close(tokens);
    return status;
}

void tokens_close(struct tokens *tokens)
{
    if (tokens == NULL)
        return;
    if (tokens->bytes != NULL)
        (void)munmap((void *)tokens->bytes, tokens->n_bytes);
    if (tokens->fd >= 0)
        (void)close(tokens->fd);
    free(tokens->path);
    free(tokens);
}

int tokens_fd(const struct tokens *tokens)
{
    return tokens->fd;
}

uint64_t tokens_count(const struct tokens *tokens)
{
    return tokens->n_bytes;
}

uint64_t tokens_n_samples(const struct tokens *tokens)
{
    return (tokens->n_bytes - 1) / tokens->seq;
}

uint64_t tokens_vocab(const struct tokens *tokens)
{
    (void)tokens;
    return BYTE_VOCAB;
}

enum fsdp_status tokens_read(const struct tokens *tokens, uint64_t sample, int32_t *input, int32_t *target,
                             struct fsdp_err *err)
{
    const unsigned char *from = tokens->bytes + sample * tokens->seq;
    struct stat info;

    assert(sample < tokens_n_samples(tokens));
    if (fstat(tokens->fd, &info) != 0)
        return file_fail(err, "data file", tokens->path);
    if ((uint64_t)info.st_size < tokens->n_bytes)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "data file %s has shrunk from %zu to %lld bytes while in use",
                         tokens->path, tokens->n_bytes, (long long)info.st_size);
    for (uint64_t t = 0; t < tokens->seq; t++) {
        input[t] = from[t];
        target[t] = from[t + 1];
    }
    return FSDP_OK;
}

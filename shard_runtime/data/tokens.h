/*
 * A memory-mapped text file as a sequence of tokens. With the tokenizer "byte" every byte of the file is a
 * token.
 *
 * Sample i consists of the seq + 1 tokens that begin at i * seq. Its first `seq` tokens are the input, its
 * last `seq` tokens the target. There are N = floor((n_tokens - 1) / seq) samples. A file with N = 0 is
 * refused.
 *
 * The size of the file is read when it is opened, and again before each sample is copied. So tokens_read()
 * reports a file that became shorter, in place of a SIGBUS that ends the process. Data that is appended to
 * the file is used only by the next run.
 *
 * Thread safety: any thread may call, one at a time.
 */
#ifndef DATA_TOKENS_H
#define DATA_TOKENS_H

#include <stdint.h>

#include <fsdp/status.h>

struct tokens;

/**
 * Opens `path` for samples of `seq` tokens (at least 1). On success the caller releases *out with
 * tokens_close().
 *   FSDP_ERR_NOT_FOUND    there is no such file, or this user may not read it
 *   FSDP_ERR_FORMAT       it is not a regular file, is empty, or is shorter than one sample
 *   FSDP_ERR_UNSUPPORTED  the tokenizer is unknown
 *   FSDP_ERR_ARG, FSDP_ERR_IO, FSDP_ERR_NOMEM
 */
enum fsdp_status tokens_open(struct tokens **out, const char *path, const char *tokenizer, uint64_t seq,
                             struct fsdp_err *err);
/** Closes the file and frees `tokens`. NULL is a no-op. */
void tokens_close(struct tokens *tokens);

int tokens_fd(const struct tokens *tokens);             /* the file's descriptor, borrowed */
uint64_t tokens_count(const struct tokens *tokens);     /* number of tokens in the file */
uint64_t tokens_n_samples(const struct tokens *tokens); /* N, at least 1 */
uint64_t tokens_vocab(const struct tokens *tokens);     /* vocabulary size: every token is below it (256) */

/**
 * Copies sample number `sample` (below N).
 *   input, target    (seq) each; receive the tokens
 *   FSDP_ERR_FORMAT  the file has become shorter since it was opened; nothing was written
 *   FSDP_ERR_IO
 */
enum fsdp_status tokens_read(const struct tokens *tokens, uint64_t sample, int32_t *input, int32_t *target,
                             struct fsdp_err *err);

#endif

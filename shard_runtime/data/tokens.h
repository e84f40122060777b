/*
 * A text file as tokens, memory-mapped. With the tokenizer "byte" every byte of the file is a token.
 *
 * Sample i is the seq + 1 tokens that begin at i * seq: its first `seq` are the input, its last `seq` the
 * target. There are N = floor((n_tokens - 1) / seq) of them; at least one, or the file is refused.
 *
 * The size is taken when the file is opened. A file that has since become shorter is reported by
 * tokens_read() instead of ending the process with SIGBUS: the size is asked for again before each sample is
 * copied. What is added at its end is not seen before the next run.
 *
 * Thread: any one at a time.
 */
#ifndef DATA_TOKENS_H
#define DATA_TOKENS_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

struct tokens;

/**
 * Open `path` for samples of `seq` tokens (at least 1).
 *   FSDP_ERR_NOT_FOUND    there is no such file, or it may not be read
 *   FSDP_ERR_FORMAT       it is no regular file, is empty, or is shorter than one sample
 *   FSDP_ERR_UNSUPPORTED  an unknown tokenizer
 */
enum fsdp_status tokens_open(struct tokens **out, const char *path, const char *tokenizer, uint64_t seq,
                             struct fsdp_err *err);
void tokens_close(struct tokens *tokens);

int tokens_fd(const struct tokens *tokens);             /* of the file; borrowed */
uint64_t tokens_count(const struct tokens *tokens);     /* of the file */
uint64_t tokens_n_samples(const struct tokens *tokens); /* N, at least 1 */
uint64_t tokens_vocab(const struct tokens *tokens);     /* every token is below this: 256 */

/**
 * Copy sample `sample` (below N).
 *   input, target  (seq) each
 *   FSDP_ERR_FORMAT  the file has become shorter since it was opened; nothing was written
 */
enum fsdp_status tokens_read(const struct tokens *tokens, uint64_t sample, int32_t *input, int32_t *target,
                             struct fsdp_err *err);

#endif

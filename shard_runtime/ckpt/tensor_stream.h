/*
 * Reads a tensor from its first element to its last one, whatever files hold its pieces. So two checkpoints
 * of different world sizes give equal bytes for equal tensors, and no tensor needs to fit the memory.
 */
#ifndef CKPT_TENSOR_STREAM_H
#define CKPT_TENSOR_STREAM_H

#include "shard_runtime/shardfile/contents.h"

struct tensor_stream;

/**
 * Creates *out for the tensors of `contents`, whose files are in `directory`. All three arguments are
 * borrowed. It keeps a few files open.
 */
enum fsdp_status tensor_stream_create(struct tensor_stream **out, struct fsdp_io *io,
                                      const struct contents *contents, const char *directory,
                                      struct fsdp_err *err);
/** NULL is a no-op. */
void tensor_stream_destroy(struct tensor_stream *stream);

/** Begins to read tensor number `tensor` at its first element. Its dtype must be known. */
enum fsdp_status tensor_stream_begin(struct tensor_stream *stream, size_t tensor, struct fsdp_err *err);

/** Reads the next `size_bytes` bytes of the tensor, which must have that many left. */
enum fsdp_status tensor_stream_read(struct tensor_stream *stream, void *bytes, size_t size_bytes,
                                    struct fsdp_err *err);

/** Passes over the next `size_bytes` bytes of the tensor, which must have that many left. Reads nothing. */
enum fsdp_status tensor_stream_skip(struct tensor_stream *stream, uint64_t size_bytes, struct fsdp_err *err);

/** Returns the number of bytes of tensor number `tensor`: its elements times the size of its dtype. */
uint64_t tensor_stream_size(const struct contents *contents, size_t tensor);

#endif

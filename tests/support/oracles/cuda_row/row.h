/*
 * The cuda row of the numerics table compared with the reference: what each check of it takes in hand. One
 * program, cuda_numerics, whose parts are the files of this folder. A check prints a line, "ok - NAME" or
 * "not ok - NAME: how far". A failed call ends all.
 */
#ifndef FSDP_TESTS_CUDA_ROW_H
#define FSDP_TESTS_CUDA_ROW_H

#include "shard_runtime/comm/device_collectives.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/device/plugin.h"
#include "shard_runtime/numerics/numerics.h"
#include "tests/support/oracles/operations.h"

extern struct device device;
extern struct device_stream *stream; /* of all that is done */
extern struct numerics cuda, ref;
extern struct fsdp_err err;
extern int n_failed;
extern uint64_t key; /* of the next random numbers */

/** A tensor of floats in both memories. */
struct tensor {
    float *host, *device;
    size_t n;
};

/** The two rows, where row r has a tensor, and its stream. */
extern struct numerics *const each_row[2];
static inline float *at(struct tensor t, int r)
{
    return r == 0 ? t.device : t.host;
}
static inline struct device_stream *on(int r)
{
    return r == 0 ? stream : NULL;
}

/** Open the device, which gives the plug-in, its stream and the row `ref`; and close them. */
extern const struct plugin *plugin;
void open_device(void);
void close_device(void);
/** Open a row of the device's own, after open_device(). A failure has its words in `err`. */
enum fsdp_status open_row(struct numerics *row);

/** End with a failed line unless the call that gave `status` and filled `err` succeeded. */
void require(enum fsdp_status status);

/** The device's copy of some bytes: the caller frees it by the device. */
void *to_device(const void *from, size_t size_bytes);

/** n random numbers, the same in both memories; drop() frees it. */
struct tensor make(size_t n);
void drop(struct tensor t);

/** What a tensor has on the device, as float32 where it is bfloat16 (`narrow`); the caller frees it. */
float *fetch(struct tensor t, bool narrow);
/** The largest difference, relative to the largest of `theirs`, or to `least` where all are smaller. */
double far_off(const float *ours, const float *theirs, size_t n, double least);
/** The line of a check: good where `far` is at most `allowed`. */
void say(const char *name, double far, double allowed);
/**
 * Compare a tensor's device memory with its host memory, which ref has written: relative to the largest
 * element.
 */
void compare(const char *name, struct tensor t, double allowed);

/** The bfloat16 numbers in the first half of a tensor's memory on the device, as float32 in all of it. */
void widen_on_device(struct tensor t);
/** Round a tensor to bfloat16: its values on the host, and in the first half of its memory on the device. */
void narrow_both(struct tensor t);

/** Attention, its memory and its random inputs; `part` elements are between q, k and v. */
struct attention_problem {
    struct fused_attention_desc desc;
    size_t part;
    struct tensor qkv, out, dout, dqkv, lse;
};
/** packed: q, k and v are side by side in one row. drop_attention() frees it. */
struct attention_problem make_attention(struct attention_desc shape, enum fsdp_dtype dtype, bool packed);
void drop_attention(struct attention_problem *p);
/**
 * Forward and backward by each_row[r], the reference in float32: the first failure, with its words in `err`.
 */
enum fsdp_status run_attention(const struct attention_problem *p, int r);
/** Memory of the device that somebody used before: NaNs of either dtype. */
void *used_before(size_t size_bytes);

/** Find out whether the device, open by now, is the emulated one, which counts what it is given. */
void find_tally(void);
/** How many `what` the emulated device was given so far; 0 on a GPU. */
uint64_t tally_of(const char *what);
/** The line of a check of how many since `before`; skipped on a GPU. */
void say_launches(const char *name, const char *kernel, uint64_t before, uint64_t expected);

void check_products(void);
void check_kernels(void);
void check_attention(void);
void check_lists(void);
/** Of a group of one, by the device's own: skipped with the reason where they cannot be had. */
void check_collectives(const struct device_collectives *collectives);

#endif

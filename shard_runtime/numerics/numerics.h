/*
 * The table of mathematics: matrix products, attention, and the operations of operations.h (normalisation,
 * activation, loss, optimizer arithmetic). Each back end is one struct numerics_ops, a "row" of the table:
 *   ref     plain C loops in the papers' notation, on one thread; the other rows are tested against it
 *   plain   the products of ref; everything else by our vector loops, for the widest instruction set of the
 *           CPU. The
 *           environment variable FSDP_ISA (base, avx2 or avx512) chooses a narrower one. The thread sanitizer
 *             runs this row
 *   onednn  products by oneDNN; everything else as in plain. This is the default
 *   cuda    in the plug-in; cuda_plan.h has the part of it that plans memory
 *
 * Rounding: inputs and outputs are float32, or bfloat16 that is rounded once at the end. Every product and
 * sum accumulates in float32 or wider. Statistics, softmax, loss sums and norms accumulate in double, or in
 * short float32 runs that are then added in double. The order of these sums depends on the shapes alone. The
 * same inputs, CPU features and library give the same bits; the products of onednn also depend on the number
 * of threads.
 *
 * Every call names its stream. On the CPU the work is done when the call returns. Thread: only the compute
 * thread calls these functions. Inside them OpenMP runs numerics_config.threads threads.
 */
#ifndef NUMERICS_NUMERICS_H
#define NUMERICS_NUMERICS_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

#include "shard_runtime/numerics/operations.h"
#include "shard_runtime/numerics/ways.h"

struct device;
struct device_stream;
struct numerics;
struct matmul;
struct fused_attention;

/**
 * Where the elements of one operand of a product are: how many elements apart batches, rows and columns are.
 * A transposed matrix, or the heads inside a (batch, seq, heads, head_dim) tensor, are strides and never
 * copies. One of row_stride and col_stride is 1; for the result it is col_stride. The stride of a dimension
 * of size 0 or 1 is ignored.
 */
struct matmul_view {
    size_t outer_stride, inner_stride;
    size_t row_stride, col_stride;
};

/**
 * What a product writes to a second output, in addition to c. It has the type c_dtype and is always replaced.
 * A product with a second output has one batch and does not accumulate.
 */
enum matmul_beside {
    MATMUL_NOTHING,
    MATMUL_SUMS_OF_A,   /* sums[i] = sum_k a[i, k], (m), without alpha; not with a bias */
    MATMUL_SUMS_OF_B,   /* sums[j] = sum_k b[k, j], (n), without alpha; not with a bias */
    MATMUL_BEFORE_GELU, /* z = alpha a b + bias, (m, n) with adjacent rows; then c = gelu_tanh(z) */
    /* writes no second output, but reads z in its place: c = alpha a b gelu_tanh'(z); not with a bias */
    MATMUL_GELU_BACKWARD,
    MATMUL_GELU_BACKWARD_SUMS, /* c as with MATMUL_GELU_BACKWARD; also writes sums[j] = sum_i c[i, j], (n) */
};

/**
 * c[i, j] (+)= alpha * sum_k a[i, k] * b[k, j] (+ bias[j]), for each of `outer` x `inner` batches.
 * Sizes of 0 are legal: with k == 0 the sum is empty.
 */
struct matmul_desc {
    size_t outer, inner; /* batches; both at least 1 */
    size_t m, n, k;
    struct matmul_view a, b, c; /* a: (m, k), b: (k, n), c: (m, n) */
    /*
     * The type of a, b and bias: FSDP_F32, or FSDP_BF16 if numerics->bf16_products is set. With
     * FSDP_MATMUL_HIGH, a float32 product may be only as exact as three products of bfloat16; describe() says
     * whether it is.
     */
    enum fsdp_dtype dtype;
    /* FSDP_F32, or FSDP_BF16 if dtype is FSDP_BF16; sums are float32 and rounded once */
    enum fsdp_dtype c_dtype;
    bool bias; /* a bias (n) is added; not together with accumulate */
    bool accumulate;
    float alpha;
    enum matmul_beside beside; /* anything but MATMUL_NOTHING requires that the row has matmul_run_beside */
};

/**
 * Attention that never stores a (seq, seq) matrix: Dao et al., "FlashAttention", NeurIPS 2022, and Milakov
 * and Gimelshein, "Online normalizer calculation for softmax", 2018. Per sample and head, with one row for
 * each query:
 *   S = scale q k^T    P = softmax(S) over the keys that the query sees    D = dropout(P)    out = D v
 *   lse_i = log sum_j exp(S_ij): all that backward needs in addition to q, k, v and out
 *   P = exp(S - lse)   dD = dout v^T   dP = dropout'(dD)   delta_i = sum_j P_ij dP_ij = sum_e dout_ie out_ie
 *   dS = P (dP - delta)     dq = scale dS k     dk = scale dS^T q     dv = D^T dout
 * S, dD, lse, delta and all sums are float32. With bfloat16 the factors D and dS are rounded before their
 * products, and each result is rounded once. D is rounded before or after it is divided by the sum of its
 * row. The mask of dropout is the mask of numerics_softmax.
 *
 * Element (b, t, h, e) of q, k, v or out is at (b * seq + t) * stride + h * head_dim + e. A gradient has the
 * layout of its tensor. Each stride is at least heads * head_dim elements.
 */
struct fused_attention_desc {
    struct attention_desc shape;
    /* dtype of q, k, v, out and their gradients: FSDP_F32, or FSDP_BF16 if numerics->bf16_products is set */
    enum fsdp_dtype dtype;
    float scale;
    bool drops; /* a run may have dropout */
    size_t q_stride, k_stride, v_stride, out_stride;
};

struct fused_attention_forward {
    const void *q, *k, *v;
    void *out;
    float *lse;                    /* (batch, heads, seq); NULL if no backward follows */
    const struct dropout *dropout; /* NULL for none */
    void *scratch;
};

struct fused_attention_backward {
    const void *q, *k, *v, *out, *dout;
    const float *lse;
    const struct dropout *dropout;
    void *dq, *dk, *dv; /* replaced; NULL: not wanted */
    void *scratch;
};

#define NUMERICS_SLOT(name) NUMERICS_FUNCTION((*name), name);

/** One back end: a row of the table. */
struct numerics_ops {
    const char *name; /* "ref", "onednn" */
    /**
     * Sets up numerics->state, and fills in what the row's products can do. After a failure nothing is left
     * open.
     */
    enum fsdp_status (*open)(struct numerics *numerics, struct fsdp_err *err);
    void (*close)(struct numerics *numerics);
    /** Optional: what numerics_describe() adds after the name: library version, instruction set. */
    void (*describe)(const struct numerics *numerics, char *buffer, size_t size);

    /* operations that have a dtype take FSDP_BF16; otherwise the caller widens tensors first */
    bool takes_bf16;
    /*
     * cross_entropy takes FSDP_BF16, and logits whose rows are further apart than `vocab` elements. The
     * engine then pads rows to multiples of NUMERICS_LOGITS_MULTIPLE, and logits that were computed in
     * bfloat16 stay bfloat16 in training.
     */
    bool takes_padded_logits;

    /**
     * Prepare a product once, to run it many times on any buffers of that shape. `numerics` must outlive it.
     * *scratch_bytes: what each run needs, aligned to 64, carved by the caller; undefined between runs.
     *   FSDP_ERR_ARG          desc breaks a rule of struct matmul_desc
     *   FSDP_ERR_UNSUPPORTED  this row has no product of that dtype, or none with that second output
     */
    enum fsdp_status (*matmul_create)(struct numerics *numerics, const struct matmul_desc *desc,
                                      struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err);
    void (*matmul_destroy)(struct matmul *matmul);
    /** Queue a product that has no second output. `bias` is read only if desc.bias is set. */
    enum fsdp_status (*matmul_run)(struct matmul *matmul, struct device_stream *stream, const void *a,
                                   const void *b, const void *bias, void *c, void *scratch,
                                   struct fsdp_err *err);
    /**
     * Optional; NULL: no product of this row has a second output. Queue a product whose desc.beside is set.
     *   bias    as above; for MATMUL_GELU_BACKWARD and MATMUL_GELU_BACKWARD_SUMS it is z
     *   beside  the second output; NULL for MATMUL_GELU_BACKWARD
     *   FSDP_ERR_UNSUPPORTED  no such product for operands at these addresses; nothing was queued. The caller
     *                         then runs
     *                         a product without a second output, and the operation that computes it
     */
    enum fsdp_status (*matmul_run_beside)(struct matmul *matmul, struct device_stream *stream, const void *a,
                                          const void *b, const void *bias, void *beside, void *c,
                                          void *scratch, struct fsdp_err *err);

    /**
     * Optional, all four or none: attention without its matrices. As with products: prepared once, run many
     * times. *forward_scratch and *backward_scratch: bytes, aligned to 64; far fewer than (batch, heads, seq,
     * seq) has.
     *   FSDP_ERR_ARG          a stride is too short
     *   FSDP_ERR_UNSUPPORTED  a dtype that this row has no product for
     */
    enum fsdp_status (*attention_create)(struct numerics *numerics, const struct fused_attention_desc *desc,
                                         struct fused_attention **out, size_t *forward_scratch,
                                         size_t *backward_scratch, struct fsdp_err *err);
    void (*attention_destroy)(struct fused_attention *attention);
    enum fsdp_status (*attention_forward)(struct fused_attention *attention, struct device_stream *stream,
                                          const struct fused_attention_forward *run, struct fsdp_err *err);
    enum fsdp_status (*attention_backward)(struct fused_attention *attention, struct device_stream *stream,
                                           const struct fused_attention_backward *run, struct fsdp_err *err);

    /** Bytes of scratch that norm_backward needs for (rows, cols) elements of `dtype`. */
    size_t (*norm_scratch)(struct numerics *numerics, enum fsdp_dtype dtype, size_t rows, size_t cols);

    /*
     * One slot for each operation of operations.h, named after it. Rows that compute set all of them; a row
     * that only plans sets none.
     */
    NUMERICS_OPERATIONS(NUMERICS_SLOT)
};

struct numerics_config {
    int threads;      /* at least 1; sets OpenMP's number for the process */
    const char *name; /* "auto", "ref", "plain", "onednn" */
    enum fsdp_matmul_precision precision;
    /* for tests: with FSDP_MATMUL_HIGH, products are split even where that is slower */
    bool splits_anyway;
    /* the row of a device, used in place of `name`; NULL: `name` chooses the row */
    const struct numerics_ops *row;
    /* the device on which the row works; NULL: the host. It must outlive the numerics */
    struct device *device;
};

struct numerics {
    const struct numerics_ops *ops;
    struct device *device; /* NULL: the host */
    int threads;
    /* instruction set of the matrix products; it decides which ways of computing are faster */
    enum ways_isa isa;
    /* matmul_create takes FSDP_BF16, and such products are faster than float32 */
    bool bf16_products;
    enum fsdp_matmul_precision precision; /* as asked for */
    bool splits_products;                 /* float32 products are computed as three of bfloat16 */
    void *state;                          /* the row's own */
};

/**
 * Open the row called config->name; "auto" takes onednn. The environment variable FSDP_NUMERICS overrides
 * "auto". *numerics is the caller's storage; after a failure it is closed.
 *   FSDP_ERR_CONFIG  no row has that name, or this CPU does not have the FSDP_ISA that was asked for
 */
enum fsdp_status numerics_open(struct numerics *numerics, const struct numerics_config *config,
                               struct fsdp_err *err);
/**
 * Close it. Every product must have been destroyed before. Does nothing if it is closed, or was never opened.
 */
void numerics_close(struct numerics *numerics);
/**
 * Write one line for manifests and --version into `buffer`: row, library version, instruction set, threads.
 * Returns it.
 */
const char *numerics_describe(const struct numerics *numerics, char *buffer, size_t size);

extern const struct numerics_ops numerics_ref_ops;
extern const struct numerics_ops numerics_plain_ops;
extern const struct numerics_ops numerics_onednn_ops;

#endif

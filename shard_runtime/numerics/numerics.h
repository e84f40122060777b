/*
 * The table of mathematics: matrix products, attention, normalisation, activation, loss, optimizer
 * arithmetic. One row per back end: ref     plain C loops in the papers' notation on one thread: what the
 * others are tested against plain   the products of ref, the rest by our vector loops, chosen at run time by
 * what the CPU has (FSDP_ISA in the environment, one of base, avx2, avx512, chooses less); what the thread
 * sanitizer runs onednn  products by oneDNN, the rest as plain: the default
 *
 * Rounding points: fp32 in, fp32 out (bfloat16: rounded once at the end, numerics_ops.bf16); every product and sum accumulates in fp32 or wider; LayerNorm
 * statistics, softmax, loss sums and norms accumulate in double or in short fp32 runs that are then added in
 * double, in an order that depends on the shapes alone. Same inputs, CPU features, library: same bits;
 * onednn's products also depend on the number of threads.
 *
 * Every call names its stream. On the cpu it is done when the call returns. Buffers never overlap unless
 * said. Only the compute thread calls in here; OpenMP threads inside: numerics_config.threads, fixed for the
 * run. `accumulate`: add to the output instead of replacing it.
 */
#ifndef NUMERICS_NUMERICS_H
#define NUMERICS_NUMERICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>
#include <fsdp/status.h>

#include "shard_runtime/numerics/ways.h"

struct device;
struct device_stream;
struct numerics;
struct matmul;
struct fused_attention;

/*
 * c[i, j] (+)= alpha * sum_k a[i, k] * b[k, j] (+ bias[j]), for each of `outer` x `inner` batches.
 * A view says, in elements, how far apart batches, rows and columns are: a transposed matrix or the heads
 * inside a (batch, seq, heads, head_dim) tensor are strides, never copies. One of row_stride and col_stride
 * is 1; of c it is col_stride. Sizes of 0 are legal: with k == 0 the sum is empty. The stride of a dimension
 * of size 1 or 0 is ignored.
 */
struct matmul_view {
    size_t outer_stride, inner_stride;
    size_t row_stride, col_stride;
};

/*
 * What a product may leave beside c, of c_dtype and replaced; not with batches or accumulate. Sums over k of a factor, not scaled:
 * of a, sums[i] = sum_k a[i, k], (m); of b, sums[j] = sum_k b[k, j], (n); not with a bias. Or z, (m, n) with adjacent
 * rows, where c = gelu_tanh(z), z = alpha a b + bias. Or, back through that GELU, c = alpha a b gelu_tanh'(z), without a bias:
 * such a z is read, and nothing left, or sums[j] = sum_i c[i, j], (n).
 */
enum matmul_beside {
    MATMUL_NOTHING,
    MATMUL_SUMS_OF_A,
    MATMUL_SUMS_OF_B,
    MATMUL_BEFORE_GELU,
    MATMUL_GELU_BACKWARD,
    MATMUL_GELU_BACKWARD_SUMS
};

struct matmul_desc {
    size_t outer, inner; /* batches; both at least 1 */
    size_t m, n, k;
    struct matmul_view a, b, c; /* a: (m, k), b: (k, n), c: (m, n) */
    enum fsdp_dtype dtype;   /* of a, b and bias: FSDP_F32, or FSDP_BF16 where numerics->bf16_products. With
                                   FSDP_MATMUL_HIGH a float32 product may be as exact as three of bfloat16, or less: a
                                   row's describe() says so */
    enum fsdp_dtype c_dtype; /* FSDP_F32, or FSDP_BF16 when dtype is; sums are of float32, rounded once */
    bool bias;               /* bias: (n); not with accumulate */
    bool accumulate;
    float alpha;
    enum matmul_beside beside; /* only where the row has matmul_run_beside */
};

/* Dropout keeps element `e` of row `r` (a global sample or token) when its random word is below the keep
 * threshold, and scales it by 1/keep. The word: rng_philox(key, r, e / 4)[e % 4]. The mask is recomputed in
 * backward from the same key: nothing is stored. */
struct dropout {
    float p;            /* probability to drop, 0 to 1; 0: identity */
    uint64_t key;       /* rng_key(seed, "dropout:<site>") */
    uint64_t first_row; /* global index of row 0 */
};

/* Self-attention of one (batch, seq, heads, head_dim) problem. */
struct attention_desc {
    size_t batch, seq, heads, head_dim;
    bool causal;
};

/*
 * Attention that never stores a (seq, seq) matrix: Dao et al., "FlashAttention", NeurIPS 2022, and Milakov and
 * Gimelshein, "Online normalizer calculation for softmax", 2018. Per sample and head, rows being queries:
 *   S = scale q k^T    P = softmax(S) over the keys that the query sees    D = dropout(P)    out = D v
 *   lse_i = log sum_j exp(S_ij), all that backward needs beside q, k, v and out
 *   P = exp(S - lse)   dD = dout v^T   dP = dropout'(dD)   delta_i = sum_j P_ij dP_ij = sum_e dout_ie out_ie
 *   dS = P (dP - delta)     dq = scale dS k     dk = scale dS^T q     dv = D^T dout
 * S, dD, lse, delta and all sums are float32; with bfloat16 the factors D and dS are rounded before their products
 * (D before or after it is divided by its row's sum), and each result once. The mask of dropout is that of the slot
 * `softmax`: row (sample * heads + head) * seq + i, element j.
 *
 * Element (b, t, h, e) of q, k, v or out lies at (b * seq + t) * stride + h * head_dim + e; a gradient lies as its
 * tensor does. Strides are at least heads * head_dim elements.
 */
struct fused_attention_desc {
    struct attention_desc shape;
    enum fsdp_dtype
        dtype; /* of q, k, v, out and their gradients: FSDP_F32, or FSDP_BF16 where bf16_products */
    float scale;
    bool drops; /* the dropout of a run may be on */
    size_t q_stride, k_stride, v_stride, out_stride;
};

struct fused_attention_forward {
    const void *q, *k, *v;
    void *out;
    float *lse;                    /* (batch, heads, seq), or NULL: no backward will come */
    const struct dropout *dropout; /* as for softmax; NULL for none */
    void *scratch;
};

struct fused_attention_backward {
    const void *q, *k, *v, *out, *dout;
    const float *lse;
    const struct dropout *dropout;
    void *dq, *dk, *dv; /* overwritten; NULL: not wanted */
    void *scratch;
};

/* In double, as PyTorch holds them: 1 - 0.999f is 1.3e-5 off 0.001. */
struct adamw {
    double lr, beta1, beta2, eps, weight_decay;
};

struct sgd {
    double lr, momentum, weight_decay;
};

/** One tensor of those that an optimizer updates together, with the rates that are its own. */
struct numerics_update {
    float *param;
    const float *grad;
    float *state[2]; /* AdamW: m and v; SGD: buf, or NULL */
    size_t n_elems;
    double lr, weight_decay;
    float grad_scale;
};

/** One tensor of those whose norms are wanted. */
struct numerics_span {
    const float *x;
    size_t n_elems;
};

/** Backward of a LayerNorm or RMSNorm on bfloat16; shapes as layer_norm_backward. */
struct numerics_bf16_norm {
    const uint16_t *dy, *x, *weight;
    const float *mean, *rstd; /* mean NULL: of an RMSNorm */
    uint16_t *dx;             /* NULL, as the two below: not wanted */
    bool accumulate_dx;
    void *dweight, *dbias;
    enum fsdp_dtype dweight_dtype, dbias_dtype; /* FSDP_F32 or FSDP_BF16 */
    bool accumulate_dweight, accumulate_dbias;
};

/** A residual sum and the LayerNorm of it; where mean and bias are NULL, the RMSNorm. */
struct numerics_add_norm {
    const void *a, *b;             /* (rows, cols), as x and y */
    const struct dropout *dropout; /* of b; NULL for none, and with bfloat16 */
    void *x, *y;                   /* x = a + dropout(b), which may be a or b; y = LayerNorm(x) */
    const void *weight, *bias;     /* (cols) */
    float *mean, *rstd;            /* (rows) */
    size_t rows, cols;
    float eps;
};

/** Logits, their targets and the gradient of the mean loss, for numerics_ops.loss. */
struct numerics_loss {
    enum fsdp_dtype dtype;  /* of logits and dlogits: FSDP_F32 or FSDP_BF16 */
    const void *logits;     /* (rows, row_stride) elements, of which the first `vocab` of each row count */
    const int32_t *targets; /* (rows) */
    void *dlogits; /* the same shape; NULL: not wanted; may be logits. What is behind `vocab` becomes zero */
    size_t rows, vocab, row_stride; /* row_stride: at least vocab, in elements */
    float scale;
};

/* Rows of logits begin at a multiple of so many elements where the row has numerics_ops.loss: 128 bytes of bfloat16.
 * Products on a GPU need leading dimensions that are multiples of 16 bytes, and are fastest at multiples of 128. */
enum { NUMERICS_LOGITS_MULTIPLE = 64 };

/* What the two that need a whole row at a time take: longer rows go the float32 way. */
enum { NUMERICS_BF16_MAX_COLS = 8192 };

/* Operations on bfloat16 tensors, each with the contract of its name in struct numerics_ops: float32 inside, rounded
 * once at the end. */
struct numerics_bf16 {
    void (*add)(struct numerics *numerics, struct device_stream *stream, const uint16_t *a, const uint16_t *b,
                uint16_t *out, size_t n_elems);
    void (*gelu)(struct numerics *numerics, struct device_stream *stream, const uint16_t *x, uint16_t *y,
                 size_t n_elems);
    void (*gelu_backward)(struct numerics *numerics, struct device_stream *stream, const uint16_t *dy,
                          const uint16_t *x, uint16_t *dx, size_t n_elems);
    void (*gelu_tanh)(struct numerics *numerics, struct device_stream *stream, const uint16_t *x, uint16_t *y,
                      size_t n_elems);
    void (*gelu_tanh_backward)(struct numerics *numerics, struct device_stream *stream, const uint16_t *dy,
                               const uint16_t *x, uint16_t *dx, size_t n_elems);
    /* out: (cols) of `dtype`, FSDP_F32 or FSDP_BF16 */
    void (*column_sum)(struct numerics *numerics, struct device_stream *stream, const uint16_t *x, void *out,
                       enum fsdp_dtype dtype, size_t rows, size_t cols, bool accumulate);
    /* cols: at most NUMERICS_BF16_MAX_COLS */
    void (*layer_norm)(struct numerics *numerics, struct device_stream *stream, const uint16_t *x,
                       const uint16_t *weight, const uint16_t *bias, uint16_t *y, float *mean, float *rstd,
                       size_t rows, size_t cols, float eps);
    void (*layer_norm_backward)(struct numerics *numerics, struct device_stream *stream,
                                const struct numerics_bf16_norm *norm, void *scratch, size_t rows,
                                size_t cols);
    size_t (*layer_norm_scratch)(struct numerics *numerics, size_t rows, size_t cols);
    /* p = softmax(scores), whose own content is nobody's afterwards; no dropout; seq: at most
     * NUMERICS_BF16_MAX_COLS */
    void (*softmax)(struct numerics *numerics, struct device_stream *stream, float *scores, uint16_t *p,
                    const struct attention_desc *desc);
    /* In place: p becomes ds; dp's own content is nobody's afterwards. */
    void (*softmax_backward)(struct numerics *numerics, struct device_stream *stream, uint16_t *p_ds,
                             float *dp, const struct attention_desc *desc);
};

struct numerics_ops {
    const char *name; /* "ref", "onednn" */
    enum fsdp_status (*open)(struct numerics *numerics, struct fsdp_err *err);
    void (*close)(struct numerics *numerics);
    /* Optional: what numerics_describe() adds after the row's name: library version, instruction set. */
    void (*describe)(const struct numerics *numerics, char *buffer, size_t size);

    /* A product is prepared once at start and run many times, on any buffers of that shape. *scratch_bytes:
     * what run() needs beside it, aligned to 64, its content between runs nobody's; the caller carves it from
     * its arena. numerics must outlive the product. FSDP_ERR_ARG: a desc that breaks the rules above;
     * FSDP_ERR_UNSUPPORTED: a dtype this row has no product for. Thread: the compute thread. */
    enum fsdp_status (*matmul_create)(struct numerics *numerics, const struct matmul_desc *desc,
                                      struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err);
    void (*matmul_destroy)(struct matmul *matmul);
    enum fsdp_status (*matmul_run)(struct matmul *matmul, struct device_stream *stream, const void *a,
                                   const void *b, const void *bias, void *c, void *scratch,
                                   struct fsdp_err *err);

    /* Optional; NULL: no product leaves anything beside it. The run of one with desc.beside, which matmul_create refuses
     * with FSDP_ERR_UNSUPPORTED where the row has no such product, as the run does, with nothing queued, where it has
     * none for operands that lie so: a product without, and column_sum, gelu_tanh or gelu_tanh_backward, stand in for it.
     * `bias`: of a way back through a GELU its z. `beside`: what is left, or NULL where that is nothing. */
    enum fsdp_status (*matmul_run_beside)(struct matmul *matmul, struct device_stream *stream, const void *a,
                                          const void *b, const void *bias, void *beside, void *c,
                                          void *scratch, struct fsdp_err *err);

    /* out[j] (+)= sum_i x[i, j]: the gradient of a bias. x: (rows, cols), out: (cols) */
    void (*column_sum)(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                       size_t rows, size_t cols, bool accumulate);

    /* out = a + b elementwise; out may be a or b. */
    void (*add)(struct numerics *numerics, struct device_stream *stream, const float *a, const float *b,
                float *out, size_t n_elems);

    /* out (rows, cols) (+)= dropout(x); out may be x. With accumulate it is the residual sum. */
    void (*dropout)(struct numerics *numerics, struct device_stream *stream, const float *x, float *out,
                    size_t rows, size_t cols, const struct dropout *dropout, bool accumulate);

    /* Ba, Kiros, Hinton, "Layer Normalization", 2016. x, y: (rows, cols); weight, bias: (cols); mean, rstd:
     * (rows). Where mean and bias are NULL it is RMSNorm, Zhang and Sennrich, "Root Mean Square Layer
     * Normalization", 2019: y = x * rstd * weight, rstd = 1 / sqrt(mean_j(x^2) + eps). */
    void (*layer_norm)(struct numerics *numerics, struct device_stream *stream, const float *x,
                       const float *weight, const float *bias, float *y, float *mean, float *rstd,
                       size_t rows, size_t cols, float eps);
    /* dx (+)= ..., dweight and dbias (+)= ... with their own flag; scratch: layer_norm_scratch(rows, cols)
     * bytes. mean and dbias NULL: of RMSNorm. */
    void (*layer_norm_backward)(struct numerics *numerics, struct device_stream *stream, const float *dy,
                                const float *x, const float *weight, const float *mean, const float *rstd,
                                float *dx, bool accumulate_dx, float *dweight, float *dbias,
                                bool accumulate_params, void *scratch, size_t rows, size_t cols);
    size_t (*layer_norm_scratch)(struct numerics *numerics, size_t rows, size_t cols);

    /* Optional; NULL: the two one after the other. In one pass over the rows, with the bits of these. `dtype` of a, b, x,
     * y, weight and bias: FSDP_F32, or FSDP_BF16 where `bf16` is there and cols at most NUMERICS_BF16_MAX_COLS. (Backward
     * needs none: layer_norm_backward adds to the gradient of the sum, which is that of a.) */
    void (*add_layer_norm)(struct numerics *numerics, struct device_stream *stream, enum fsdp_dtype dtype,
                           const struct numerics_add_norm *add_norm);

    /* Exact GELU, x * Phi(x) with erf: Hendrycks and Gimpel, 2016. y may be x; dx may be dy. */
    void (*gelu)(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                 size_t n_elems);
    void (*gelu_backward)(struct numerics *numerics, struct device_stream *stream, const float *dy,
                          const float *x, float *dx, size_t n_elems);

    /* GELU by tanh, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the approximation there, and GPT-2's. y may be
     * x; dx may be dy. */
    void (*gelu_tanh)(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                      size_t n_elems);
    void (*gelu_tanh_backward)(struct numerics *numerics, struct device_stream *stream, const float *dy,
                               const float *x, float *dx, size_t n_elems);

    /* In place: p[row] = softmax(s[row]) of (batch, heads, seq, seq) scores, masked above the diagonal when
     * causal; then, if dropout is on, `dropped` (same shape) = dropout(p), its row being sample * heads * seq
     * + head * seq + i with first_row = the global index of sample 0 times heads * seq. `dropped` may be NULL
     * when p is 0; otherwise with p = 0 it is a copy. `dropout` may be NULL for none. */
    void (*softmax)(struct numerics *numerics, struct device_stream *stream, float *scores, float *dropped,
                    const struct attention_desc *desc, const struct dropout *dropout);
    /* ds = p * (dp' - sum_j p * dp') with dp' = dropout(dp); ds may be dp. `dropout` may be NULL for none. */
    void (*softmax_backward)(struct numerics *numerics, struct device_stream *stream, const float *p,
                             const float *dp, float *ds, const struct attention_desc *desc,
                             const struct dropout *dropout);

    /* Optional, all four or none: attention without its matrices. As products: prepared once, run many times;
     * numerics must outlive it. *forward_scratch and *backward_scratch: bytes, aligned to 64, small beside
     * (batch, heads, seq, seq). FSDP_ERR_ARG: a stride that is too short; FSDP_ERR_UNSUPPORTED: a dtype this row
     * has no product for. */
    enum fsdp_status (*attention_create)(struct numerics *numerics, const struct fused_attention_desc *desc,
                                         struct fused_attention **out, size_t *forward_scratch,
                                         size_t *backward_scratch, struct fsdp_err *err);
    void (*attention_destroy)(struct fused_attention *attention);
    enum fsdp_status (*attention_forward)(struct fused_attention *attention, struct device_stream *stream,
                                          const struct fused_attention_forward *run, struct fsdp_err *err);
    enum fsdp_status (*attention_backward)(struct fused_attention *attention, struct device_stream *stream,
                                           const struct fused_attention_backward *run, struct fsdp_err *err);

    /* out (rows, cols) = table[token[row]] (+ positions[row % seq] when positions is not NULL). */
    void (*embedding)(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                      const float *table, const float *positions, float *out, size_t rows, size_t cols,
                      size_t seq);
    /* dtable[token[row]] += dout[row] in row order (deterministic); dpositions[t] += sum over samples. The
     * caller zeroes both unless it accumulates. Either may be NULL. */
    void (*embedding_backward)(struct numerics *numerics, struct device_stream *stream, const int32_t *tokens,
                               const float *dout, float *dtable, float *dpositions, size_t rows, size_t cols,
                               size_t seq);

    /* Per row: loss = log(sum exp(logits)) - logits[target]; *loss_sum += its sum over rows (nats),
     * *n_targets += rows whose target is not -100 (other targets are in [0, vocab)). When dlogits is not NULL
     * it gets (softmax - onehot) * scale, zero for ignored rows; dlogits may be logits. The two sums are the host's:
     * they are added to when the stream has passed, at the latest in its synchronize(). */
    void (*cross_entropy)(struct numerics *numerics, struct device_stream *stream, const float *logits,
                          const int32_t *targets, float *dlogits, size_t rows, size_t vocab, float scale,
                          double *loss_sum, uint64_t *n_targets);

    /* Optional: cross_entropy of logits whose rows stand apart, or that are bfloat16. Where a row has it, the engine pads
     * rows of logits to NUMERICS_LOGITS_MULTIPLE, and logits computed in bfloat16 stay bfloat16 in training. NULL: logits
     * are float32 and adjacent. Sums, dlogits of bfloat16 (rounded once) and the two results as above. */
    void (*loss)(struct numerics *numerics, struct device_stream *stream, const struct numerics_loss *loss,
                 double *loss_sum, uint64_t *n_targets);

    /* Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, with lr scaling the decay
     * (as torch.optim.AdamW). step counts from 1. grad is first multiplied by grad_scale (the clipping
     * coefficient). */
    void (*adamw)(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
                  float *m, float *v, size_t n_elems, const struct adamw *h, float grad_scale, uint64_t step);
    /* torch.optim.SGD: g += wd * p; buf = momentum * buf + g (buf = g at step 1); p -= lr * buf. buf NULL:
     * momentum 0. */
    void (*sgd)(struct numerics *numerics, struct device_stream *stream, float *param, const float *grad,
                float *buf, size_t n_elems, const struct sgd *h, float grad_scale, uint64_t step);
    /* sum of |x|^p in double, in order; of p infinite the largest |x|. NaN if any x is. p is at least 1. */
    double (*sum_powers)(struct numerics *numerics, struct device_stream *stream, const float *x,
                         size_t n_elems, double p);
    /* sum of squares in double, in a fixed order for n_elems and threads. */
    double (*sum_squares)(struct numerics *numerics, struct device_stream *stream, const float *x,
                          size_t n_elems);

    /* Optional, all three or none: the same for a list of tensors, as one piece of work where they fit, each with the bits
     * that it has alone. NULL: the functions below make them one by one. Of `h`, lr and weight_decay are not read: each
     * tensor brings its own. sums[i]: sum_powers of span i, waited for once. The lists are read before the call returns. */
    void (*adamw_list)(struct numerics *numerics, struct device_stream *stream,
                       const struct numerics_update *updates, size_t n_updates, const struct adamw *h,
                       uint64_t step);
    void (*sgd_list)(struct numerics *numerics, struct device_stream *stream,
                     const struct numerics_update *updates, size_t n_updates, const struct sgd *h,
                     uint64_t step);
    void (*sum_powers_list)(struct numerics *numerics, struct device_stream *stream,
                            const struct numerics_span *spans, size_t n_spans, double p, double *sums);

    /* Optional: NULL where bfloat16 tensors are to be widened first. */
    const struct numerics_bf16 *bf16;
};

struct numerics_config {
    int threads;      /* at least 1; sets OpenMP's number for the process */
    const char *name; /* "auto", "ref", "plain", "onednn" */
    enum fsdp_matmul_precision precision;
    bool splits_anyway;             /* with FSDP_MATMUL_HIGH: also where it does not pay. For tests */
    const struct numerics_ops *row; /* a device's own, in place of a name; NULL: by name */
    struct device *device;          /* what the row works on; NULL: the host. Outlives the numerics */
};

struct numerics {
    const struct numerics_ops *ops;
    struct device *device; /* NULL: the host */
    int threads;
    enum ways_isa isa;                    /* of its products: which ways pay */
    bool bf16_products;                   /* matmul_create takes FSDP_BF16, and it pays */
    enum fsdp_matmul_precision precision; /* as asked for */
    bool splits_products;                 /* and so float32 products are three of bfloat16 */
    void *state;                          /* the row's own */
};

/**
 * Open the row called config->name; "auto" takes onednn. FSDP_NUMERICS in the environment overrides "auto".
 * *numerics is the caller's storage; after a failure it is closed. FSDP_ERR_CONFIG: no row of that name, or
 * an FSDP_ISA that this CPU does not have.
 */
enum fsdp_status numerics_open(struct numerics *numerics, const struct numerics_config *config,
                               struct fsdp_err *err);
/** Closing twice, or after a failed open, is a no-op. Every product must have been destroyed before. */
void numerics_close(struct numerics *numerics);
/** One line for manifests and --version: row, library version, instruction set, threads. */
const char *numerics_describe(const struct numerics *numerics, char *buffer, size_t size);

/** All of a list, by the row's own way or one by one; of p 2 by its sum_squares. */
void numerics_adamw(struct numerics *numerics, struct device_stream *stream,
                    const struct numerics_update *updates, size_t n_updates, const struct adamw *h,
                    uint64_t step);
void numerics_sgd(struct numerics *numerics, struct device_stream *stream,
                  const struct numerics_update *updates, size_t n_updates, const struct sgd *h,
                  uint64_t step);
void numerics_sum_powers(struct numerics *numerics, struct device_stream *stream,
                         const struct numerics_span *spans, size_t n_spans, double p, double *sums);

extern const struct numerics_ops numerics_ref_ops;
extern const struct numerics_ops numerics_plain_ops;
extern const struct numerics_ops numerics_onednn_ops;

#endif

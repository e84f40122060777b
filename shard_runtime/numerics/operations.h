/*
 * The operations that every numerics back end computes, other than matrix products and fused attention. Each
 * has a struct of arguments, and NUMERICS_OPERATIONS lists them all. The slots of struct numerics_ops and the
 * functions of the back ends `ref` and `rows` are declared from this list. To add an operation, add its
 * struct and its name here.
 *
 * Rules for every operation:
 *   - Arrays are row-major and dense, and belong to the caller. They may overlap only if the comment of a
 *     field says that one "may be" the other.
 *   - `dtype` is FSDP_F32, or FSDP_BF16 where numerics_ops.takes_bf16 is set. Arrays of type void have that
 *     dtype, unless their field names another one. An operation without a dtype works on float32.
 *   - bfloat16 inputs are widened, computed in float32, and rounded once to nearest even at the end.
 *   - With `accumulate` the result is added to the output; without it the output is replaced.
 *   - Sizes of 0 are legal: nothing is read or written, and a sum is 0.
 *   - The struct is read before the call returns. It may be a temporary.
 */
#ifndef NUMERICS_OPERATIONS_H
#define NUMERICS_OPERATIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/dtype.h>

#define NUMERICS_OPERATIONS(OPERATION)                                                                       \
    OPERATION(add)                                                                                           \
    OPERATION(column_sum)                                                                                    \
    OPERATION(dropout)                                                                                       \
    OPERATION(norm)                                                                                          \
    OPERATION(norm_backward)                                                                                 \
    OPERATION(add_norm)                                                                                      \
    OPERATION(activation)                                                                                    \
    OPERATION(activation_backward)                                                                           \
    OPERATION(softmax)                                                                                       \
    OPERATION(softmax_backward)                                                                              \
    OPERATION(embedding)                                                                                     \
    OPERATION(embedding_backward)                                                                            \
    OPERATION(cross_entropy)                                                                                 \
    OPERATION(adamw)                                                                                         \
    OPERATION(sgd)                                                                                           \
    OPERATION(sum_powers)

/**
 * Declares the function `function` that computes the operation `name`. Its arguments are in struct
 * numerics_NAME.
 */
#define NUMERICS_FUNCTION(function, name)                                                                    \
    void function(struct numerics *numerics, struct device_stream *stream, const struct numerics_##name *run)

/**
 * Which elements a dropout zeroes. Element `e` of row `r` (a global sample or token) is kept if its random
 * word is below the keep threshold. A kept element is multiplied by 1/keep. The word is rng_philox(key, r, e
 * / 4)[e % 4]. Backward computes the same mask again from the same key, so no mask is stored.
 */
struct dropout {
    float p;            /* probability to drop, from 0 to 1; 0 keeps all */
    uint64_t key;       /* rng_key(seed, "dropout:<site>") */
    uint64_t first_row; /* global index of row 0 */
};

/** The shape of self-attention. Scores and probabilities have the shape (batch, heads, seq, seq). */
struct attention_desc {
    size_t batch, seq, heads, head_dim;
    bool causal; /* query i sees only the keys 0 to i */
};

/** out = a + b, element by element. */
struct numerics_add {
    enum fsdp_dtype dtype;
    const void *a, *b;
    void *out; /* may be a or b */
    size_t n_elems;
};

/** out[j] (+)= sum_i x[i, j]. This is the gradient of a bias. */
struct numerics_column_sum {
    enum fsdp_dtype dtype;     /* of x */
    const void *x;             /* (rows, cols) */
    void *out;                 /* (cols) of out_dtype */
    enum fsdp_dtype out_dtype; /* FSDP_F32, or FSDP_BF16 if dtype is FSDP_BF16 */
    size_t rows, cols;
    bool accumulate;
};

/** out (+)= dropout(x). With `accumulate` this computes a residual sum. */
struct numerics_dropout {
    const float *x; /* (rows, cols) */
    float *out;     /* (rows, cols); may be x */
    size_t rows, cols;
    const struct dropout *mask; /* not NULL; with p = 0 the result is x */
    bool accumulate;
};

/** The longest row of a norm or of a softmax on bfloat16; the caller computes longer rows in float32. */
enum { NUMERICS_BF16_MAX_COLS = 8192 };

/**
 * LayerNorm over each row (Ba, Kiros and Hinton, "Layer Normalization", 2016):
 *   y = (x - mean) rstd weight + bias,   rstd = 1 / sqrt(variance + eps)
 * or, where `mean` and `bias` are NULL, RMSNorm (Zhang and Sennrich, "Root Mean Square Layer Normalization",
 * 2019):
 *   y = x rstd weight,                   rstd = 1 / sqrt(mean_j(x^2) + eps)
 */
struct numerics_norm {
    enum fsdp_dtype dtype;
    const void *x;             /* (rows, cols) */
    const void *weight, *bias; /* (cols) */
    void *y;                   /* (rows, cols) */
    float *mean, *rstd;        /* (rows); written for the backward */
    size_t rows, cols;
    float eps;
};

/**
 * Backward of numerics_norm. For RMSNorm `mean` and `dbias` are NULL. Any of the three results may be NULL:
 * it is then not computed.
 */
struct numerics_norm_backward {
    enum fsdp_dtype dtype;       /* of dy, x, weight and dx */
    const void *dy, *x, *weight; /* (rows, cols), (rows, cols), (cols) */
    const float *mean, *rstd;    /* (rows), as the forward left them */
    void *dx;                    /* (rows, cols); on the cpu not dy */
    bool accumulate_dx;
    void *dweight, *dbias;                      /* (cols) of their own dtypes */
    enum fsdp_dtype dweight_dtype, dbias_dtype; /* FSDP_F32, or FSDP_BF16 if dtype is FSDP_BF16 */
    bool accumulate_dweight, accumulate_dbias;
    size_t rows, cols;
    void *scratch; /* numerics_ops.norm_scratch() bytes, aligned to 64; undefined between calls */
};

/**
 * x = a + dropout(b), then y = norm(x), in one pass over the rows. The bits are those of the single
 * operations, one after the other. It needs no backward of its own: norm_backward adds to the gradient of x,
 * which is also the gradient of a.
 */
struct numerics_add_norm {
    enum fsdp_dtype dtype;
    const void *a, *b;             /* (rows, cols) */
    const struct dropout *dropout; /* dropout on b; NULL for none, and always NULL with bfloat16 on the cpu */
    void *x, *y;                   /* (rows, cols); x may be a or b */
    const void *weight, *bias;     /* from here on as in numerics_norm */
    float *mean, *rstd;
    size_t rows, cols;
    float eps;
};

/** The functions of one element that numerics_activation computes. */
enum numerics_function {
    NUMERICS_GELU, /* x Phi(x), exact by erf: Hendrycks and Gimpel, 2016 */
    /* x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): the same paper's approximation, as in GPT-2 */
    NUMERICS_GELU_TANH,
    NUMERICS_SILU, /* x / (1 + exp(-x)): Elfwing, Uchibe and Doya, 2017; Hendrycks and Gimpel, 2016 */
    NUMERICS_N_FUNCTIONS
};

/** y = function(x), element by element. */
struct numerics_activation {
    enum fsdp_dtype dtype;
    enum numerics_function function;
    const void *x;
    void *y; /* may be x */
    size_t n_elems;
};

/** dx = dy * function'(x), element by element. */
struct numerics_activation_backward {
    enum fsdp_dtype dtype;
    enum numerics_function function;
    const void *dy, *x;
    void *dx; /* may be dy */
    size_t n_elems;
};

/**
 * p = softmax(scores) over each row of keys that a query sees; the other keys get 0. Then dropped =
 * dropout(p). The row of the mask is sample * heads * seq + head * seq + query, with first_row = the global
 * index of sample 0 times heads * seq.
 */
struct numerics_softmax {
    enum fsdp_dtype dtype; /* of p */
    float *scores;         /* float32; undefined afterwards unless it is p */
    void *p;               /* with FSDP_F32 it is `scores` itself */
    float *dropped;        /* NULL unless dropout is on; with p = 0 it gets a copy. FSDP_F32 only */
    const struct attention_desc *shape; /* with FSDP_BF16 seq is at most NUMERICS_BF16_MAX_COLS */
    const struct dropout *dropout;      /* NULL for none. FSDP_F32 only */
};

/** ds = p * (dp' - sum_j p * dp') with dp' = dropout(dp). */
struct numerics_softmax_backward {
    enum fsdp_dtype dtype; /* of p and ds */
    const void *p;
    float *dp; /* float32; undefined afterwards unless it is ds */
    void *ds;  /* with FSDP_F32 the caller may set ds to dp; with FSDP_BF16 ds is p */
    const struct attention_desc *shape;
    const struct dropout *dropout; /* NULL for none. FSDP_F32 only */
};

/** out[row] = table[tokens[row]], and + positions[row % seq] unless positions is NULL. */
struct numerics_embedding {
    const int32_t *tokens;          /* (rows), each an existing row of the table */
    const float *table, *positions; /* (vocabulary, cols) and (at least seq, cols) */
    float *out;                     /* (rows, cols) */
    size_t rows, cols, seq;
};

/**
 * dtable[tokens[row]] += dout[row] in row order, and dpositions[t] += the sum over all samples. Both always
 * add, so the caller zeroes them first if it wants no sum. Either may be NULL: it is then not computed.
 */
struct numerics_embedding_backward {
    const int32_t *tokens;
    const float *dout; /* (rows, cols) */
    float *dtable, *dpositions;
    size_t rows, cols, seq;
};

/**
 * Rows of logits begin at multiples of this many elements where the back end takes padded logits: 128 bytes
 * of bfloat16. Products on a GPU need leading dimensions that are multiples of 16 bytes, and are fastest at
 * multiples of 128.
 */
enum { NUMERICS_LOGITS_MULTIPLE = 64 };

/** The target of a row that does not count: torch.nn.functional.cross_entropy's ignore_index. */
enum { NUMERICS_IGNORED_TARGET = -100 };

/**
 * Per row: loss = log(sum exp(logits)) - logits[target], in nats. A row whose target is
 * NUMERICS_IGNORED_TARGET is ignored. dlogits = (softmax(logits) - onehot(target)) * scale; zero in ignored
 * rows and in columns from `vocab` on.
 */
struct numerics_cross_entropy {
    enum fsdp_dtype dtype;  /* FSDP_BF16 only where numerics_ops.takes_padded_logits is set */
    const void *logits;     /* (rows, row_stride), of which the first `vocab` elements of each row count */
    const int32_t *targets; /* (rows): ignored, or in [0, vocab) */
    void *dlogits;          /* the shape of logits; may be logits; NULL: not wanted */
    size_t rows, vocab;
    size_t row_stride; /* distance of rows in elements: vocab, or more if takes_padded_logits is set */
    float scale;
    /*
     * In host memory. The losses of all rows are added to loss_sum, and the number of rows that count to the
     * next member. They have changed when the stream has passed this operation, at the latest after its
     * synchronize().
     */
    double *loss_sum;
    uint64_t *n_targets;
};

/** One tensor of those that an optimizer updates together, with the rates that are its own. */
struct numerics_update {
    float *param;
    const void *grad;
    /* AdamW: both moments. SGD: m is the momentum buffer, or NULL without momentum; v is not used */
    float *m, *v;
    size_t n_elems;
    enum fsdp_dtype grad_dtype; /* FSDP_F32; on a GPU FSDP_BF16 as well */
    double lr, weight_decay;    /* double as in PyTorch: 1 - 0.999f is 1.3e-5 off 0.001 */
    /* a factor for the gradient, applied first: for clipping, and for the scale of the loss */
    float grad_scale;
};

/**
 * One step of AdamW: Loshchilov and Hutter, "Decoupled Weight Decay Regularization", ICLR 2019, with the
 * decay scaled by lr as in torch.optim.AdamW. A tensor's bits do not depend on the other tensors of the list.
 */
struct numerics_adamw {
    const struct numerics_update *updates;
    size_t n_updates;
    double beta1, beta2, eps;
    uint64_t step; /* counts from 1 */
};

/**
 * One step of SGD as in torch.optim.SGD: g += weight_decay * p; buf = momentum * buf + g (buf = g at step 1);
 * p -= lr * buf. Without a buffer: p -= lr * g.
 */
struct numerics_sgd {
    const struct numerics_update *updates;
    size_t n_updates;
    double momentum;
    uint64_t step; /* counts from 1 */
};

/** One tensor whose norm is wanted. */
struct numerics_span {
    const void *data;
    size_t n_elems;
    enum fsdp_dtype dtype; /* FSDP_F32; on a GPU FSDP_BF16 as well */
};

/**
 * sums[i] = sum of |x|^p over span i, in double and in an order that depends on n_elems alone. With p
 * infinite it is the largest |x|. It is NaN if any x is. This operation waits for its result, also on a GPU.
 */
struct numerics_sum_powers {
    const struct numerics_span *spans;
    size_t n_spans;
    double p;     /* at least 1 */
    double *sums; /* (n_spans), the host's */
};

#endif

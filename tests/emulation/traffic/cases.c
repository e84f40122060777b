#include "tests/emulation/traffic/cases.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/core/rng.h"
#include "shard_runtime/cuda/kernels/kernels.h"

/* GPT-2's. */
enum { VOCAB = 50257, SEQ = 1024 };

static void must(int status, const char *what)
{
    if (status == 0)
        return;
    fprintf(stderr, "traffic: %s: status %d\n", what, status);
    exit(1);
}

static uint64_t bytes_of(const struct traffic_case *c)
{
    return (uint64_t)c->rows * c->cols * fsdp_dtype_size(c->dtype);
}

/* A tensor of the case's shape and dtype. */
static void *tensor(const struct traffic_case *c)
{
    return traffic_memory(bytes_of(c));
}

/* The k-th most frequent token has about 1 / k of the most frequent one's share (Zipf's law). */
static int32_t zipf_token(size_t i)
{
    return (int32_t)(exp((double)rng_below(5, i, 1 << 20) * 0x1p-20 * log(VOCAB)) - 1);
}

static uint64_t distinct_tokens(const int32_t *tokens, size_t n)
{
    static bool seen[VOCAB];
    uint64_t distinct = 0;

    for (size_t i = 0; i < VOCAB; i++)
        seen[i] = false;
    for (size_t i = 0; i < n; i++) {
        distinct += !seen[tokens[i]];
        seen[tokens[i]] = true;
    }
    return distinct;
}

/* Attention: one head of one sample, causal */

/* Query tiles of 64 rows: key tiles that each of them sees, added up. */
static uint64_t seen_tiles(size_t seq)
{
    const uint64_t tiles = (seq + 63) / 64;

    return tiles * (tiles + 1) / 2;
}

static struct fused_attention_desc attention_of(const struct traffic_case *c)
{
    return (struct fused_attention_desc){ .shape = { 1, c->rows, 1, c->cols, true },
                                          .dtype = c->dtype,
                                          .scale = 0.125f,
                                          .q_stride = c->cols,
                                          .k_stride = c->cols,
                                          .v_stride = c->cols,
                                          .out_stride = c->cols };
}

static uint64_t attention(const struct traffic_case *c)
{
    const struct fused_attention_desc desc = attention_of(c);
    const struct fused_attention_forward run = {
        tensor(c), tensor(c), tensor(c), tensor(c), traffic_memory(c->rows * sizeof(float)), NULL, NULL
    };
    const uint64_t tile = 64 * c->cols * fsdp_dtype_size(c->dtype);

    must(kernel_attention(NULL, &desc, &run, false), c->name);
    return 2 * bytes_of(c) + seen_tiles(c->rows) * 2 * tile + c->rows * sizeof(float);
}

/*
 * Three passes. First row sums of dout * out. Then dk and dv, whose key tiles own their rows and read q and
 * dout of the query tiles that see them. Then dq the other way. The two numbers of each query (lse, delta) go
 * with its rows.
 */
static uint64_t attention_backward(const struct traffic_case *c)
{
    const struct fused_attention_desc desc = attention_of(c);
    const struct fused_attention_backward run = {
        .q = tensor(c),
        .k = tensor(c),
        .v = tensor(c),
        .out = tensor(c),
        .dout = tensor(c),
        .lse = traffic_memory(c->rows * sizeof(float)),
        .dq = tensor(c),
        .dk = tensor(c),
        .dv = tensor(c),
        .scratch = traffic_memory(
            cuda_attention_backward_bytes(desc.shape.batch * desc.shape.heads * desc.shape.seq))
    };
    const uint64_t tile = 64 * c->cols * fsdp_dtype_size(c->dtype), tiles = seen_tiles(c->rows);
    const uint64_t numbers = c->rows * sizeof(float);

    must(kernel_attention_backward(NULL, &desc, &run, false), c->name);
    return (2 * bytes_of(c) + numbers) +                                     /* row sums */
           (4 * bytes_of(c) + tiles * (2 * tile + 2 * 64 * sizeof(float))) + /* k, v, dk, dv; q, dout */
           (3 * bytes_of(c) + tiles * 2 * tile + 2 * numbers);               /* q, dout, dq; k, v */
}

/* Unfused: scores of one head. */
static uint64_t softmax(const struct traffic_case *c)
{
    const struct attention_desc desc = { 1, c->rows, 1, 64, true };

    must(kernel_softmax(NULL, tensor(c), NULL, &desc, NULL), c->name);
    return bytes_of(c) / 2 + bytes_of(c); /* a row's first half on average */
}

static uint64_t softmax_backward(const struct traffic_case *c)
{
    const struct attention_desc desc = { 1, c->rows, 1, 64, true };

    must(kernel_softmax_backward(NULL, tensor(c), tensor(c), tensor(c), &desc, NULL), c->name);
    return 3 * bytes_of(c);
}

/* Norms */

/* Variants: RMSNorm, after a residual sum; backward dx is added to what is there. */
enum { RMS = 1, ADDED = 2 };

static uint64_t norm(const struct traffic_case *c)
{
    const size_t size = fsdp_dtype_size(c->dtype), numbers = c->rows * sizeof(float);
    const bool rms = c->variant & RMS, added = c->variant & ADDED;
    const struct numerics_add_norm norm = { .dtype = c->dtype,
                                            .a = tensor(c),
                                            .b = added ? tensor(c) : NULL,
                                            .x = added ? tensor(c) : NULL,
                                            .y = tensor(c),
                                            .weight = traffic_memory(c->cols * size),
                                            .bias = rms ? NULL : traffic_memory(c->cols * size),
                                            .mean = rms ? NULL : traffic_memory(numbers),
                                            .rstd = traffic_memory(numbers),
                                            .rows = c->rows,
                                            .cols = c->cols,
                                            .eps = 1e-5f };

    must((rms ? kernel_add_rms_norm : kernel_add_layer_norm)(NULL, &norm), c->name);
    return (added ? 4 : 2) * bytes_of(c) + (rms ? 1 : 2) * (c->cols * size + numbers);
}

static uint64_t norm_backward(const struct traffic_case *c)
{
    const size_t size = fsdp_dtype_size(c->dtype), numbers = c->rows * sizeof(float),
                 sums = c->cols * sizeof(float);
    const bool rms = c->variant & RMS, added = c->variant & ADDED;
    const struct numerics_norm_backward args = { .dtype = c->dtype,
                                                 .dy = tensor(c),
                                                 .x = tensor(c),
                                                 .weight = traffic_memory(c->cols * size),
                                                 .mean = rms ? NULL : traffic_memory(numbers),
                                                 .rstd = traffic_memory(numbers),
                                                 .dx = tensor(c),
                                                 .accumulate_dx = added,
                                                 .dweight = traffic_memory(sums),
                                                 .dbias = rms ? NULL : traffic_memory(sums),
                                                 .rows = c->rows,
                                                 .cols = c->cols };

    must(kernel_norm_backward(NULL, &args, CUDA_NORM_SHARED_BYTES,
                              traffic_memory(cuda_norm_backward_bytes(c->rows, c->cols))),
         c->name);
    return (added ? 4 : 3) * bytes_of(c) + c->cols * size + (rms ? 1 : 2) * (numbers + sums);
}

/* Tokens */

/* variant: with positions. A row of the table is read for each token, a position's once. */
static uint64_t embedding(const struct traffic_case *c)
{
    const size_t size = fsdp_dtype_size(c->dtype);

    must(kernel_embedding(NULL, traffic_tokens(c->rows, zipf_token), traffic_memory(VOCAB * c->cols * size),
                          c->variant ? traffic_memory(SEQ * c->cols * size) : NULL, tensor(c), c->rows,
                          c->cols, SEQ, c->dtype),
         c->name);
    return c->rows * sizeof(int32_t) + 2 * bytes_of(c) + (c->variant ? SEQ * c->cols * size : 0);
}

static uint64_t embedding_backward(const struct traffic_case *c)
{
    const int32_t *tokens = traffic_tokens(c->rows, zipf_token);

    must(kernel_embedding_backward(NULL, tokens, tensor(c), c->dtype,
                                   traffic_memory(VOCAB * c->cols * sizeof(float)), NULL, FSDP_F32, c->rows,
                                   c->cols, SEQ,
                                   traffic_memory(cuda_embedding_backward_bytes(c->rows, c->cols))),
         c->name);
    return c->rows * sizeof(int32_t) + bytes_of(c) +
           2 * distinct_tokens(tokens, c->rows) * c->cols * sizeof(float);
}

static uint64_t positions_backward(const struct traffic_case *c)
{
    must(kernel_embedding_backward(NULL, traffic_tokens(c->rows, zipf_token), tensor(c), c->dtype, NULL,
                                   traffic_memory(SEQ * c->cols * sizeof(float)), FSDP_F32, c->rows, c->cols,
                                   SEQ, NULL),
         c->name);
    return bytes_of(c) + 2 * SEQ * c->cols * sizeof(float);
}

/* The gradient where the logits were. variant: rows are padded, as in training. */
static uint64_t loss(const struct traffic_case *c)
{
    const size_t multiple = c->variant ? NUMERICS_LOGITS_MULTIPLE : 1,
                 stride = (c->cols + multiple - 1) / multiple * multiple;
    void *logits = traffic_memory(c->rows * stride * fsdp_dtype_size(c->dtype));
    const struct numerics_cross_entropy loss = { .dtype = c->dtype,
                                                 .logits = logits,
                                                 .targets = traffic_tokens(c->rows, zipf_token),
                                                 .dlogits = logits,
                                                 .rows = c->rows,
                                                 .vocab = c->cols,
                                                 .row_stride = stride,
                                                 .scale = 1 };

    must(kernel_cross_entropy(NULL, &loss, traffic_memory(sizeof(double)), traffic_memory(sizeof(uint64_t)),
                              traffic_memory(cuda_cross_entropy_bytes(c->rows))),
         c->name);
    return 2 * bytes_of(c) + c->rows * sizeof(int32_t);
}

/* Elementwise */

static uint64_t add(const struct traffic_case *c)
{
    must(kernel_add(NULL, tensor(c), tensor(c), tensor(c), c->rows * c->cols, c->dtype), c->name);
    return 3 * bytes_of(c);
}

static uint64_t gelu(const struct traffic_case *c)
{
    const struct numerics_activation run = { c->dtype, NUMERICS_GELU_TANH, tensor(c), tensor(c),
                                             c->rows * c->cols };

    must(kernel_activation(NULL, &run), c->name);
    return 2 * bytes_of(c);
}

static uint64_t gelu_backward(const struct traffic_case *c)
{
    const struct numerics_activation_backward run = { c->dtype,  NUMERICS_GELU_TANH, tensor(c),
                                                      tensor(c), tensor(c),          c->rows * c->cols };

    must(kernel_activation_backward(NULL, &run), c->name);
    return 3 * bytes_of(c);
}

static uint64_t dropout(const struct traffic_case *c)
{
    const struct dropout dropout = { 0.1f, 1, 0 };

    must(kernel_dropout(NULL, tensor(c), tensor(c), c->rows, c->cols, &dropout, false, c->dtype), c->name);
    return 2 * bytes_of(c);
}

static uint64_t column_sum(const struct traffic_case *c)
{
    must(kernel_column_sum(NULL, tensor(c), c->dtype, traffic_memory(c->cols * sizeof(float)), FSDP_F32,
                           c->rows, c->cols, false, traffic_memory(cuda_column_sum_bytes(c->rows, c->cols))),
         c->name);
    return bytes_of(c) + c->cols * sizeof(float);
}

/* Lists */

enum { MAX_TENSORS = 8 };

/* dtype: the gradients'. variant: SGD with momentum in place of AdamW. */
static uint64_t optimizer(const struct traffic_case *c)
{
    struct numerics_update updates[MAX_TENSORS];
    const struct numerics_adamw adamw = {
        .updates = updates, .n_updates = c->rows, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 2
    };
    const struct numerics_sgd sgd = { .updates = updates, .n_updates = c->rows, .momentum = 0.9, .step = 2 };

    for (size_t i = 0; i < c->rows; i++)
        updates[i] =
            (struct numerics_update){ .param = traffic_memory(c->cols * sizeof(float)),
                                      .grad = traffic_memory(c->cols * fsdp_dtype_size(c->dtype)),
                                      .m = traffic_memory(c->cols * sizeof(float)),
                                      .v = c->variant ? NULL : traffic_memory(c->cols * sizeof(float)),
                                      .n_elems = c->cols,
                                      .grad_dtype = c->dtype,
                                      .lr = 1e-3,
                                      .grad_scale = 1 };
    if (c->variant)
        must(kernel_sgd(NULL, &sgd), c->name);
    else
        must(kernel_adamw(NULL, &adamw), c->name);
    return bytes_of(c) + (c->variant ? 4 : 6) * c->rows * c->cols * sizeof(float);
}

/* dtype: of what is read; variant: added to what is there. What is written has the other dtype. */
static uint64_t cast(const struct traffic_case *c)
{
    const enum fsdp_dtype to = c->dtype == FSDP_F32 ? FSDP_BF16 : FSDP_F32;
    struct device_cast casts[MAX_TENSORS];

    for (size_t i = 0; i < c->rows; i++)
        casts[i] = (struct device_cast){ traffic_memory(c->cols * fsdp_dtype_size(to)),
                                         traffic_memory(c->cols * fsdp_dtype_size(c->dtype)), c->cols, to,
                                         c->dtype };
    must(kernel_cast(NULL, casts, c->rows, 0.5f, c->variant), c->name);
    return bytes_of(c) + (c->variant ? 2 : 1) * c->rows * c->cols * fsdp_dtype_size(to);
}

static uint64_t rounding(const struct traffic_case *c)
{
    struct device_rounding roundings[MAX_TENSORS];

    for (size_t i = 0; i < c->rows; i++)
        roundings[i] = (struct device_rounding){ .to = traffic_memory(c->cols * sizeof(uint16_t)),
                                                 .from = traffic_memory(c->cols * sizeof(float)),
                                                 .n_elems = c->cols };
    must(kernel_round(NULL, roundings, c->rows, 1), c->name);
    return bytes_of(c) + c->rows * c->cols * sizeof(uint16_t);
}

static uint64_t sum_powers(const struct traffic_case *c)
{
    struct numerics_span spans[MAX_TENSORS];

    for (size_t i = 0; i < c->rows; i++)
        spans[i] =
            (struct numerics_span){ traffic_memory(c->cols * fsdp_dtype_size(c->dtype)), c->cols, c->dtype };
    must(kernel_sum_powers(NULL, spans, c->rows, 2, traffic_memory(c->rows * sizeof(double)),
                           traffic_memory(kernel_sum_powers_bytes(spans, c->rows))),
         c->name);
    return bytes_of(c) + c->rows * sizeof(double);
}

/* The largest value, then the codes: the tensor is read twice. */
static uint64_t fp8(const struct traffic_case *c)
{
    float *amax = traffic_memory(sizeof *amax);
    void *x = tensor(c);

    must(kernel_fp8_amax(NULL, x, c->rows * c->cols, c->dtype, amax), c->name);
    must(kernel_fp8_quantise(NULL, x, c->rows * c->cols, c->dtype, amax, traffic_memory(c->rows * c->cols)),
         c->name);
    return 2 * bytes_of(c) + c->rows * c->cols;
}

const struct traffic_case *traffic_cases(size_t *n)
{
    /* The bound is 1.3 wherever a kernel meets it; a larger one is what the kernel moves today. */
    static const struct traffic_case cases[] = {
        { "attention", SEQ, 64, FSDP_BF16, 0, 1.3, 0, attention },
        { "attention, heads of 128", 512, 128, FSDP_BF16, 0, 1.3, 0, attention },
        { "attention backward", SEQ, 64, FSDP_BF16, 0, 1.3, 0, attention_backward },
        { "softmax, unfused", 512, 512, FSDP_F32, 0, 0, 0, softmax },
        { "softmax backward, unfused", 512, 512, FSDP_F32, 0, 0, 0, softmax_backward },
        { "layer norm", SEQ, 768, FSDP_BF16, 0, 1.3, 256, norm },
        { "layer norm", SEQ, 768, FSDP_F32, 0, 1.3, 256, norm },
        { "layer norm after a sum", SEQ, 1600, FSDP_BF16, ADDED, 1.3, 256, norm },
        { "rms norm", 512, 4096, FSDP_BF16, RMS, 1.3, 256, norm },
        { "rms norm after a sum", 512, 8192, FSDP_BF16, RMS | ADDED, 1.3, 256, norm },
        { "layer norm backward", 8 * SEQ, 768, FSDP_BF16, 0, 1.3, 256, norm_backward },
        { "layer norm backward, added", 4 * SEQ, 1600, FSDP_BF16, ADDED, 1.3, 256, norm_backward },
        { "layer norm backward", 4 * SEQ, 768, FSDP_F32, 0, 1.3, 256, norm_backward },
        { "rms norm backward", 2 * SEQ, 4096, FSDP_BF16, RMS, 1.3, 256, norm_backward },
        { "embedding", 4 * SEQ, 768, FSDP_BF16, 1, 1.3, 0, embedding },
        { "embedding, no positions", SEQ, 4096, FSDP_BF16, 0, 1.3, 0, embedding },
        { "embedding backward", 8 * SEQ, 768, FSDP_BF16, 0, 1.3, 0, embedding_backward },
        { "embedding backward", 2 * SEQ, 768, FSDP_F32, 0, 1.3, 0, embedding_backward },
        { "positions backward", 4 * SEQ, 768, FSDP_BF16, 0, 1.3, 0, positions_backward },
        { "loss and gradient", 32, VOCAB, FSDP_BF16, 1, 1.1, 256, loss },
        { "loss and gradient", 32, VOCAB, FSDP_F32, 1, 1.3, 256, loss },
        { "loss and gradient, long rows", 32, 60000, FSDP_BF16, 1, 1.1, 256,
          loss }, /* beyond shared memory */
        { "loss and gradient, adjacent", 32, VOCAB, FSDP_BF16, 0, 0, 0, loss },
        { "add", SEQ, 768, FSDP_BF16, 0, 0, 0, add },
        { "gelu", SEQ, 3072, FSDP_BF16, 0, 0, 0, gelu },
        { "gelu backward", SEQ, 3072, FSDP_BF16, 0, 0, 0, gelu_backward },
        { "dropout", SEQ, 768, FSDP_BF16, 0, 1.3, 256, dropout },
        { "column sum", 4 * SEQ, 768, FSDP_BF16, 0, 0, 0, column_sum },
        { "adamw", 3, 100003, FSDP_F32, 0, 1.3, 256, optimizer },
        { "adamw", 3, 100003, FSDP_BF16, 0, 1.3, 256, optimizer },
        { "sgd with momentum", 3, 100003, FSDP_F32, 1, 0, 256, optimizer },
        { "cast", 3, 100003, FSDP_F32, 0, 1.3, 256, cast },
        { "cast, added", 3, 100003, FSDP_BF16, 1, 1.3, 256, cast },
        { "stochastic rounding", 3, 100003, FSDP_F32, 0, 1.7, 256, rounding },
        { "sum of squares", 3, 100003, FSDP_F32, 0, 0, 0, sum_powers },
        { "largest and float8", SEQ, 768, FSDP_BF16, 0, 0, 0, fp8 },
    };

    *n = sizeof cases / sizeof *cases;
    return cases;
}

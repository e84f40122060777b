#include "shard_runtime/numerics/onednn_split.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/numerics/onednn.h"
#include "shard_runtime/numerics/parallel.h"
#include "shard_runtime/numerics/rows_cut.h"

/*
 * The layout of an operand: `lines` rows or columns of `length` adjacent elements. Its two bfloat16 parts are
 * stored without gaps.
 */
struct operand {
    size_t lines, length, stride; /* `stride`: elements between lines of the float32 operand */
    size_t bytes;                 /* bytes of one bfloat16 part, rounded up to 64 */
};

struct onednn_split {
    struct numerics *numerics;
    struct matmul_desc desc;
    struct operand a, b;
    struct matmul *first, *next; /* `first` overwrites c, unless the product accumulates or has a bias */
    size_t scratch_bytes;        /* the largest scratch of a bfloat16 product */
};

bool onednn_splits(const struct numerics *numerics, const struct matmul_desc *desc)
{
    return numerics->splits_products && desc->dtype == FSDP_F32 && desc->outer == 1 && desc->inner == 1 &&
           desc->m > 1 && desc->n > 1 && desc->k > 1;
}

static struct operand operand_of(const struct matmul_view *view, size_t rows, size_t cols)
{
    const bool by_rows = view->col_stride == 1;
    struct operand o = { .lines = by_rows ? rows : cols,
                         .length = by_rows ? cols : rows,
                         .stride = by_rows ? view->row_stride : view->col_stride };

    o.bytes = (rows * cols * sizeof(uint16_t) + 63) / 64 * 64;
    return o;
}

static struct matmul_view dense(const struct matmul_view *view, const struct operand *o)
{
    const bool by_rows = view->col_stride == 1;

    return (struct matmul_view){ .row_stride = by_rows ? o->length : 1,
                                 .col_stride = by_rows ? 1 : o->length };
}

static enum fsdp_status make(struct onednn_split *s, bool accumulate, struct matmul **out,
                             struct fsdp_err *err)
{
    struct matmul_desc desc = s->desc;
    enum fsdp_status status;
    size_t bytes = 0;

    desc.a = dense(&s->desc.a, &s->a);
    desc.b = dense(&s->desc.b, &s->b);
    desc.dtype = FSDP_BF16;
    desc.bias = false;
    desc.accumulate = accumulate;
    status = onednn_matmul_create(s->numerics, &desc, out, &bytes, err);
    if (bytes > s->scratch_bytes)
        s->scratch_bytes = bytes;
    return status;
}

enum fsdp_status onednn_split_create(struct numerics *numerics, const struct matmul_desc *desc,
                                     struct onednn_split **out, size_t *scratch_bytes, struct fsdp_err *err)
{
    struct onednn_split *s = calloc(1, sizeof *s);
    enum fsdp_status status;

    *out = NULL;
    if (s == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "matmul: no memory for a description");
    s->numerics = numerics;
    s->desc = *desc;
    s->a = operand_of(&desc->a, desc->m, desc->k);
    s->b = operand_of(&desc->b, desc->k, desc->n);
    status = make(s, desc->accumulate || desc->bias, &s->first, err);
    if (status == FSDP_OK)
        status = make(s, true, &s->next, err);
    if (status != FSDP_OK) {
        onednn_split_destroy(s);
        return status;
    }
    *scratch_bytes = 2 * (s->a.bytes + s->b.bytes) + s->scratch_bytes;
    *out = s;
    return FSDP_OK;
}

void onednn_split_destroy(struct onednn_split *split)
{
    if (split == NULL)
        return;
    onednn_matmul_destroy(split->first);
    onednn_matmul_destroy(split->next);
    free(split);
}

/* Run */

struct work {
    const struct row_kernels *kernels;
    const struct operand *operand;
    const float *from;
    uint16_t *high, *low;
};

static void split_piece(void *context, size_t begin, size_t end)
{
    const struct work *w = context;
    const size_t length = w->operand->length;

    for (size_t line = begin; line < end; line++)
        w->kernels->split_bf16(w->from + line * w->operand->stride, w->high + line * length,
                               w->low + line * length, length);
}

static void split_operand(const struct numerics *numerics, const struct operand *operand, const float *from,
                          char *high, char *low)
{
    struct work w = { .kernels = kernels_of(numerics),
                      .operand = operand,
                      .from = from,
                      .high = (uint16_t *)(void *)high,
                      .low = (uint16_t *)(void *)low };

    parallel_for(numerics->threads, operand->lines, row_grain(operand->length), split_piece, &w);
}

enum fsdp_status onednn_split_run(struct onednn_split *s, struct device_stream *stream, const float *a,
                                  const float *b, const float *bias, float *c, void *scratch,
                                  struct fsdp_err *err)
{
    char *a1 = scratch, *a2 = a1 + s->a.bytes, *b1 = a2 + s->a.bytes, *b2 = b1 + s->b.bytes;
    char *rest = b2 + s->b.bytes;

    split_operand(s->numerics, &s->a, a, a1, a2);
    split_operand(s->numerics, &s->b, b, b1, b2);
    for (size_t i = 0; s->desc.bias && i < s->desc.m; i++)
        memcpy(c + i * s->desc.c.row_stride, bias, s->desc.n * sizeof *c);
    /* Add the smallest products first, so that rounding of the sum loses fewer of their bits. */
    OK_OR_RETURN(onednn_matmul_run(s->first, stream, a2, b1, NULL, c, rest, err));
    OK_OR_RETURN(onednn_matmul_run(s->next, stream, a1, b2, NULL, c, rest, err));
    return onednn_matmul_run(s->next, stream, a1, b1, NULL, c, rest, err);
}

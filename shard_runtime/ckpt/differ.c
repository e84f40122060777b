#include "shard_runtime/ckpt/differ.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/ckpt/elements.h"
#include "shard_runtime/ckpt/tensor_stream.h"
#include "shard_runtime/ckpt/work.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/weights.h"

enum { BLOCK_ELEMS = 1 << 17 };

const char *differ_word(enum differ_kind kind)
{
    static const char *const words[] = {
        [DIFFER_EQUAL] = "equal",     [DIFFER_VALUES] = "values",    [DIFFER_DTYPE] = "dtype",
        [DIFFER_SHAPE] = "shape",     [DIFFER_ONLY_A] = "only in A", [DIFFER_ONLY_B] = "only in B",
        [DIFFER_UNREAD] = "not read",
    };

    return words[kind];
}

/* The comparison of one block, which begins at element number `first`. */
static void compare_block(struct difference *of, const unsigned char *a, const unsigned char *b, size_t n,
                          uint64_t first)
{
    const size_t size_a = fsdp_dtype_size(of->a->dtype), size_b = fsdp_dtype_size(of->b->dtype);
    const bool same_dtype = of->a->dtype == of->b->dtype;

    if (same_dtype && memcmp(a, b, n * size_a) == 0)
        return;
    for (size_t i = 0; i < n; i++, a += size_a, b += size_b) {
        const double x = element_read(a, of->a->dtype), y = element_read(b, of->b->dtype);
        const double larger = fmax(fabs(x), fabs(y));
        double gap;

        if (same_dtype ? memcmp(a, b, size_a) == 0 : x == y || (isnan(x) && isnan(y)))
            continue;
        if (of->n_differ++ == 0)
            of->first = first + i;
        gap = x == y || (isnan(x) && isnan(y)) ? 0 : isfinite(x) && isfinite(y) ? fabs(x - y) : INFINITY;
        of->max_abs = fmax(of->max_abs, gap);
        if (gap > 0)
            of->max_rel = fmax(of->max_rel, isfinite(gap) ? gap / larger : INFINITY);
    }
}

struct comparison {
    struct fsdp_io *io;
    const struct differ_side *a, *b;
    struct difference *list;
};

static enum fsdp_status compare_values(const struct comparison *comparison, struct difference *of,
                                       struct tensor_stream *a, struct tensor_stream *b, unsigned char *block,
                                       struct fsdp_err *err)
{
    const size_t size_a = fsdp_dtype_size(of->a->dtype), size_b = fsdp_dtype_size(of->b->dtype);

    OK_OR_RETURN(tensor_stream_begin(a, (size_t)(of->a - comparison->a->contents->manifest.tensors), err));
    OK_OR_RETURN(tensor_stream_begin(b, (size_t)(of->b - comparison->b->contents->manifest.tensors), err));
    for (uint64_t at = 0; at < of->n_elems;) {
        const size_t n = of->n_elems - at < BLOCK_ELEMS ? (size_t)(of->n_elems - at) : BLOCK_ELEMS;
        unsigned char *const other = block + BLOCK_ELEMS * size_a;

        OK_OR_RETURN(tensor_stream_read(a, block, n * size_a, err));
        OK_OR_RETURN(tensor_stream_read(b, other, n * size_b, err));
        compare_block(of, block, other, n, at);
        at += n;
    }
    return FSDP_OK;
}

static enum fsdp_status compare_tensor(void *arg, size_t i, struct fsdp_err *err)
{
    struct comparison *comparison = arg;
    struct difference *of = &comparison->list[i];
    struct tensor_stream *a = NULL, *b = NULL;
    unsigned char *block = NULL;
    struct box whole;
    enum fsdp_status status;

    if (of->a == NULL || of->b == NULL) {
        of->kind = of->a == NULL ? DIFFER_ONLY_B : DIFFER_ONLY_A;
        return FSDP_OK;
    }
    if (of->a->n_dims != of->b->n_dims ||
        memcmp(of->a->shape, of->b->shape, of->a->n_dims * sizeof *of->a->shape) != 0) {
        of->kind = DIFFER_SHAPE;
        return FSDP_OK;
    }
    if (of->a->dtype == WEIGHTS_UNKNOWN_DTYPE || of->b->dtype == WEIGHTS_UNKNOWN_DTYPE) {
        of->kind = DIFFER_UNREAD;
        return FSDP_OK;
    }
    whole = box_whole(of->a->shape, of->a->n_dims);
    of->n_elems = box_elems(&whole);
    block = malloc((size_t)BLOCK_ELEMS * (fsdp_dtype_size(of->a->dtype) + fsdp_dtype_size(of->b->dtype)));
    status = block == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "memory to compare with") : FSDP_OK;
    if (status == FSDP_OK)
        status =
            tensor_stream_create(&a, comparison->io, comparison->a->contents, comparison->a->directory, err);
    if (status == FSDP_OK)
        status =
            tensor_stream_create(&b, comparison->io, comparison->b->contents, comparison->b->directory, err);
    if (status == FSDP_OK)
        status = compare_values(comparison, of, a, b, block, err);
    of->kind = of->n_differ > 0 ? DIFFER_VALUES : of->a->dtype != of->b->dtype ? DIFFER_DTYPE : DIFFER_EQUAL;
    tensor_stream_destroy(a);
    tensor_stream_destroy(b);
    free(block);
    return status;
}

/* Joins two sorted lists of tensors. Returns the number of names. */
static size_t join(const struct manifest_tensor *const *a, size_t n_a, const struct manifest_tensor *const *b,
                   size_t n_b, struct difference *list)
{
    size_t n = 0;

    for (size_t i = 0, k = 0; i < n_a || k < n_b; n++) {
        const int order = i == n_a ? 1 : k == n_b ? -1 : strcmp(a[i]->name, b[k]->name);

        list[n] = (struct difference){ .a = order <= 0 ? a[i] : NULL, .b = order >= 0 ? b[k] : NULL };
        i += order <= 0;
        k += order >= 0;
    }
    return n;
}

enum fsdp_status differ_all(struct fsdp_io *io, const struct differ_side *a, const struct differ_side *b,
                            struct difference **list, size_t *n, struct fsdp_err *err)
{
    const size_t n_a = a->contents->manifest.n_tensors, n_b = b->contents->manifest.n_tensors;
    const struct manifest_tensor **sorted_a = NULL, **sorted_b = NULL;
    struct comparison comparison = { .io = io, .a = a, .b = b };
    enum fsdp_status status = manifest_sort(&a->contents->manifest, &sorted_a, err);

    *n = 0;
    *list = NULL;
    if (status == FSDP_OK)
        status = manifest_sort(&b->contents->manifest, &sorted_b, err);
    if (status == FSDP_OK && (*list = calloc(n_a + n_b + 1, sizeof **list)) == NULL)
        status = fsdp_fail(err, FSDP_ERR_NOMEM, "memory for %zu tensors", n_a + n_b);
    if (status == FSDP_OK) {
        *n = join(sorted_a, n_a, sorted_b, n_b, *list);
        comparison.list = *list;
        status = work_run(*n, compare_tensor, &comparison, work_threads(), err);
    }
    if (status != FSDP_OK) {
        free(*list);
        *list = NULL;
    }
    free(sorted_a);
    free(sorted_b);
    return status;
}

#include "shard_runtime/numerics/ref.h"

#include <stdlib.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/numerics/matmul_desc.h"

struct matmul {
    struct matmul_desc desc;
};

enum fsdp_status ref_matmul_create(struct numerics *numerics, const struct matmul_desc *desc,
                                   struct matmul **out, size_t *scratch_bytes, struct fsdp_err *err)
{
    (void)numerics;
    *out = NULL;
    *scratch_bytes = 0;
    OK_OR_RETURN(matmul_desc_check(desc, err));
    if (desc->dtype != FSDP_F32)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "matmul: no product of %s", fsdp_dtype_name(desc->dtype));
    *out = malloc(sizeof **out);
    if (*out == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "matmul: no memory for a description");
    (*out)->desc = *desc;
    return FSDP_OK;
}

void ref_matmul_destroy(struct matmul *matmul)
{
    free(matmul);
}

static void multiply(const struct matmul_desc *desc, const float *a, const float *b, const float *bias,
                     float *c)
{
    for (size_t i = 0; i < desc->m; i++) {
        for (size_t j = 0; j < desc->n; j++) {
            float *out = &c[i * desc->c.row_stride + j * desc->c.col_stride];
            double sum = 0;

            for (size_t k = 0; k < desc->k; k++)
                sum += (double)a[i * desc->a.row_stride + k * desc->a.col_stride] *
                       (double)b[k * desc->b.row_stride + j * desc->b.col_stride];
            sum *= (double)desc->alpha;
            if (desc->bias)
                sum += (double)bias[j];
            *out = desc->accumulate ? (float)((double)*out + sum) : (float)sum;
        }
    }
}

enum fsdp_status ref_matmul_run(struct matmul *matmul, struct device_stream *stream, const void *a,
                                const void *b, const void *bias, void *c, void *scratch, struct fsdp_err *err)
{
    const struct matmul_desc *desc = &matmul->desc;

    (void)stream;
    (void)scratch;
    (void)err;
    if (matmul_is_empty(desc))
        return FSDP_OK;
    for (size_t outer = 0; outer < desc->outer; outer++)
        for (size_t inner = 0; inner < desc->inner; inner++)
            multiply(desc, (const float *)a + outer * desc->a.outer_stride + inner * desc->a.inner_stride,
                     (const float *)b + outer * desc->b.outer_stride + inner * desc->b.inner_stride, bias,
                     (float *)c + outer * desc->c.outer_stride + inner * desc->c.inner_stride);
    return FSDP_OK;
}

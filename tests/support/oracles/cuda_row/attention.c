/*
 * Attention, whichever the run's choice makes it: ours or cuDNN's.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/support/oracles/cuda_row/row.h"

void *used_before(size_t size_bytes)
{
    void *bytes = malloc(size_bytes + 1), *memory;

    memset(bytes, 0xff, size_bytes);
    memory = to_device(bytes, size_bytes);
    free(bytes);
    return memory;
}

struct attention_problem make_attention(struct attention_desc shape, enum fsdp_dtype dtype, bool packed)
{
    const size_t features = shape.heads * shape.head_dim, n = shape.batch * shape.seq * features;
    struct attention_problem p = { .desc = op_attention(shape, dtype, packed ? 3 * features : features),
                                   .part = packed ? features : n,
                                   .qkv = make(3 * n),
                                   .out = make(n),
                                   .dout = make(n),
                                   .dqkv = make(3 * n),
                                   .lse = make(shape.batch * shape.heads * shape.seq) };

    if (dtype == FSDP_BF16)
        narrow_both(p.qkv), narrow_both(p.dout);
    return p;
}

void drop_attention(struct attention_problem *p)
{
    drop(p->qkv), drop(p->out), drop(p->dout), drop(p->dqkv), drop(p->lse);
}

enum fsdp_status run_attention(const struct attention_problem *p, int r)
{
    struct fused_attention_desc desc = p->desc;
    size_t part, of[2], most;
    struct fused_attention *attention;
    enum fsdp_status status;
    char *x = (char *)at(p->qkv, r), *dx = (char *)at(p->dqkv, r);
    void *scratch;

    desc.dtype = r == 0 ? desc.dtype : FSDP_F32;
    part = p->part * fsdp_dtype_size(desc.dtype);
    status = each_row[r]->ops->attention_create(each_row[r], &desc, &attention, &of[0], &of[1], &err);
    if (status != FSDP_OK)
        return status;
    most = of[0] > of[1] ? of[0] : of[1];
    scratch = r == 0 ? used_before(most) : malloc(most + 1);
    status = op_attention_forward(each_row[r], attention, on(r), (void *const[]){ x, x + part, x + 2 * part },
                                  at(p->out, r), at(p->lse, r), NULL, scratch, &err);
    if (status == FSDP_OK)
        status =
            op_attention_backward(each_row[r], attention, on(r), (void *const[]){ x, x + part, x + 2 * part },
                                  at(p->out, r), at(p->dout, r), at(p->lse, r), NULL,
                                  (void *const[]){ dx, dx + part, dx + 2 * part }, scratch, &err);
    (void)device.ops->synchronize(stream, NULL);
    each_row[r]->ops->attention_destroy(attention);
    if (r == 0)
        device.ops->free(&device, scratch, most);
    else
        free(scratch);
    return status;
}

/*
 * Causal, q, k and v apart or side by side in one row as GPT-2's c_attn gives them. In float32 sums of at
 * most `seq` terms in another order. In bfloat16 by mma: D and dS are rounded to 8 bits before their
 * products, the results once more.
 */
static void check_way(const char *name, bool packed, bool narrow, size_t head_dim, double allowed)
{
    struct attention_problem p = make_attention((struct attention_desc){ 2, 37, 2, head_dim, true },
                                                narrow ? FSDP_BF16 : FSDP_F32, packed);

    require(run_attention(&p, 0));
    require(run_attention(&p, 1));
    if (narrow)
        widen_on_device(p.out), widen_on_device(p.dqkv);
    compare(name, p.out, allowed);
    compare("its logarithms of sums", p.lse, allowed);
    compare("its gradients", p.dqkv, allowed);
    drop_attention(&p);
}

void check_attention(void)
{
    check_way("attention", false, false, 24, 1e-5);
    check_way("attention of packed rows", true, false, 24, 1e-5);
    check_way("attention of packed rows, heads of 64", true, false, 64, 1e-5);
    check_way("attention in bfloat16, heads of 64", false, true, 64, 2e-2);
    check_way("attention of packed rows in bfloat16, heads of 64", true, true, 64, 2e-2);
    check_way("attention of packed rows in bfloat16, heads of 128", true, true, 128, 2e-2);
    check_way("attention of packed rows in bfloat16, heads of 24", true, true, 24, 2e-2);
}

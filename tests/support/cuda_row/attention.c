/*
 * Attention, whichever the run's choice makes it: ours or cuDNN's.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda_row/row.h"

/* Memory that somebody used before: NaNs of either dtype. */
static void *used_before(size_t size_bytes)
{
    void *bytes = malloc(size_bytes + 1), *memory;

    memset(bytes, 0xff, size_bytes);
    memory = to_device(bytes, size_bytes);
    free(bytes);
    return memory;
}

/*
 * Causal, q, k and v apart or side by side in one row as GPT-2's c_attn gives them. In float32 sums of at most `seq` terms in
 * another order; in bfloat16 by mma: D and dS are rounded to 8 bits before their products, the results once more.
 */
static void check_way(const char *name, bool packed, bool narrow, size_t head_dim, double allowed)
{
    enum { BATCH = 2, SEQ = 37, HEADS = 2, N_PARTS = 3 };
    const size_t features = HEADS * head_dim, stride = packed ? N_PARTS * features : features,
                 rows = BATCH * SEQ, part = packed ? features : rows * features;
    const struct fused_attention_desc ours_desc = {
        .shape = { .batch = BATCH, .seq = SEQ, .heads = HEADS, .head_dim = head_dim, .causal = true },
        .dtype = narrow ? FSDP_BF16 : FSDP_F32,
        .scale = 1.0f / sqrtf((float)head_dim),
        .q_stride = stride,
        .k_stride = stride,
        .v_stride = stride,
        .out_stride = features
    };
    struct fused_attention_desc theirs_desc = ours_desc;
    const size_t size = fsdp_dtype_size(ours_desc.dtype);
    struct tensor qkv = make(rows * features * N_PARTS), out = make(rows * features),
                  dout = make(rows * features), dqkv = make(rows * features * N_PARTS),
                  lse = make(BATCH * HEADS * SEQ);
    struct fused_attention *ours, *theirs;
    size_t our_bytes[2], their_bytes[2];
    void *scratch[2], *their_scratch;

    theirs_desc.dtype = FSDP_F32;
    if (narrow)
        narrow_both(qkv), narrow_both(dout);
    require(cuda.ops->attention_create(&cuda, &ours_desc, &ours, &our_bytes[0], &our_bytes[1], &err));
    require(ref.ops->attention_create(&ref, &theirs_desc, &theirs, &their_bytes[0], &their_bytes[1], &err));
    for (int i = 0; i < 2; i++)
        scratch[i] = used_before(our_bytes[i]);
    their_scratch = malloc((their_bytes[0] > their_bytes[1] ? their_bytes[0] : their_bytes[1]) + 1);
    for (int who = 0; who < 2; who++) {
        const bool mine = who == 0;
        const size_t bytes = mine ? size : sizeof(float);
        char *x = (char *)(mine ? qkv.device : qkv.host), *dx = (char *)(mine ? dqkv.device : dqkv.host);
        const struct fused_attention_forward forward = { .q = x,
                                                         .k = x + part * bytes,
                                                         .v = x + 2 * part * bytes,
                                                         .out = mine ? out.device : out.host,
                                                         .lse = mine ? lse.device : lse.host,
                                                         .scratch = mine ? scratch[0] : their_scratch };
        const struct fused_attention_backward backward = { .q = forward.q,
                                                           .k = forward.k,
                                                           .v = forward.v,
                                                           .out = forward.out,
                                                           .dout = mine ? dout.device : dout.host,
                                                           .lse = forward.lse,
                                                           .dq = dx,
                                                           .dk = dx + part * bytes,
                                                           .dv = dx + 2 * part * bytes,
                                                           .scratch = mine ? scratch[1] : their_scratch };

        require((mine ? cuda : ref)
                    .ops->attention_forward(mine ? ours : theirs, mine ? stream : NULL, &forward, &err));
        require((mine ? cuda : ref)
                    .ops->attention_backward(mine ? ours : theirs, mine ? stream : NULL, &backward, &err));
    }
    if (narrow)
        widen_on_device(out), widen_on_device(dqkv);
    compare(name, out, allowed);
    compare("its logarithms of sums", lse, allowed);
    compare("its gradients", dqkv, allowed);
    cuda.ops->attention_destroy(ours);
    ref.ops->attention_destroy(theirs);
    for (int i = 0; i < 2; i++)
        device.ops->free(&device, scratch[i], our_bytes[i]);
    free(their_scratch);
    drop(qkv), drop(out), drop(dout), drop(dqkv), drop(lse);
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

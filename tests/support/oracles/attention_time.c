/*
 * Our attention and cuDNN's side by side on one GPU: how far their numbers are apart, and the time of each.
 * Linked with libfsdp. FSDP_TEST_EMULATED_GPU: one small shape, whose times mean nothing. "ok", "not ok" or
 * "skip" lines, and the times behind "#".
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "tests/support/oracles/cuda_row/row.h"

enum { WARM_UPS = 3, RUNS = 20 };

/*
 * Both round D, dS and the results to bfloat16, in another order of sums: twice what each is allowed against
 * float32.
 */
static const double allowed = 4e-2;

static const struct shape {
    const char *name;
    struct attention_desc shape;
} shapes[] = {
    { "GPT-2 124m, batch 16", { .batch = 16, .seq = 1024, .heads = 12, .head_dim = 64, .causal = true } },
    { "GPT-2 1558m, batch 4", { .batch = 4, .seq = 1024, .heads = 25, .head_dim = 64, .causal = true } },
    { "heads of 128, 4096 positions",
      { .batch = 2, .seq = 4096, .heads = 16, .head_dim = 128, .causal = true } },
    { "tiny", { .batch = 1, .seq = 33, .heads = 2, .head_dim = 64, .causal = true } },
};
enum { N_SHAPES = sizeof shapes / sizeof *shapes, TINY = N_SHAPES - 1 };

static double now_ms(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e3 * (double)now.tv_sec + 1e-6 * (double)now.tv_nsec;
}

/* What a run gave: out and the gradients of q, k and v as float32; and the times of forward and backward. */
struct result {
    float *numbers[2];
    double ms[2];
};

static struct result time_runs(struct numerics *row, const struct attention_problem *p)
{
    uint16_t *qkv = (uint16_t *)p->qkv.device, *dqkv = (uint16_t *)p->dqkv.device;
    void *const in[] = { qkv, qkv + p->part, qkv + 2 * p->part }, *const d[] = { dqkv, dqkv + p->part,
                                                                                 dqkv + 2 * p->part };
    struct fused_attention *attention;
    struct result result;
    size_t bytes[2];

    require(row->ops->attention_create(row, &p->desc, &attention, &bytes[0], &bytes[1], &err));
    for (int backward = 0; backward < 2; backward++) {
        void *scratch = used_before(bytes[backward]);
        double began_ms = 0;

        for (int i = -WARM_UPS; i < RUNS; i++) {
            if (i == 0) {
                require(device.ops->synchronize(stream, &err));
                began_ms = now_ms();
            }
            require(backward ? op_attention_backward(row, attention, stream, in, p->out.device,
                                                     p->dout.device, p->lse.device, NULL, d, scratch, &err)
                             : op_attention_forward(row, attention, stream, in, p->out.device, p->lse.device,
                                                    NULL, scratch, &err));
        }
        require(device.ops->synchronize(stream, &err));
        result.ms[backward] = (now_ms() - began_ms) / RUNS;
        device.ops->free(&device, scratch, bytes[backward]);
    }
    row->ops->attention_destroy(attention);
    result.numbers[0] = fetch(p->out, true);
    result.numbers[1] = fetch(p->dqkv, true);
    return result;
}

/* Without that choice here its operations are NULL. */
static struct numerics open_choice(const char *choice)
{
    struct numerics row;

    setenv("FSDP_CUDA_ATTENTION", choice, 1);
    if (open_row(&row) != FSDP_OK)
        row.ops = NULL;
    return row;
}

static void side_by_side(const struct shape *at, struct numerics *ours, struct numerics *theirs)
{
    struct attention_problem p = make_attention(at->shape, FSDP_BF16, true);
    const struct result a = time_runs(ours, &p), b = time_runs(theirs, &p);
    const double out = far_off(a.numbers[0], b.numbers[0], p.out.n, 1),
                 gradients = far_off(a.numbers[1], b.numbers[1], p.dqkv.n, 1);

    if (out <= allowed && gradients <= allowed)
        printf("ok - attention of %s: cuDNN's numbers are ours\n", at->name);
    else
        printf("not ok - attention of %s: cuDNN's numbers are ours: off by %g, gradients by %g\n", at->name,
               out, gradients);
    n_failed += !(out <= allowed && gradients <= allowed);
    printf("# attention of %s: forward ours %.3f ms, cuDNN %.3f ms; backward ours %.3f ms, cuDNN %.3f ms\n",
           at->name, a.ms[0], b.ms[0], a.ms[1], b.ms[1]);
    for (int i = 0; i < 2; i++)
        free(a.numbers[i]), free(b.numbers[i]);
    drop_attention(&p);
}

int main(void)
{
    const bool emulated = getenv("FSDP_TEST_EMULATED_GPU") != NULL;
    struct numerics ours, theirs;

    open_device();
    ours = open_choice("ours");
    require(err.status);
    theirs = open_choice("cudnn");
    if (theirs.ops == NULL)
        printf("skip - attention side by side: %s\n", err.message);
    for (int i = emulated ? TINY : 0; theirs.ops != NULL && i < (emulated ? N_SHAPES : TINY); i++)
        side_by_side(&shapes[i], &ours, &theirs);
    numerics_close(&theirs);
    numerics_close(&ours);
    close_device();
    return n_failed > 0;
}

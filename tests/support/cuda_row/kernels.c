/*
 * Norms, elementwise operations, tokens: the tolerances are of the kernels' own tests (docs/cuda.md).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/cuda_row/row.h"

static void check_norm(void)
{
    enum { ROWS = 9, COLS = 72 };
    struct tensor x = make(ROWS * COLS), w = make(COLS), b = make(COLS), y = make(ROWS * COLS),
                  mean = make(ROWS), rstd = make(ROWS), dy = make(ROWS * COLS), dx = make(ROWS * COLS),
                  dw = make(COLS), db = make(COLS);
    const size_t size_bytes = cuda.ops->layer_norm_scratch(&cuda, ROWS, COLS);
    void *scratch, *theirs = malloc(ref.ops->layer_norm_scratch(&ref, ROWS, COLS) + 1);

    require(device.ops->alloc(&device, size_bytes, &scratch, &err));
    cuda.ops->layer_norm(&cuda, stream, x.device, w.device, b.device, y.device, mean.device, rstd.device,
                         ROWS, COLS, 1e-5f);
    ref.ops->layer_norm(&ref, NULL, x.host, w.host, b.host, y.host, mean.host, rstd.host, ROWS, COLS, 1e-5f);
    compare("layer norm", y, 2e-6);
    cuda.ops->layer_norm_backward(&cuda, stream, dy.device, x.device, w.device, mean.device, rstd.device,
                                  dx.device, true, dw.device, db.device, false, scratch, ROWS, COLS);
    ref.ops->layer_norm_backward(&ref, NULL, dy.host, x.host, w.host, mean.host, rstd.host, dx.host, true,
                                 dw.host, db.host, false, theirs, ROWS, COLS);
    compare("layer norm backward: input", dx, 4e-6);
    compare("layer norm backward: weight", dw, 4e-6);
    compare("layer norm backward: bias", db, 4e-6);
    cuda.ops->column_sum(&cuda, stream, x.device, b.device, ROWS, COLS, true);
    ref.ops->column_sum(&ref, NULL, x.host, b.host, ROWS, COLS, true);
    compare("column sum", b, 1e-6);
    device.ops->free(&device, scratch, size_bytes);
    free(theirs);
    drop(x), drop(w), drop(b), drop(y), drop(mean), drop(rstd), drop(dy), drop(dx), drop(dw), drop(db);
}

/* RMSNorm, and either norm behind a residual sum. */
static void check_other_norms(void)
{
    enum { ROWS = 9, COLS = 72, N = ROWS * COLS };
    const struct dropout dropout = { .p = 0.3f, .key = 78, .first_row = 5 };
    struct tensor x = make(N), more = make(N), w = make(COLS), b = make(COLS), y = make(N), mean = make(ROWS),
                  rstd = make(ROWS), dy = make(N), dx = make(N), dw = make(COLS), sum = make(N);
    const size_t size_bytes = cuda.ops->layer_norm_scratch(&cuda, ROWS, COLS);
    void *scratch, *theirs = malloc(ref.ops->layer_norm_scratch(&ref, ROWS, COLS) + 1);

    require(device.ops->alloc(&device, size_bytes, &scratch, &err));
    cuda.ops->layer_norm(&cuda, stream, x.device, w.device, NULL, y.device, NULL, rstd.device, ROWS, COLS,
                         1e-5f);
    ref.ops->layer_norm(&ref, NULL, x.host, w.host, NULL, y.host, NULL, rstd.host, ROWS, COLS, 1e-5f);
    compare("rms norm", y, 2e-6);
    cuda.ops->layer_norm_backward(&cuda, stream, dy.device, x.device, w.device, NULL, rstd.device, dx.device,
                                  true, dw.device, NULL, true, scratch, ROWS, COLS);
    ref.ops->layer_norm_backward(&ref, NULL, dy.host, x.host, w.host, NULL, rstd.host, dx.host, true, dw.host,
                                 NULL, true, theirs, ROWS, COLS);
    compare("rms norm backward: input", dx, 4e-6);
    compare("rms norm backward: weight", dw, 4e-6);
    for (int rms = 0; rms < 2; rms++) {
        cuda.ops->add_layer_norm(&cuda, stream, FSDP_F32,
                                 &(struct numerics_add_norm){ x.device, more.device, &dropout, sum.device,
                                                              y.device, w.device, rms ? NULL : b.device,
                                                              rms ? NULL : mean.device, rstd.device, ROWS,
                                                              COLS, 1e-5f });
        memcpy(sum.host, x.host, N * sizeof(float));
        ref.ops->dropout(&ref, NULL, more.host, sum.host, ROWS, COLS, &dropout, true);
        ref.ops->layer_norm(&ref, NULL, sum.host, w.host, rms ? NULL : b.host, y.host, rms ? NULL : mean.host,
                            rstd.host, ROWS, COLS, 1e-5f);
        compare("residual sum before a norm", sum, 0);
        compare(rms ? "rms norm behind a residual sum" : "layer norm behind a residual sum", y, 2e-6);
    }
    device.ops->free(&device, scratch, size_bytes);
    free(theirs);
    drop(x), drop(more), drop(w), drop(b), drop(y), drop(mean), drop(rstd), drop(dy), drop(dx), drop(dw);
    drop(sum);
}

static void check_elementwise(void)
{
    enum { N = 5003 };
    struct tensor x = make(N), y = make(N), z = make(N), m = make(N), v = make(N);
    const struct adamw h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    const struct dropout dropout = { .p = 0.3f, .key = 77, .first_row = 5 };
    double ours, theirs;

    cuda.ops->add(&cuda, stream, x.device, y.device, z.device, N);
    ref.ops->add(&ref, NULL, x.host, y.host, z.host, N);
    compare("add", z, 0);
    cuda.ops->gelu(&cuda, stream, x.device, z.device, N);
    ref.ops->gelu(&ref, NULL, x.host, z.host, N);
    compare("gelu", z, 1e-6);
    cuda.ops->gelu_backward(&cuda, stream, y.device, x.device, z.device, N);
    ref.ops->gelu_backward(&ref, NULL, y.host, x.host, z.host, N);
    compare("gelu backward", z, 1e-6);
    cuda.ops->gelu_tanh(&cuda, stream, x.device, z.device, N);
    ref.ops->gelu_tanh(&ref, NULL, x.host, z.host, N);
    compare("gelu by tanh", z, 1e-6);
    cuda.ops->gelu_tanh_backward(&cuda, stream, y.device, x.device, z.device, N);
    ref.ops->gelu_tanh_backward(&ref, NULL, y.host, x.host, z.host, N);
    compare("gelu by tanh backward", z, 1e-6);
    cuda.ops->dropout(&cuda, stream, x.device, z.device, 1, N, &dropout, false);
    ref.ops->dropout(&ref, NULL, x.host, z.host, 1, N, &dropout, false);
    compare("dropout, the same mask", z, 0);
    ours = cuda.ops->sum_squares(&cuda, stream, x.device, N);
    theirs = ref.ops->sum_squares(&ref, NULL, x.host, N);
    say("sum of squares", fabs(ours - theirs) / theirs, 1e-12);
    for (size_t i = 0; i < N; i++)
        v.host[i] = fabsf(v.host[i]);
    device.ops->copy(stream, v.device, v.host, N * sizeof(float), DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    cuda.ops->adamw(&cuda, stream, x.device, y.device, m.device, v.device, N, &h, 0.5f, 3);
    ref.ops->adamw(&ref, NULL, x.host, y.host, m.host, v.host, N, &h, 0.5f, 3);
    compare("AdamW: parameters", x, 1e-7);
    compare("AdamW: first moments", m, 1e-7);
    compare("AdamW: second moments", v, 1e-7);
    drop(x), drop(y), drop(z), drop(m), drop(v);
}

static void check_tokens(void)
{
    enum { ROWS = 21, SEQ = 7, COLS = 40, VOCAB = 53 };
    struct tensor table = make(VOCAB * COLS), positions = make(SEQ * COLS), out = make(ROWS * COLS),
                  dtable = make(VOCAB * COLS), dpositions = make(SEQ * COLS), logits = make(ROWS * VOCAB),
                  dlogits = make(ROWS * VOCAB);
    int32_t tokens[ROWS], *on_tokens;
    double our_loss = 0, their_loss = 0;
    uint64_t our_n = 0, their_n = 0;

    for (int i = 0; i < ROWS; i++)
        tokens[i] = i * i % 11;
    on_tokens = to_device(tokens, sizeof tokens);
    cuda.ops->embedding(&cuda, stream, on_tokens, table.device, positions.device, out.device, ROWS, COLS,
                        SEQ);
    ref.ops->embedding(&ref, NULL, tokens, table.host, positions.host, out.host, ROWS, COLS, SEQ);
    compare("embedding", out, 0);
    cuda.ops->embedding_backward(&cuda, stream, on_tokens, out.device, dtable.device, dpositions.device, ROWS,
                                 COLS, SEQ);
    ref.ops->embedding_backward(&ref, NULL, tokens, out.host, dtable.host, dpositions.host, ROWS, COLS, SEQ);
    compare("embedding backward, rows that repeat", dtable, 1e-7);
    compare("embedding backward: positions", dpositions, 1e-6);
    tokens[3] = tokens[ROWS - 1] = -100;
    device.ops->free(&device, on_tokens, sizeof tokens);
    on_tokens = to_device(tokens, sizeof tokens);
    cuda.ops->cross_entropy(&cuda, stream, logits.device, on_tokens, dlogits.device, ROWS, VOCAB, 0.125f,
                            &our_loss, &our_n);
    ref.ops->cross_entropy(&ref, NULL, logits.host, tokens, dlogits.host, ROWS, VOCAB, 0.125f, &their_loss,
                           &their_n);
    compare("gradient of the loss", dlogits, 2e-6);
    say("the loss comes when the stream has passed", fabs(our_loss - their_loss) / their_loss, 1e-6);
    say("and the count of its targets", our_n == their_n ? 0 : 1, 0);
    device.ops->free(&device, on_tokens, sizeof tokens);
    drop(table), drop(positions), drop(out), drop(dtable), drop(dpositions), drop(logits), drop(dlogits);
}

void check_kernels(void)
{
    check_norm();
    check_other_norms();
    check_elementwise();
    check_tokens();
}

/*
 * Norms, elementwise operations, tokens: the tolerances are of the kernels' own tests (docs/cuda.md).
 */
#include <math.h>
#include <string.h>

#include "tests/support/oracles/cuda_row/row.h"

/* LayerNorm, with the column sum of its input; or RMSNorm, which has neither means nor a bias. */
static void check_norm(bool rms)
{
    enum { ROWS = 9, COLS = 72 };
    static const char *const names[2][4] = {
        { "layer norm", "layer norm backward: input", "layer norm backward: weight",
          "layer norm backward: bias" },
        { "rms norm", "rms norm backward: input", "rms norm backward: weight" },
    };
    struct tensor x = make(ROWS * COLS), w = make(COLS), b = make(COLS), y = make(ROWS * COLS),
                  mean = make(ROWS), rstd = make(ROWS), dy = make(ROWS * COLS), dx = make(ROWS * COLS),
                  dw = make(COLS), db = make(COLS);

    for (int r = 0; r < 2; r++) {
        const size_t size_bytes = each_row[r]->ops->norm_scratch(each_row[r], FSDP_F32, ROWS, COLS);
        struct tensor scratch = make(size_bytes / sizeof(float) + 1);

        op_norm(each_row[r], on(r), FSDP_F32, at(x, r), at(w, r), rms ? NULL : at(b, r), at(y, r),
                rms ? NULL : at(mean, r), at(rstd, r), ROWS, COLS, 1e-5f);
        op_norm_backward(each_row[r], on(r), at(dy, r), at(x, r), at(w, r), rms ? NULL : at(mean, r),
                         at(rstd, r), at(dx, r), true, at(dw, r), rms ? NULL : at(db, r), rms, at(scratch, r),
                         ROWS, COLS);
        op_column_sum(each_row[r], on(r), FSDP_F32, at(x, r), FSDP_F32, at(b, r), ROWS, COLS, true);
        require(device.ops->synchronize(stream, &err));
        drop(scratch);
    }
    compare(names[rms][0], y, 2e-6);
    compare(names[rms][1], dx, 4e-6);
    compare(names[rms][2], dw, 4e-6);
    if (!rms)
        compare(names[rms][3], db, 4e-6);
    compare("column sum", b, 1e-6);
    drop(x), drop(w), drop(b), drop(y), drop(mean), drop(rstd), drop(dy), drop(dx), drop(dw), drop(db);
}

/* Either norm after a residual sum. */
static void check_sum_and_norm(bool rms)
{
    enum { ROWS = 9, COLS = 72, N = ROWS * COLS };
    const struct dropout dropout = { .p = 0.3f, .key = 78, .first_row = 5 };
    struct tensor x = make(N), more = make(N), w = make(COLS), b = make(COLS), y = make(N), mean = make(ROWS),
                  rstd = make(ROWS), sum = make(N);

    cuda.ops->add_norm(&cuda, stream,
                       &(struct numerics_add_norm){
                           FSDP_F32, x.device, more.device, &dropout, sum.device, y.device, w.device,
                           rms ? NULL : b.device, rms ? NULL : mean.device, rstd.device, ROWS, COLS, 1e-5f });
    memcpy(sum.host, x.host, N * sizeof(float));
    op_dropout(&ref, NULL, more.host, sum.host, ROWS, COLS, &dropout, true);
    op_norm(&ref, NULL, FSDP_F32, sum.host, w.host, rms ? NULL : b.host, y.host, rms ? NULL : mean.host,
            rstd.host, ROWS, COLS, 1e-5f);
    compare("residual sum before a norm", sum, 0);
    compare(rms ? "rms norm behind a residual sum" : "layer norm behind a residual sum", y, 2e-6);
    drop(x), drop(more), drop(w), drop(b), drop(y), drop(mean), drop(rstd), drop(sum);
}

static void check_elementwise(void)
{
    enum { N = 5003 };
    struct tensor x = make(N), y = make(N), m = make(N), v = make(N), sum = make(N), dropped = make(N),
                  gelu[3] = { make(N), make(N), make(N) }, back[3] = { make(N), make(N), make(N) };
    static const enum numerics_function functions[3] = { NUMERICS_GELU, NUMERICS_GELU_TANH, NUMERICS_SILU };
    const struct op_rates h = { .lr = 1e-3, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    const struct dropout dropout = { .p = 0.3f, .key = 77, .first_row = 5 };
    double squares[2];

    for (size_t i = 0; i < N; i++)
        v.host[i] = fabsf(v.host[i]);
    device.ops->copy(stream, v.device, v.host, N * sizeof(float), DEVICE_COPY_TO);
    for (int r = 0; r < 2; r++) {
        op_add(each_row[r], on(r), FSDP_F32, at(x, r), at(y, r), at(sum, r), N);
        for (int f = 0; f < 3; f++) {
            op_activation(each_row[r], on(r), FSDP_F32, functions[f], at(x, r), at(gelu[f], r), N);
            op_activation_backward(each_row[r], on(r), FSDP_F32, functions[f], at(y, r), at(x, r),
                                   at(back[f], r), N);
        }
        op_dropout(each_row[r], on(r), at(x, r), at(dropped, r), 1, N, &dropout, false);
        squares[r] = op_sum_powers(each_row[r], on(r), at(x, r), N, 2);
        op_adamw(each_row[r], on(r), at(x, r), at(y, r), at(m, r), at(v, r), N, &h, 0.5f, 3);
    }
    compare("add", sum, 0);
    compare("gelu", gelu[0], 1e-6);
    compare("gelu backward", back[0], 1e-6);
    compare("gelu by tanh", gelu[1], 1e-6);
    compare("gelu by tanh backward", back[1], 1e-6);
    compare("silu", gelu[2], 1e-6);
    compare("silu backward", back[2], 1e-6);
    compare("dropout, the same mask", dropped, 0);
    say("sum of squares", fabs(squares[0] - squares[1]) / squares[1], 1e-12);
    compare("AdamW: parameters", x, 1e-7);
    compare("AdamW: first moments", m, 1e-7);
    compare("AdamW: second moments", v, 1e-7);
    drop(x), drop(y), drop(m), drop(v), drop(sum), drop(dropped);
    for (int f = 0; f < 3; f++)
        drop(gelu[f]), drop(back[f]);
}

static void check_softmax(void)
{
    const struct attention_desc shape = { .batch = 2, .seq = 19, .heads = 3, .head_dim = 8, .causal = true };
    const struct dropout dropout = { .p = 0.3f, .key = 79, .first_row = 7 };
    const size_t n = shape.batch * shape.heads * shape.seq * shape.seq;
    struct tensor scores = make(n), dropped = make(n), dp = make(n), ds = make(n);

    for (int r = 0; r < 2; r++) {
        op_softmax(each_row[r], on(r), at(scores, r), at(dropped, r), &shape, &dropout);
        op_softmax_backward(each_row[r], on(r), at(scores, r), at(dp, r), at(ds, r), &shape, &dropout);
    }
    compare("softmax", scores, 1e-6);
    compare("softmax with dropout", dropped, 2e-6);
    compare("softmax backward", ds, 1e-6);
    drop(scores), drop(dropped), drop(dp), drop(ds);
}

/* What every device must compute to the bit: numbers by draws, and in float8. */
static void check_same_bits(void)
{
    enum { N = 5003 };
    struct device cpu, *devices[2] = { &device, &cpu };
    struct device_stream *streams[2] = { stream };
    struct tensor x = make(N), half = make(N), rounded = make(N), codes = make(N), amax = make(1),
                  decoded = make(N);

    require(device_open(&cpu, &(struct device_config){ .name = "cpu" }, &err));
    require(cpu.ops->stream_create(&cpu, &streams[1], false, &err));
    for (int r = 0; r < 2; r++) {
        const struct device_ops *ops = devices[r]->ops;
        const struct device_rounding rounding = { (uint16_t *)at(half, r), at(x, r), N, 80, 12345 };

        ops->round_list(streams[r], &rounding, 1, 6);
        ops->cast(streams[r], at(rounded, r), FSDP_F32, at(half, r), FSDP_BF16, N, 1.0f, false);
        ops->fill_zero(streams[r], at(amax, r), sizeof(float));
        ops->amax(streams[r], at(amax, r), at(x, r), N);
        ops->encode(streams[r], (uint8_t *)at(codes, r), at(x, r), FSDP_F32, N, at(amax, r));
        ops->decode(streams[r], at(decoded, r), FSDP_F32, (const uint8_t *)at(codes, r), N, at(amax, r));
        require(ops->synchronize(streams[r], &err));
    }
    compare("rounded to bfloat16 by draws", rounded, 0);
    compare("largest size", amax, 0);
    compare("to float8 and back", decoded, 0);
    cpu.ops->stream_destroy(streams[1]);
    device_close(&cpu);
    drop(x), drop(half), drop(rounded), drop(codes), drop(amax), drop(decoded);
}

static void check_tokens(void)
{
    enum { ROWS = 21, SEQ = 7, COLS = 40, VOCAB = 53 };
    struct tensor table = make(VOCAB * COLS), positions = make(SEQ * COLS), out = make(ROWS * COLS),
                  dtable = make(VOCAB * COLS), dpositions = make(SEQ * COLS), logits = make(ROWS * VOCAB),
                  dlogits = make(ROWS * VOCAB);
    int32_t tokens[ROWS], targets[ROWS], *on_device[2];
    double loss[2] = { 0 };
    uint64_t n[2] = { 0 };

    for (int i = 0; i < ROWS; i++) {
        tokens[i] = i * i % 11;
        targets[i] = i == 3 || i == ROWS - 1 ? -100 : tokens[i];
    }
    on_device[0] = to_device(tokens, sizeof tokens);
    on_device[1] = to_device(targets, sizeof targets);
    for (int r = 0; r < 2; r++) {
        const int32_t *in = r == 0 ? on_device[0] : tokens;

        op_embedding(each_row[r], on(r), in, at(table, r), at(positions, r), at(out, r), ROWS, COLS, SEQ);
        op_embedding_backward(each_row[r], on(r), in, at(out, r), at(dtable, r), at(dpositions, r), ROWS,
                              COLS, SEQ);
        op_cross_entropy(each_row[r], on(r), at(logits, r), r == 0 ? on_device[1] : targets, at(dlogits, r),
                         ROWS, VOCAB, 0.125f, &loss[r], &n[r]);
    }
    compare("embedding", out, 0);
    compare("embedding backward, rows that repeat", dtable, 1e-7);
    compare("embedding backward: positions", dpositions, 1e-6);
    compare("gradient of the loss", dlogits, 2e-6);
    say("the loss comes when the stream has passed", fabs(loss[0] - loss[1]) / loss[1], 1e-6);
    say("and the count of its targets", n[0] == n[1] ? 0 : 1, 0);
    device.ops->free(&device, on_device[0], sizeof tokens);
    device.ops->free(&device, on_device[1], sizeof targets);
    drop(table), drop(positions), drop(out), drop(dtable), drop(dpositions), drop(logits), drop(dlogits);
}

void check_kernels(void)
{
    for (int rms = 0; rms < 2; rms++) {
        check_norm(rms);
        check_sum_and_norm(rms);
    }
    check_elementwise();
    check_softmax();
    check_same_bits();
    check_tokens();
}

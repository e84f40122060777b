/* fsdp-train with one wrong piece of mathematics, named by FSDP_TEST_MUTANT: what a comparison must not let
 * pass. Also counts, in the file that FSDP_TEST_COMPARED names, the all-gathers by which ranks compare a collective of a device before they
 * queue it: a line each. The Makefile links libfsdp and the trainer with --wrap, so that nothing of it is in the product. */
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/numerics/numerics.h"

enum fsdp_status __real_numerics_open(struct numerics *numerics, const struct numerics_config *config,
                                      struct fsdp_err *err);
enum fsdp_status __wrap_numerics_open(struct numerics *numerics, const struct numerics_config *config,
                                      struct fsdp_err *err);

enum fsdp_status __real_comm_call_compare(const struct comm_call *mine, int rank,
                                          const struct comm_call *theirs, int their_rank,
                                          struct fsdp_err *err);
enum fsdp_status __wrap_comm_call_compare(const struct comm_call *mine, int rank,
                                          const struct comm_call *theirs, int their_rank,
                                          struct fsdp_err *err);

/* A rank compares its call with that of each rank, and what it compares with an all-gather of calls is of a device. */
enum fsdp_status __wrap_comm_call_compare(const struct comm_call *mine, int rank,
                                          const struct comm_call *theirs, int their_rank,
                                          struct fsdp_err *err)
{
    const char *path = getenv("FSDP_TEST_COMPARED");
    const bool of_calls =
        mine->kind == COMM_ALL_GATHER && mine->dtype == FSDP_U8 && mine->size_bytes == sizeof *mine;

    if (path != NULL && rank == 0 && their_rank == 0 && of_calls) {
        FILE *file = fopen(path, "a");

        if (file == NULL)
            abort();
        fprintf(file, "all-gather of a call\n");
        fclose(file);
    }
    return __real_comm_call_compare(mine, rank, theirs, their_rank, err);
}

static const struct numerics_ops *sound;
static struct numerics_ops mutant;

/* GELU by tanh: Hendrycks and Gimpel, 2016, the approximation. */
static void gelu_tanh(struct numerics *numerics, struct device_stream *stream, const float *x, float *y,
                      size_t n_elems)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++) {
        const double v = (double)x[i];

        y[i] = (float)(0.5 * v * (1 + tanh(sqrt(2 / M_PI) * (v + 0.044715 * v * v * v))));
    }
}

static void gelu_tanh_backward(struct numerics *numerics, struct device_stream *stream, const float *dy,
                               const float *x, float *dx, size_t n_elems)
{
    (void)numerics;
    (void)stream;
    for (size_t i = 0; i < n_elems; i++) {
        const double v = (double)x[i], c = sqrt(2 / M_PI);
        const double t = tanh(c * (v + 0.044715 * v * v * v));

        dx[i] =
            (float)((double)dy[i] * (0.5 * (1 + t) + 0.5 * v * (1 - t * t) * c * (1 + 3 * 0.044715 * v * v)));
    }
}

static void layer_norm_eps(struct numerics *numerics, struct device_stream *stream, const float *x,
                           const float *weight, const float *bias, float *y, float *mean, float *rstd,
                           size_t rows, size_t cols, float eps)
{
    sound->layer_norm(numerics, stream, x, weight, bias, y, mean, rstd, rows, cols, eps / 10);
}

static void adamw_eps(struct numerics *numerics, struct device_stream *stream, float *param,
                      const float *grad, float *m, float *v, size_t n_elems, const struct adamw *h,
                      float grad_scale, uint64_t step)
{
    struct adamw wrong = *h;

    wrong.eps = h->eps * 10;
    sound->adamw(numerics, stream, param, grad, m, v, n_elems, &wrong, grad_scale, step);
}

static void cross_entropy_twice(struct numerics *numerics, struct device_stream *stream, const float *logits,
                                const int32_t *targets, float *dlogits, size_t rows, size_t vocab,
                                float scale, double *loss_sum, uint64_t *n_targets)
{
    sound->cross_entropy(numerics, stream, logits, targets, dlogits, rows, vocab, 2 * scale, loss_sum,
                         n_targets);
}

static bool is_set_to(const char *name, const char *value)
{
    return getenv(name) != NULL && strcmp(getenv(name), value) == 0;
}

/* Is this rank 1's seventh call, in that try of the job? */
static bool is_seventh(const char *try, int n_calls)
{
    return n_calls == 7 && is_set_to("RANK", "1") && is_set_to("TORCHELASTIC_RESTART_COUNT", try);
}

static void spoil_seventh(const char *try, int n_calls, double *loss_sum)
{
    if (is_seventh(try, n_calls))
        *loss_sum = (double)NAN;
}

/* A fault that passes, in the last gradient that backward makes: of the first token, whose row another rank
 * has. The loss is sound. */
static void embedding_backward_once_nan(struct numerics *numerics, struct device_stream *stream,
                                        const int32_t *tokens, const float *dout, float *dtable,
                                        float *dpositions, size_t rows, size_t cols, size_t seq)
{
    static int n_calls;

    sound->embedding_backward(numerics, stream, tokens, dout, dtable, dpositions, rows, cols, seq);
    if (dtable != NULL && is_seventh("0", ++n_calls))
        dtable[0] = NAN;
}

/* A fault that passes: in the first try of a job rank 1's seventh loss is not a number. */
static void cross_entropy_once_nan(struct numerics *numerics, struct device_stream *stream,
                                   const float *logits, const int32_t *targets, float *dlogits, size_t rows,
                                   size_t vocab, float scale, double *loss_sum, uint64_t *n_targets)
{
    static int n_calls;

    sound->cross_entropy(numerics, stream, logits, targets, dlogits, rows, vocab, scale, loss_sum, n_targets);
    spoil_seventh("0", ++n_calls, loss_sum);
}

/* A fault that comes and goes: in the first and the third try as above. In the second rank 1 dies of its ninth loss. */
static void cross_entropy_nan_again(struct numerics *numerics, struct device_stream *stream,
                                    const float *logits, const int32_t *targets, float *dlogits, size_t rows,
                                    size_t vocab, float scale, double *loss_sum, uint64_t *n_targets)
{
    static int n_calls;

    sound->cross_entropy(numerics, stream, logits, targets, dlogits, rows, vocab, scale, loss_sum, n_targets);
    n_calls++;
    spoil_seventh("0", n_calls, loss_sum);
    spoil_seventh("2", n_calls, loss_sum);
    if (n_calls == 9 && is_set_to("RANK", "1") && is_set_to("TORCHELASTIC_RESTART_COUNT", "1"))
        raise(SIGKILL);
}

enum fsdp_status __wrap_numerics_open(struct numerics *numerics, const struct numerics_config *config,
                                      struct fsdp_err *err)
{
    const char *name = getenv("FSDP_TEST_MUTANT");
    enum fsdp_status status = __real_numerics_open(numerics, config, err);

    if (status != FSDP_OK)
        return status;
    sound = numerics->ops;
    mutant = *sound;
    if (name == NULL || strcmp(name, "none") == 0)
        return FSDP_OK;
    if (strcmp(name, "gelu-tanh") == 0) {
        mutant.gelu = gelu_tanh;
        mutant.gelu_backward = gelu_tanh_backward;
    } else if (strcmp(name, "gelu-exact") == 0) {
        mutant.gelu_tanh = sound->gelu;
        mutant.gelu_tanh_backward = sound->gelu_backward;
    } else if (strcmp(name, "norm-eps") == 0) {
        mutant.layer_norm = layer_norm_eps;
    } else if (strcmp(name, "adam-eps") == 0) {
        mutant.adamw = adamw_eps;
    } else if (strcmp(name, "gradient-twice") == 0) {
        mutant.cross_entropy = cross_entropy_twice;
    } else if (strcmp(name, "once-nan") == 0) {
        mutant.cross_entropy = cross_entropy_once_nan;
    } else if (strcmp(name, "nan-again") == 0) {
        mutant.cross_entropy = cross_entropy_nan_again;
    } else if (strcmp(name, "once-nan-gradient") == 0) {
        mutant.embedding_backward = embedding_backward_once_nan;
    } else {
        fprintf(stderr, "no mutant is called %s\n", name);
        exit(99);
    }
    numerics->ops = &mutant;
    return FSDP_OK;
}

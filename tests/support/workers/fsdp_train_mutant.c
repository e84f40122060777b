/* fsdp-train with one wrong piece of mathematics, named by FSDP_TEST_MUTANT: what a comparison must not let
 * pass. The Makefile links libfsdp and the trainer with --wrap, so that nothing of it is in the product. */
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/numerics/numerics.h"
#include "shard_runtime/trainer/batch.h"

enum fsdp_status __real_numerics_open(struct numerics *numerics, const struct numerics_config *config,
                                      struct fsdp_err *err);
enum fsdp_status __wrap_numerics_open(struct numerics *numerics, const struct numerics_config *config,
                                      struct fsdp_err *err);
enum fsdp_status __real_batch_fill(struct batch *batch, const struct tokens *tokens,
                                   const struct order *order, uint64_t cursor, int rank, int W,
                                   struct fsdp_err *err);
enum fsdp_status __wrap_batch_fill(struct batch *batch, const struct tokens *tokens,
                                   const struct order *order, uint64_t cursor, int rank, int W,
                                   struct fsdp_err *err);

static const struct numerics_ops *sound;
static struct numerics_ops mutant;

/* An operation with one argument changed. */
#define MUTANT(name, operation, change)                                                                      \
    static void name(struct numerics *numerics, struct device_stream *stream,                                \
                     const struct numerics_##operation *run)                                                 \
    {                                                                                                        \
        struct numerics_##operation wrong = *run;                                                            \
                                                                                                             \
        wrong.change;                                                                                        \
        sound->operation(numerics, stream, &wrong);                                                          \
    }
#define OTHER_GELU function = run->function == NUMERICS_GELU ? NUMERICS_GELU_TANH : NUMERICS_GELU

MUTANT(other_gelu, activation, OTHER_GELU)
MUTANT(other_gelu_backward, activation_backward, OTHER_GELU)
MUTANT(norm_eps, norm, eps /= 10)
MUTANT(adamw_eps, adamw, eps *= 10)
MUTANT(cross_entropy_twice, cross_entropy, scale *= 2)

static bool is_set_to(const char *name, const char *value)
{
    return getenv(name) != NULL && strcmp(getenv(name), value) == 0;
}

/* Is this rank 1's seventh call, in that try of the job? */
static bool is_seventh(const char *try, int n_calls)
{
    return n_calls == 7 && is_set_to("RANK", "1") && is_set_to("TORCHELASTIC_RESTART_COUNT", try);
}

/* A fault that passes, in the last gradient that backward makes: of the first token, whose row another rank
 * has. The loss is sound. */
static void embedding_backward_once_nan(struct numerics *numerics, struct device_stream *stream,
                                        const struct numerics_embedding_backward *run)
{
    static int n_calls;

    sound->embedding_backward(numerics, stream, run);
    if (run->dtable != NULL && is_seventh("0", ++n_calls))
        run->dtable[0] = NAN;
}

/* A fault that passes: in the first try of a job rank 1's seventh loss is not a number. */
static void cross_entropy_once_nan(struct numerics *numerics, struct device_stream *stream,
                                   const struct numerics_cross_entropy *run)
{
    static int n_calls;

    sound->cross_entropy(numerics, stream, run);
    if (is_seventh("0", ++n_calls))
        *run->loss_sum = (double)NAN;
}

/*
 * A fault that comes and goes: in the first and the third try as above. In the second rank 1 dies of its
 * ninth loss.
 */
static void cross_entropy_nan_again(struct numerics *numerics, struct device_stream *stream,
                                    const struct numerics_cross_entropy *run)
{
    static int n_calls;

    sound->cross_entropy(numerics, stream, run);
    n_calls++;
    if (is_seventh("0", n_calls) || is_seventh("2", n_calls))
        *run->loss_sum = (double)NAN;
    if (n_calls == 9 && is_set_to("RANK", "1") && is_set_to("TORCHELASTIC_RESTART_COUNT", "1"))
        raise(SIGKILL);
}

/* A fault of the job: in every try rank 1 dies of its seventh loss. */
static void cross_entropy_crash(struct numerics *numerics, struct device_stream *stream,
                                const struct numerics_cross_entropy *run)
{
    static int n_calls;

    sound->cross_entropy(numerics, stream, run);
    if (++n_calls == 7 && is_set_to("RANK", "1"))
        raise(SIGSEGV);
}

/*
 * Slow ranks: FSDP_TEST_SLOW is a list of PLACE:RANK:MILLISECONDS, parted by commas. In each step the rank
 * sleeps for so long where it reads its data (place "data"), or where it computes ("step").
 */
static void be_slow(const char *place)
{
    const char *at = getenv("FSDP_TEST_SLOW"), *rank = getenv("RANK");
    char here[32];

    snprintf(here, sizeof here, "%s:%s:", place, rank != NULL ? rank : "0");
    for (at = at != NULL ? strstr(at, here) : NULL; at != NULL; at = strstr(at + 1, here)) {
        const long ms = atol(at + strlen(here));

        nanosleep(&(struct timespec){ .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L }, NULL);
    }
}

static void cross_entropy_slow(struct numerics *numerics, struct device_stream *stream,
                               const struct numerics_cross_entropy *run)
{
    be_slow("step");
    sound->cross_entropy(numerics, stream, run);
}

enum fsdp_status __wrap_batch_fill(struct batch *batch, const struct tokens *tokens,
                                   const struct order *order, uint64_t cursor, int rank, int W,
                                   struct fsdp_err *err)
{
    be_slow("data");
    return __real_batch_fill(batch, tokens, order, cursor, rank, W, err);
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
    if (strcmp(name, "gelu-tanh") == 0 || strcmp(name, "gelu-exact") == 0) {
        mutant.activation = other_gelu;
        mutant.activation_backward = other_gelu_backward;
    } else if (strcmp(name, "norm-eps") == 0)
        mutant.norm = norm_eps;
    else if (strcmp(name, "adam-eps") == 0)
        mutant.adamw = adamw_eps;
    else if (strcmp(name, "gradient-twice") == 0)
        mutant.cross_entropy = cross_entropy_twice;
    else if (strcmp(name, "once-nan") == 0)
        mutant.cross_entropy = cross_entropy_once_nan;
    else if (strcmp(name, "nan-again") == 0)
        mutant.cross_entropy = cross_entropy_nan_again;
    else if (strcmp(name, "slow") == 0)
        mutant.cross_entropy = cross_entropy_slow;
    else if (strcmp(name, "crash") == 0)
        mutant.cross_entropy = cross_entropy_crash;
    else if (strcmp(name, "once-nan-gradient") == 0)
        mutant.embedding_backward = embedding_backward_once_nan;
    else
        exit(99);
    numerics->ops = &mutant;
    return FSDP_OK;
}

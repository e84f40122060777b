/*
 * Trains a stored case in one way of sharding it, in a world of threads. The results are compared with the
 * reference, or with those of another way.
 */
#ifndef TEST_PARITY_CASE_H
#define TEST_PARITY_CASE_H

#include <fsdp/fsdp.h>

#include "tests/unit/parity/reference.h"

/** What is wrong in a world, for mutants; and where it is slow. */
enum sabotage {
    SOUND,
    SUMS_FOR_MEANS,     /* gradients are not divided by W */
    LOSES_A_ROW,        /* the last rank's part of a gather stays away */
    REDUCES_TOO_LITTLE, /* the last rank's gradients are not added */
    MISSES_A_WAIT,      /* computation does not wait for gathers */
    MIXES_BATCHES,      /* the backward of one forward reads the batch of another */
    SHARES_ACTIVATIONS, /* two forwards have one set of activations */
};

enum { SLOW_GATHER = 1, SLOW_REDUCE = 2, SLOW_AFTER_FORWARD = 4, SLOW_BEFORE_OPTIMIZER = 8, SLOW_ALL = 15 };

struct way {
    int W;         /* all ranks */
    int replicate; /* copies of the model; 0 and 1: one */
    /* ranks that split each linear but the root's, or a and b; 0 and 1: not at all. W counts them */
    int tensor;
    bool mixed_meshes; /* blocks over replicate x shard, the root over all of these ranks flat */
    bool calls;        /* each micro-step is a call of its own */
    size_t n_micro;    /* batches of a rank and step; 0: 1 */
    size_t forwards;   /* of them before a backward; 0: 1 */
    enum fsdp_backwards backwards;
    bool halves; /* each forward is a call, and each backward */
    enum fsdp_gradient_sync sync;
    bool defers_all_reduce, keep_after_backward, force_sum;
    enum fsdp_reshard reshard;
    int reshard_size;
    bool auto_root; /* the root does without the two */
    enum { BY_BLOCK, ROOT_ONLY, IN_LISTS, BY_LINEAR } groups;
    bool columns; /* matrices are cut along dimension 1 */
    enum fsdp_activation_checkpoint recompute;
    int prefetch;  /* units ahead, by explicit lists; 0: the default */
    int in_flight; /* reduce-scatter input buffers; 0: 1 */
    bool own_reduce_group;
    bool keeps_unused;             /* where the case skips: unused parameters are not reduced all the same */
    int param_dtype, reduce_dtype; /* both 0: none (FSDP_F32 is 0 too, and the same) */
    bool float8;                   /* weights of products are gathered so */
    enum fsdp_overlap overlap;     /* FSDP_OVERLAP_AUTO: off */
    int slow;                      /* SLOW_* */
    enum sabotage sabotage;
    const char *numerics;                                  /* the row that computes; NULL: "ref" */
    int steps;                                             /* 0: all of the reference */
    void (*prepare)(struct fsdp_model *model, void *user); /* on every rank, before the first step; or NULL */
    void *user;
};

/* Two forwards before a backward, and a backward of each. */
#define TWO_FORWARDS  .W = 2, .n_micro = 2, .forwards = 2
#define TWO_BACKWARDS TWO_FORWARDS, .backwards = FSDP_BACKWARD_OF_EACH

#define N(array) (sizeof(array) / sizeof *(array))
/* A way whose row would not fit on a line. */
#define WAY(...)                                                                                             \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

/* A row of two words and a way. */
#define OF(one, other, ...)                                                                                  \
    {                                                                                                        \
        one, other,                                                                                          \
        {                                                                                                    \
            __VA_ARGS__                                                                                      \
        }                                                                                                    \
    }

/* What rank 0 saw. */
struct seen {
    double losses[REFERENCE_STEPS], norms[REFERENCE_STEPS];
    int n_steps;
    struct {
        char name[64];
        size_t n_elems;
        float *gradient, *weight; /* raw, of step 1, or NULL; at the end */
    } parameters[REFERENCE_MAX];
    size_t n_parameters;
};

void case_run(const struct reference *reference, const struct way *way, struct seen *seen);
void seen_free(struct seen *seen);

/**
 * Numbers of `seen` that are farther from the reference than 2e-6 (losses) and 5e-6 (norms, gradients), told
 * with `label` unless it is NULL.
 */
int seen_compare(const struct seen *seen, const struct reference *reference, const char *label);

/**
 * Run each way on the reference numerics and on those that a job gets by default, and expect no such number.
 * `cases`: names of stored cases; "NAME:n" for the first n ways only.
 */
void case_expect(const char *cases, const struct way *ways, size_t n_ways);
/** A test of its own: expect(cases, ways, their number) on the ways that follow. */
#define TEST_OF_WAYS(expect, suite, name, cases, ...)                                                        \
    Test(suite, name, .timeout = 3000)                                                                       \
    {                                                                                                        \
        static const struct way ways[] = { __VA_ARGS__ };                                                    \
                                                                                                             \
        expect(cases, ways, N(ways));                                                                        \
    }                                                                                                        \
    struct way
#define WaysTest(...) TEST_OF_WAYS(case_expect, __VA_ARGS__)

/** The same bits in losses, norms, gradients and weights? */
bool seen_same_bits(const struct seen *one, const struct seen *other);

/** |a - b| / |b| as vectors. */
double distance(const float *a, const double *b, size_t n);

#endif

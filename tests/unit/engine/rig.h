/*
 * What most tests of the engine need on one rank: the tiny model, its meshes, an optimizer and the samples of
 * a step. rig_init() gives defaults; a test changes them before the first call that builds something.
 */
#ifndef TEST_ENGINE_RIG_H
#define TEST_ENGINE_RIG_H

#include "tests/unit/engine/must.h"
#include "tests/unit/engine/world.h"

enum { RIG_TOKENS = 640, RIG_MICRO = 12, RIG_ELEMS = 8192 };

/** How a step of several micro-steps is run: in one call, a call each, or a forward and a backward each. */
enum rig_way { RIG_IN_ONE_CALL, RIG_CALL_BY_CALL, RIG_IN_HALVES, RIG_N_WAYS };

struct rig {
    struct fsdp_context *context;
    struct tiny tiny;
    struct fsdp_model_options options; /* batch 2, seq 6, seed 4 */
    struct fsdp_optimizer_options updates;
    size_t n_micro;  /* 1 */
    int rank, ranks; /* among the ranks that have different samples: at first all of the world */
    struct fsdp_device_mesh *mesh, *data, *tensor;
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    int32_t tokens[RIG_TOKENS], targets[RIG_TOKENS]; /* of all micro-steps, one after the other */
    struct fsdp_batch micro[RIG_MICRO];
    struct fsdp_loss loss; /* of the last call */
    struct fsdp_err err;
};

void rig_init(struct rig *rig, struct fsdp_context *context);
/** The context of the rank `context`, all defaults, with a model and an optimizer. */
void rig_start(struct rig *rig, struct fsdp_context *context);

/** A mesh of `replicate` copies times shards times `tensor` parts; 0 counts as 1. All 1: no mesh is made. */
void rig_mesh(struct rig *rig, int replicate, int tensor);
/** The module tree; the first call builds it. */
struct fsdp_module *rig_root(struct rig *rig);
/** Block number `i` of the tree. */
struct fsdp_module *rig_block(struct rig *rig, size_t i);
/** Makes the model of the tree. */
void rig_model(struct rig *rig);
/** Makes the model and its optimizer. */
void rig_open(struct rig *rig);
/** Destroys all that is there. */
void rig_close(struct rig *rig);

/** The samples of step `number`, different on every rank and in every micro-step. */
void rig_fill(struct rig *rig, int number);
/** Forward and backward of the samples that are there, in one call. */
enum fsdp_status rig_run(struct rig *rig);
/** Micro-step `m` alone, which says itself whether it is the last one. */
enum fsdp_status rig_call(struct rig *rig, size_t m, enum rig_way way);
/** rig_fill(), then all micro-steps in the way that is asked for. */
enum fsdp_status rig_backward(struct rig *rig, int number, enum rig_way way);
/** Forward, backward and update of step `number`; they must succeed. Returns the mean loss. */
double rig_step(struct rig *rig, int number);

/**
 * All parameters or all gradients, whole, in `out` (RIG_ELEMS); every rank calls. Returns how many elements.
 */
size_t rig_gather(struct rig *rig, enum fsdp_which which, float *out);
/** A copy of this rank's shards or gradients on the device, for the caller to free. */
float *rig_copy(const struct rig *rig, enum fsdp_which which);
/** Are they still those of the copy? */
bool rig_is(const struct rig *rig, enum fsdp_which which, const float *copy);

/** A test that runs `body`, with NULL, in worlds of each of these sizes. */
#define WorldTest(suite, name, body, ...)                                                                    \
    Test(suite, name, .timeout = 600)                                                                        \
    {                                                                                                        \
        const int worlds[] = { __VA_ARGS__ };                                                                \
                                                                                                             \
        for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)                                          \
            world_run(worlds[i], body, NULL);                                                                \
    }

#endif

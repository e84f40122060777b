/*
 * Forecasts what training a model will need, before anything is allocated and without the other ranks. It
 * makes the same recording and the same plan that a real step runs, for a world of any size.
 */
#ifndef FSDP_FORECAST_H
#define FSDP_FORECAST_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/model.h>
#include <fsdp/optimizer.h>

FSDP_BEGIN_DECLS

struct fsdp_forecast_world {
    int size;           /* number of ranks (W), at least 1 */
    int ranks_per_host; /* divides size */
    int threads;        /* compute threads of a rank: the size of scratch memory depends on it */
    enum fsdp_matmul_precision matmul_precision;
    uint64_t n_micro;   /* micro-steps in a step; more than 1 only with options->accumulates */
    const char *device; /* "cpu", or "cuda", which has memory of its own; NULL: "cpu" */
    bool staged;        /* with "cuda": collectives go through host memory instead of NCCL */
    /* arguments of fsdp_model_prepare_evaluation(); 0: there is no evaluation */
    size_t evaluation_batch, evaluation_seq;
};

/**
 * Bytes that training allocates in device memory and in host memory, if the device has memory of its own. All
 * fields are zero on the cpu. Two fields cannot be known in advance: `collectives` is an estimate, and
 * `context` is a constant.
 */
struct fsdp_forecast_apart {
    size_t parameters, gradients, optimizer; /* in device memory */
    size_t inputs;                           /* a training batch, and an evaluation batch */
    size_t workspace;                        /* workspace of the matrix-product library */
    size_t kernels;     /* scratch of kernels outside the arena, and results on their way to the host */
    size_t allocated;   /* the six fields above and the arenas: the expected fsdp_context_device_memory() */
    size_t collectives; /* NCCL's buffers: an estimate */
    size_t context;     /* memory that a process takes on a GPU before it allocates anything: a constant */
    size_t host_parameters, host_gradients; /* page-locked */
    /* page-locked optimizer state, or the window of it that is in memory if a file holds the rest */
    size_t host_optimizer;
    size_t host_staging; /* page-locked, for collectives through host memory */
    /* page-locked, allocated when the logits of an evaluation are first requested */
    size_t host_logits;
};

struct fsdp_forecast_collectives {
    uint64_t n_calls;
    /*
     * bytes that one rank sends in one step, by ring algorithms: (W - 1) / W of what is gathered or scattered
     */
    uint64_t sent_bytes;
};

struct fsdp_forecast {
    struct fsdp_memory memory; /* memory of rank 0, which owns the most rows */
    /* optimizer state of rank 0's rows, or the window of it in memory; 0 without an optimizer */
    size_t optimizer;
    /* bytes of the file that holds the optimizer state; 0: the state is in memory */
    uint64_t offloaded;
    size_t staging; /* memory of the transport that only this rank has */
    /* shared-memory segments of the transport that this rank maps; other ranks of its host map them too */
    size_t shared;
    size_t node_shared; /* all such segments of a host, each counted once */
    /*
     * Memory (RssAnon + RssShmem) of the planning process while the plan exists. It has the libraries, the
     * code that they generated for the products of this plan, and the plan itself. Memory that the caller
     * holds is included. 0 if there is no /proc.
     */
    size_t process;
    struct fsdp_forecast_apart apart;
    struct fsdp_forecast_collectives all_gather, reduce_scatter, all_reduce;
};

/**
 * Plans the training of the tree `root` as fsdp_model_create() with the same options would. The tree must be
 * sharded with fsdp_fully_shard() up to its root. `optimizer` may be NULL: no optimizer. Code that a library
 * generates stays in the process, so `process` of a second forecast includes the code of the first.
 *   FSDP_ERR_ARG          the tree or the sizes of the world are not valid
 *   FSDP_ERR_UNSUPPORTED  world->device does not support the requested offload
 */
FSDP_API enum fsdp_status fsdp_model_forecast(struct fsdp_module *root,
                                              const struct fsdp_model_options *options,
                                              const struct fsdp_optimizer_options *optimizer,
                                              const struct fsdp_forecast_world *world,
                                              struct fsdp_forecast *forecast, struct fsdp_err *err);

/**
 * Gives the same plan as text, which the caller frees with free(). The text has the layout with one line for
 * each parameter, then an empty line. Then follows the program of a micro-step, as in fsdp_model_plan_text().
 * Fails as fsdp_model_forecast() does; *text is then NULL.
 */
FSDP_API enum fsdp_status fsdp_model_forecast_text(struct fsdp_module *root,
                                                   const struct fsdp_model_options *options,
                                                   const struct fsdp_optimizer_options *optimizer,
                                                   const struct fsdp_forecast_world *world, char **text,
                                                   struct fsdp_err *err);

FSDP_END_DECLS

#endif

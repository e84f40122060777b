/*
 * What training a model will need, before anything is allocated and without the other ranks: the same recording and
 * the same plan that a step is run from, in a world of any size.
 */
#ifndef FSDP_FORECAST_H
#define FSDP_FORECAST_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/model.h>
#include <fsdp/optimizer.h>

FSDP_BEGIN_DECLS

struct fsdp_forecast_world {
    int size;           /* W, at least 1 */
    int ranks_per_host; /* divides size */
    int threads;        /* compute threads of a rank: scratch depends on it */
    enum fsdp_matmul_precision matmul_precision;
    uint64_t n_micro;   /* micro-steps of a step; more than 1 only with options->accumulates */
    const char *device; /* "cpu", or "cuda", whose memory is not the host's; NULL: "cpu" */
    bool staged;        /* on such a device: collectives by way of the host, not NCCL's */
    size_t evaluation_batch, evaluation_seq; /* of fsdp_model_prepare_evaluation(); 0: there will be none */
};

/**
 * On a device with memory of its own: what is there, and what is in the host's. All of it zero on the cpu. In bytes, as they
 * are allocated, but for two that nobody who plans can know: an estimate and a constant.
 */
struct fsdp_forecast_apart {
    size_t parameters, gradients, optimizer; /* in device memory */
    size_t inputs;                           /* a batch, and one of an evaluation */
    size_t workspace;                        /* of the library of products */
    size_t kernels;     /* scratch outside the arena, and numbers on their way to the host */
    size_t allocated;   /* the six above and the arenas: what fsdp_context_device_memory() comes to */
    size_t collectives; /* NCCL's buffers: an estimate */
    size_t context;     /* what a process takes of a GPU before it asks for anything: a constant */
    size_t host_parameters, host_gradients; /* page-locked */
    size_t host_optimizer;                  /* the same, or its window of a file */
    size_t host_staging;                    /* page-locked, for collectives by way of the host */
    size_t host_logits;                     /* the same, of an evaluation, once they are asked for */
};

struct fsdp_forecast_collectives {
    uint64_t n_calls;
    uint64_t
        sent_bytes; /* by one rank in one step, by ring algorithms: (W - 1) / W of what is gathered or scattered */
};

struct fsdp_forecast {
    struct fsdp_memory memory; /* of rank 0, which owns the most rows */
    size_t optimizer;          /* its state for rank 0's rows, or its window of it; 0 without an optimizer */
    uint64_t offloaded;        /* bytes of the file that holds its state; 0: it is in memory */
    size_t staging;            /* what the transport keeps in this rank's own memory */
    size_t shared; /* segments of the transport that this rank maps; other ranks of its host map them too */
    size_t node_shared; /* all such segments of a host, each counted once */
    /* RssAnon + RssShmem of the process that plans, while the plan exists: the libraries, the code that they
       generated for the products of this plan, and the plan itself. What the caller holds is in it too. 0: no /proc. */
    size_t process;
    struct fsdp_forecast_apart apart;
    struct fsdp_forecast_collectives all_gather, reduce_scatter, all_reduce;
};

/**
 * Plan the training of `root`, sharded up to its root, as fsdp_model_create() with the same options would.
 * `optimizer` NULL: none. Code that a library generates stays in the process: a second forecast finds that of the
 * first in `process`.
 *   FSDP_ERR_ARG  a tree that does not compute what it should, or a world that makes no sense
 *   FSDP_ERR_UNSUPPORTED  an offload that world->device does not take
 */
FSDP_API enum fsdp_status fsdp_model_forecast(struct fsdp_module *root,
                                              const struct fsdp_model_options *options,
                                              const struct fsdp_optimizer_options *optimizer,
                                              const struct fsdp_forecast_world *world,
                                              struct fsdp_forecast *forecast, struct fsdp_err *err);

/**
 * The same plan as text, to be freed with free(): the layout, a line a parameter, and behind an empty line the program of a
 * micro-step as fsdp_model_plan_text() has it. Fails as fsdp_model_forecast() does, *text then being NULL.
 */
FSDP_API enum fsdp_status fsdp_model_forecast_text(struct fsdp_module *root,
                                                   const struct fsdp_model_options *options,
                                                   const struct fsdp_optimizer_options *optimizer,
                                                   const struct fsdp_forecast_world *world, char **text,
                                                   struct fsdp_err *err);

FSDP_END_DECLS

#endif

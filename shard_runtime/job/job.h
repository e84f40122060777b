/*
 * The resolved job: the values that result from a job file, --set and defaults. The launcher sends this typed
 * struct to the workers as JSON, and both read it. Strings are never NULL and belong to the job.
 */
#ifndef JOB_JOB_H
#define JOB_JOB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum job_order { JOB_ORDER_SHUFFLED, JOB_ORDER_SEQUENTIAL };
enum job_optimizer_kind { JOB_ADAMW, JOB_SGD };
enum job_decay { JOB_DECAY_ALL, JOB_DECAY_MATRICES };
enum job_schedule { JOB_CONSTANT, JOB_LINEAR, JOB_COSINE };
enum job_reshard {
    JOB_RESHARD_AUTO,
    JOB_RESHARD_TRUE,
    JOB_RESHARD_FALSE,
    JOB_RESHARD_TO = 1000, /* plus k: reshard to groups of k ranks; equals JOB_CHOICE_NUMBER */
    JOB_RESHARD_MOST = 1000 + 65536,
};
enum job_offload { JOB_OFFLOAD_NONE, JOB_OFFLOAD_CPU, JOB_OFFLOAD_NVME };
enum job_gradient_sync { JOB_SYNC_LAST, JOB_SYNC_EVERY };
enum job_all_reduce { JOB_ALL_REDUCE_EVERY, JOB_ALL_REDUCE_LAST };
enum job_dtype { JOB_FLOAT32, JOB_BFLOAT16 };
enum job_output_dtype { JOB_OUTPUT_AS_IS, JOB_OUTPUT_FLOAT32, JOB_OUTPUT_BFLOAT16 };
enum job_activation_checkpoint { JOB_CHECKPOINT_NONE, JOB_CHECKPOINT_FULL, JOB_CHECKPOINT_SELECTIVE };
enum job_matmul_precision { JOB_MATMUL_HIGHEST, JOB_MATMUL_HIGH };
enum job_recompute { JOB_RECOMPUTE_CHEAP, JOB_RECOMPUTE_NONE };
enum job_overlap { JOB_OVERLAP_AUTO, JOB_OVERLAP_ON, JOB_OVERLAP_OFF };
enum { JOB_NORM_INF = 0 };
/*
 * The most tokens that one rank may process in a micro-step. Tokens are rows of a matrix product, and oneDNN
 * counts rows in ints.
 */
enum { JOB_MAX_TOKENS = 2147483647 };
enum job_norm { JOB_LAYERNORM, JOB_RMSNORM };
enum job_preset { JOB_PRESET_NONE, JOB_PRESET_124M, JOB_PRESET_355M, JOB_PRESET_774M, JOB_PRESET_1558M };
enum job_export { JOB_EXPORT_NONE, JOB_EXPORT_HUGGINGFACE };
enum job_resume { JOB_RESUME_AUTO, JOB_RESUME_NEVER };
enum job_data { JOB_DATA_CHECK, JOB_DATA_IGNORE };

struct job_names; /* lists, defined in rules.h; NULL: none */
struct job_rules;

struct job {
    struct {
        char *name, *dir;
        uint64_t seed;
        uint64_t log_every;
        char *device;      /* auto | cpu | cuda */
        char *collectives; /* auto | cpu | nccl */
    } run;
    struct {
        uint64_t nproc_per_node, nnodes, max_restarts;
        uint64_t restart_window_s; /* 0: restarts of the whole run count */
        uint64_t threads;          /* compute threads of a rank; 0: auto */
        double hang_timeout_s;
    } launch;
    struct {
        char *path; /* absolute after resolving */
        char *tokenizer;
        enum job_order order;
        double validation;
    } data;
    struct {
        char *kind; /* transformer | gpt2 */
        enum job_preset preset;
        uint64_t layers, dim, heads, vocab, seq;
        double dropout;
        bool causal;
        bool tied;
        enum job_norm norm;
        char *weights; /* initial weights, absolute after resolving; "": random */
        bool weights_strict;
        struct job_names *frozen; /* parameters that get no gradient */
    } model;
    struct {
        uint64_t steps;
        uint64_t batch; /* sequences per rank and micro-step */
        enum job_matmul_precision matmul_precision;
        uint64_t grad_accumulation; /* micro-steps per step */
        uint64_t global_batch;      /* sequences per step; 0: batch * W * grad_accumulation */
        double clip_norm;           /* 0: no clipping */
        int clip_norm_type;         /* JOB_NORM_INF, or JOB_CHOICE_NUMBER + p */
    } train;
    struct {
        enum job_optimizer_kind kind;
        double lr, betas[2], eps, weight_decay, momentum;
        enum job_decay decay;
        enum job_schedule schedule;
        uint64_t warmup_steps;
        struct job_rules *groups;
        bool in_backward;
    } optimizer;
    struct {
        enum job_reshard reshard_after_forward;
        struct job_rules *groups, *placement;
        struct job_names *ignored;
        double gradient_divide_factor; /* 0: the number of ranks */
        bool force_sum_reduction, separate_reduce_scatter_group;
        uint64_t reduce_scatter_max_input_buffers;
        uint64_t forward_prefetch, backward_prefetch; /* number of groups; 0: automatic */
        enum job_offload offload;
        char *offload_dir; /* absolute after resolving; "": offload in the run directory */
        uint64_t replicate, tensor;
        enum job_all_reduce all_reduce;
        enum job_dtype param_dtype, reduce_dtype;
        enum job_output_dtype output_dtype;
        bool cast_forward_inputs, float8_gather, stochastic_rounding;
        enum job_gradient_sync gradient_sync;
        enum job_overlap overlap;
        enum job_recompute recompute;
        enum job_activation_checkpoint activation_checkpoint;
        uint64_t activation_checkpoint_every; /* one in this many blocks is checkpointed */
        bool reshard_after_backward;
    } parallel; /* no fields for keys of features that do not exist yet, because such keys are refused */
    struct {
        char *dir;            /* absolute after resolving; "": checkpoints in the run directory */
        uint64_t every, keep; /* every 0: never; keep 0: all */
        bool async;
        uint64_t snapshot_every; /* 0: none but those of async */
        uint64_t replicas;       /* copies of each snapshot in the memory of other nodes: 0 or 1 */
        enum job_resume resume;
        enum job_export exports;
        enum job_data data;
    } checkpoint;
};

/** Frees the strings and lists of `job` and sets it to zero. NULL is a no-op. */
void job_free(struct job *job);

/**
 * Writes the job as one JSON object, with the sections and keys of the job file and all defaults filled in.
 * The caller frees *out.
 */
enum fsdp_status job_to_json(const struct job *job, char **out, struct fsdp_err *err);
/**
 * Reads the output of job_to_json(), which an older program may have written: an absent key gets its default.
 * The text must be one JSON object in UTF-8. Returns FSDP_ERR_FORMAT, with the key in the message, if a key
 * is unknown, has a wrong type, or is absent and has no default.
 */
enum fsdp_status job_from_json(struct job *job, const char *text, size_t length, struct fsdp_err *err);

/**
 * Writes the default of every key, in the form of job_to_json(). A key without a default is written as null.
 * The caller frees *out.
 *   deciding_only  true: write only the keys that decide the result of a run (job_key_decides())
 */
enum fsdp_status job_defaults_json(bool deciding_only, char **out, struct fsdp_err *err);

/**
 * Splits the samples of a step over W ranks. *batch receives the sequences per rank and micro-step, *n_micro
 * the micro-steps per step. If train.global_batch is set, W must divide it, and *batch is the largest divisor
 * of a rank's share that is at most train.batch. FSDP_ERR_CONFIG names the numbers if W does not divide it.
 */
enum fsdp_status job_split_batch(const struct job *job, int W, uint64_t *batch, uint64_t *n_micro,
                                 struct fsdp_err *err);

#endif

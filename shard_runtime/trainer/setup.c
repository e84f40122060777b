#include "shard_runtime/state/saver.h"
#include "shard_runtime/trainer/trainer.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/context.h"
#include "shard_runtime/trainer/models.h"
#include "shard_runtime/trainer/optimizer_groups.h"
#include "shard_runtime/trainer/sharding.h"

/*
 * Returns whether the failure that a call returned happened on another rank, which reports it itself. A
 * failure without a message was already agreed on by the ranks.
 */
static bool is_of_another(const struct trainer *trainer, enum fsdp_status status, const struct fsdp_err *err)
{
    int rank;

    return (status == FSDP_ERR_PEER && err->message[0] == '\0') ||
           (sscanf(err->message, "rank %d: ", &rank) == 1 && rank != trainer->rank);
}

enum fsdp_status trainer_agree(struct trainer *trainer, enum fsdp_status status, struct fsdp_err *err)
{
    const bool is_own = status != FSDP_OK && !is_of_another(trainer, status, err);
    /* the lowest failing rank gives the largest number */
    int64_t first = is_own ? trainer->W - trainer->rank : 0;
    struct fsdp_err comm_err = { 0 };
    enum fsdp_status comm_status;

    /* a rank whose device failed ends at once, as in the library's agreements (engine/agree.c) */
    if (status == FSDP_ERR_DEVICE)
        return status;
    comm_status =
        fsdp_all_reduce(fsdp_context_comm(trainer->context), &first, 1, FSDP_I64, FSDP_MAX, NULL, &comm_err);
    if (status != FSDP_OK && (comm_status != FSDP_OK || first == trainer->W - trainer->rank))
        return status; /* this rank reports its failure, or cannot reach the other ranks */
    if (comm_status != FSDP_OK)
        return fsdp_fail(err, comm_status, "%s", comm_err.message);
    fsdp_err_clear(err); /* the failing rank prints the message */
    return first == 0 && status == FSDP_OK ? FSDP_OK : FSDP_ERR_PEER;
}

static enum fsdp_status check_job(const struct trainer *trainer, struct fsdp_err *err)
{
    const struct job *job = trainer->job;

    if (job->data.validation != 0)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "data.validation is not supported yet: only 0.0 is");
    if (tokens_vocab(trainer->tokens) > job->model.vocab)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "model.vocab: tokenizer %s needs at least %" PRIu64 ", not %" PRIu64,
                         job->data.tokenizer, tokens_vocab(trainer->tokens), job->model.vocab);
    return FSDP_OK;
}

static enum fsdp_status open_inputs(struct trainer *trainer, struct fsdp_err *err)
{
    OK_OR_RETURN(job_split_batch(trainer->job, trainer->data_ranks, &trainer->batch, &trainer->n_micro, err));
    OK_OR_RETURN(trainer_open_files(trainer, err));
    return check_job(trainer, err);
}

static enum fsdp_overlap overlap_of(enum job_overlap overlap)
{
    return overlap == JOB_OVERLAP_ON    ? FSDP_OVERLAP_ON
           : overlap == JOB_OVERLAP_OFF ? FSDP_OVERLAP_OFF
                                        : FSDP_OVERLAP_AUTO;
}

enum fsdp_matmul_precision trainer_matmul_precision(const struct job *job)
{
    return job->train.matmul_precision == JOB_MATMUL_HIGH ? FSDP_MATMUL_HIGH : FSDP_MATMUL_HIGHEST;
}

struct fsdp_model_options trainer_model_options(const struct job *job, uint64_t batch, uint64_t n_micro)
{
    return (struct fsdp_model_options){
        .batch = batch,
        .seq = job->model.seq,
        .seed = job->run.seed,
        .accumulates = n_micro > 1,
        .overlap = overlap_of(job->parallel.overlap),
        .recompute =
            job->parallel.recompute == JOB_RECOMPUTE_NONE ? FSDP_RECOMPUTE_NOTHING : FSDP_RECOMPUTE_CHEAP,
        .gradient_sync = job->parallel.gradient_sync == JOB_SYNC_EVERY ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST,
    };
}

/* For optimizer.in_backward: updates a group's parameters when its gradients are final. */
static enum fsdp_status update_group(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    const struct trainer *trainer = user;

    (void)model;
    return fsdp_optimizer_step_group(trainer->optimizer, group, err);
}

void trainer_hook_optimizer(struct fsdp_module *tree, const struct job *job, struct trainer *trainer)
{
    if (tree != NULL && job->optimizer.in_backward)
        fsdp_module_register_post_accumulate_grad_hook(tree, update_group, trainer, true);
}

/*
 * A job that resumes with another number of ranks may have values of reshard_after_forward that no longer
 * divide it. Lowers those values to ones that do.
 */
static void fit_slices(const struct trainer *trainer)
{
    const int W = trainer->data_ranks / (int)trainer->job->parallel.replicate;

    if (trainer_goes_on(trainer) && sharding_fit_slices(trainer->tree, W) > 0 && trainer->rank == 0)
        printf("parallel.reshard_after_forward: numbers that do not divide the %d ranks that shard are "
               "lowered to ones that do\n",
               W);
}

static enum fsdp_status create_model(struct trainer *trainer, struct fsdp_err *err)
{
    const struct fsdp_model_options options =
        trainer_model_options(trainer->job, trainer->batch, trainer->n_micro);
    enum fsdp_status status =
        sharding_meshes_open(&trainer->meshes, trainer->job, trainer->W, trainer->context, err);

    if (status == FSDP_OK)
        status = models_create(&trainer->tree, trainer->job, &trainer->meshes, err);
    status = trainer_agree(trainer, status, err);
    if (status == FSDP_OK)
        fit_slices(trainer);
    trainer_hook_optimizer(trainer->tree, trainer->job, trainer);
    if (status == FSDP_OK)
        status = fsdp_model_create(&trainer->model, trainer->context, trainer->tree, &options, err);
    /* The job asks for groups that are impossible at this world size or with this model. */
    if (status == FSDP_ERR_ARG)
        status = fsdp_fail(err, FSDP_ERR_CONFIG, "%s", err->message);
    return status;
}

static enum fsdp_schedule schedule_of(enum job_schedule schedule)
{
    switch (schedule) {
    case JOB_LINEAR:
        return FSDP_LINEAR;
    case JOB_COSINE:
        return FSDP_COSINE;
    case JOB_CONSTANT:
        break;
    }
    return FSDP_CONSTANT;
}

struct fsdp_optimizer_options trainer_optimizer_options(const struct job *job)
{
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();

    options.kind = job->optimizer.kind == JOB_SGD ? FSDP_SGD : FSDP_ADAMW;
    options.lr = job->optimizer.lr;
    options.betas[0] = job->optimizer.betas[0];
    options.betas[1] = job->optimizer.betas[1];
    options.eps = job->optimizer.eps;
    options.momentum = job->optimizer.momentum;
    options.weight_decay = job->optimizer.weight_decay;
    options.decay = job->optimizer.decay == JOB_DECAY_MATRICES ? FSDP_DECAY_MATRICES : FSDP_DECAY_ALL;
    options.schedule = schedule_of(job->optimizer.schedule);
    options.warmup_steps = job->optimizer.warmup_steps;
    options.total_steps = job->train.steps;
    options.offload_dir = job->parallel.offload == JOB_OFFLOAD_NVME ? job->parallel.offload_dir : NULL;
    return options;
}

static enum fsdp_status create_optimizer(struct trainer *trainer, struct fsdp_err *err)
{
    struct fsdp_optimizer_options options = trainer_optimizer_options(trainer->job);
    char own_directory[TRAINER_PATH_BYTES + sizeof "/offload"];
    struct optimizer_groups groups;
    enum fsdp_status status;

    OK_OR_RETURN(trainer_agree(trainer, optimizer_groups_read(&groups, trainer->job, err), err));
    if (options.offload_dir != NULL && options.offload_dir[0] == '\0') {
        snprintf(own_directory, sizeof own_directory, "%s/offload", trainer->run_dir);
        options.offload_dir = own_directory;
    }
    options.groups = groups.list;
    options.n_groups = groups.n;
    status = fsdp_optimizer_create(&trainer->optimizer, trainer->model, &options, err);
    return status == FSDP_ERR_ARG ? fsdp_fail(err, FSDP_ERR_CONFIG, "%s", err->message) : status;
}

enum fsdp_status trainer_open(struct trainer *trainer, struct fsdp_context *context, const struct job *job,
                              const char *job_json, struct fsdp_err *err)
{
    *trainer = (struct trainer){
        .context = context,
        .job = job,
        .job_json = job_json,
        .rank = fsdp_context_rank(context),
        .W = fsdp_context_world_size(context),
        .data_rank = sharding_data_rank(job, fsdp_context_rank(context)),
        .data_ranks = sharding_data_ranks(job, fsdp_context_world_size(context)),
        .lock_fd = -1,
    };
    OK_OR_RETURN(trainer_agree(trainer, open_inputs(trainer, err), err));
    OK_OR_RETURN(trainer_identify_data(trainer, err));
    trainer->order = (struct order){
        .n_samples = tokens_n_samples(trainer->tokens),
        .seed = job->run.seed,
        .shuffled = job->data.order == JOB_ORDER_SHUFFLED,
    };
    OK_OR_RETURN(trainer_agree(trainer, create_model(trainer, err), err));
    return trainer_agree(trainer, create_optimizer(trainer, err), err);
}

void trainer_close(struct trainer *trainer)
{
    saver_close(trainer->saver);
    fsdp_optimizer_destroy(trainer->optimizer);
    fsdp_model_destroy(trainer->model);
    fsdp_module_destroy(trainer->tree);
    sharding_meshes_close(&trainer->meshes);
    if (trainer->context != NULL)
        context_set_checkpoint_extra(trainer->context, NULL);
    trainer_close_files(trainer);
}

#include "shard_runtime/trainer/forecast.h"

#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/trainer/models.h"
#include "shard_runtime/trainer/sharding.h"
#include "shard_runtime/trainer/trainer.h"

/*
 * Limits of what is planned. The time to plan grows with the square of the blocks; MAX_BLOCKS takes under a
 * second on one core.
 */
enum { MAX_RANKS = 1 << 20, MAX_BLOCKS = 256 };

/* The number of compute threads that the agent would give a worker on a node like this one. */
static int threads_of(const struct job *job)
{
    cpu_set_t cpus;
    int n = 1;

    if (job->launch.threads > 0)
        return (int)job->launch.threads;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        n = CPU_COUNT(&cpus) / (int)job->launch.nproc_per_node;
    return n > 0 ? n : 1;
}

static enum fsdp_status forecast_tree(struct forecast *forecast, const struct job *job,
                                      struct fsdp_module *tree, char **text, struct fsdp_err *err)
{
    const struct fsdp_model_options options = trainer_model_options(job, forecast->batch, forecast->n_micro);
    const struct fsdp_optimizer_options optimizer = trainer_optimizer_options(job);
    /* "auto" may choose the cpu, which supports every job. */
    const char *device = strcmp(job->run.device, "auto") == 0 ? "cpu" : job->run.device;
    const struct fsdp_forecast_world world = { .size = forecast->W,
                                               .device = device,
                                               .staged = strcmp(job->run.collectives, "cpu") == 0,
                                               .ranks_per_host = forecast->ranks_per_host,
                                               .threads = threads_of(job),
                                               .matmul_precision = trainer_matmul_precision(job),
                                               .n_micro = forecast->n_micro,
                                               .evaluation_batch = forecast->evaluation,
                                               .evaluation_seq =
                                                   forecast->evaluation > 0 ? job->model.seq : 0 };
    enum fsdp_status status;

    trainer_hook_optimizer(tree, job, NULL);
    forecast->n_parameters = fsdp_module_n_elems(tree);
    status = text != NULL ? fsdp_model_forecast_text(tree, &options, &optimizer, &world, text, err)
                          : fsdp_model_forecast(tree, &options, &optimizer, &world, &forecast->need, err);
    /*
     * Only building the model shows that groups of parameters are impossible. The job asked for them, so it
     * is an error of the job.
     */
    return status == FSDP_ERR_ARG ? fsdp_fail(err, FSDP_ERR_CONFIG, "%s", err->message) : status;
}

static void add_up(struct forecast *forecast)
{
    const struct fsdp_forecast *need = &forecast->need;
    const struct fsdp_forecast_apart *apart = &need->apart;
    /*
     * need->process is what the libraries take when they are loaded and have generated their code, as in a
     * worker
     */
    const size_t process = need->process;
    const size_t state = need->offloaded > 0    ? need->offloaded
                         : !forecast->on_device ? need->optimizer
                                                : apart->optimizer + apart->host_optimizer;

    forecast->snapshot = 2 * (state + (forecast->on_device ? apart->parameters + apart->host_parameters
                                                           : need->memory.parameters));
    forecast->baseline = process;
    forecast->total = need->memory.parameters + need->memory.gradients + need->optimizer +
                      need->memory.arena + need->memory.evaluation + need->staging + need->shared + process;
    if (!forecast->on_device)
        return;
    forecast->baseline = apart->context;
    forecast->total = apart->allocated + apart->collectives + apart->context;
    forecast->host_baseline = process;
    forecast->host_total = apart->host_parameters + apart->host_gradients + apart->host_optimizer +
                           apart->host_logits + apart->host_staging + need->staging + need->shared + process;
}

/* Plans the job in its world. Fills in forecast->need or, if `text` is not NULL, gives the plan as text. */
static enum fsdp_status plan_job(struct forecast *forecast, const struct job *job, uint64_t evaluation,
                                 char **text, struct fsdp_err *err)
{
    struct sharding_meshes meshes = { 0 };
    struct fsdp_module *tree = NULL;
    enum fsdp_status status;

    *forecast = (struct forecast){ .evaluation = evaluation };
    if (job->launch.nproc_per_node > MAX_RANKS || job->launch.nnodes > MAX_RANKS / job->launch.nproc_per_node)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "a world of %" PRIu64 " ranks on each of %" PRIu64 " nodes",
                         job->launch.nproc_per_node, job->launch.nnodes);
    if (job->model.layers > MAX_BLOCKS)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "model.layers: %" PRIu64 " blocks: at most %d are planned",
                         job->model.layers, (int)MAX_BLOCKS);
    if (evaluation > JOB_MAX_TOKENS / job->model.seq)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "an evaluation of %" PRIu64 " sequences of %" PRIu64 " tokens: at most %" PRIu64
                         " tokens",
                         evaluation, job->model.seq, (uint64_t)JOB_MAX_TOKENS);
    forecast->ranks_per_host = (int)job->launch.nproc_per_node;
    forecast->W = forecast->ranks_per_host * (int)job->launch.nnodes;
    status = job_split_batch(job, sharding_data_ranks(job, forecast->W), &forecast->batch, &forecast->n_micro,
                             err);
    if (status == FSDP_OK)
        status = sharding_meshes_open(&meshes, job, forecast->W, NULL, err);
    if (status == FSDP_OK)
        status = models_create(&tree, job, &meshes, err);
    if (status == FSDP_OK)
        status = forecast_tree(forecast, job, tree, text, err);
    fsdp_module_destroy(tree);
    sharding_meshes_close(&meshes);
    return status;
}

enum fsdp_status forecast_job(struct forecast *forecast, const struct job *job, uint64_t evaluation,
                              struct fsdp_err *err)
{
    OK_OR_RETURN(plan_job(forecast, job, evaluation, NULL, err));
    forecast->on_device = strcmp(job->run.device, "cuda") == 0;
    add_up(forecast);
    if (job->checkpoint.snapshot_every == 0 && (job->checkpoint.every == 0 || !job->checkpoint.async))
        forecast->snapshot = 0;
    /* each node holds those of another one */
    forecast->copies = job->launch.nnodes > 1 ? job->checkpoint.replicas * forecast->snapshot : 0;
    return FSDP_OK;
}

enum fsdp_status forecast_schedule(const struct job *job, char **text, struct fsdp_err *err)
{
    struct forecast unused;

    *text = NULL;
    return plan_job(&unused, job, 0, text, err);
}

uint64_t forecast_sent_bytes(const struct forecast *forecast)
{
    return forecast->need.all_gather.sent_bytes + forecast->need.reduce_scatter.sent_bytes +
           forecast->need.all_reduce.sent_bytes;
}

uint64_t forecast_node_bytes(const struct forecast *forecast)
{
    const size_t rank = forecast->on_device ? forecast->host_total : forecast->total;

    return (uint64_t)(rank - forecast->need.shared) * (uint64_t)forecast->ranks_per_host +
           forecast->need.node_shared;
}

/* The command `fsdprun ckpt import`, which makes a checkpoint from the weights of other programs. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/ckpt_impl.h"
#include "launcher/json_table.h"
#include "launcher/say.h"
#include "shard_runtime/ckpt/import.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/job/model_files.h"
#include "shard_runtime/job/resolve.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/weights.h"

/* The options of the command line, and the job file that one of them names. */
struct request {
    struct job job;
    bool has_job;
    char *job_json;
    struct import_options options;
};

static enum fsdp_status read_number(const struct ckpt_words *words, const char *option, uint64_t least,
                                    uint64_t most, uint64_t *out, struct fsdp_err *err)
{
    const char *text = ckpt_words_value(words, option);
    char end;

    if (text == NULL)
        return FSDP_OK;
    if (strlen(text) > 15 || text[0] < '0' || text[0] > '9' ||
        sscanf(text, "%" SCNu64 "%c", out, &end) != 1 || *out < least || *out > most)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "--%s takes a number from %" PRIu64 " to %" PRIu64 ", not %.40s", option, least,
                         most, text);
    return FSDP_OK;
}

static enum fsdp_status resolve(const char *path, struct job *job, struct fsdp_err *err)
{
    const struct job_input input = { .path = path };
    struct job_origins origins;
    struct job_report report;
    enum fsdp_status status;

    job_report_init(&report);
    status = job_resolve(job, &origins, &input, &report);
    if (status != FSDP_OK)
        fsdp_fail(err, status, "%s", report.n > 0 ? report.problems[0].line : "no memory for the job");
    job_report_fini(&report);
    return status;
}

/* Returns how many sequences all ranks read in one step, counted as the trainer counts. */
static uint64_t sequences_of(const struct job *job, uint64_t ranks)
{
    return job->train.global_batch != 0 ? job->train.global_batch
                                        : ranks / (job->parallel.tensor == 0 ? 1 : job->parallel.tensor) *
                                              job->train.batch * job->train.grad_accumulation;
}

static enum fsdp_status read_job(const struct ckpt_words *words, struct request *request,
                                 struct fsdp_err *err)
{
    static const char *const adamw[] = { "exp_avg", "exp_avg_sq" }, *const sgd[] = { "momentum_buffer" };
    const char *path = ckpt_words_value(words, "job");
    struct import_options *options = &request->options;
    const struct job *job = &request->job;

    if (path == NULL)
        return FSDP_OK;
    OK_OR_RETURN(resolve(path, &request->job, err));
    request->has_job = true;
    if (job->model.frozen != NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "%s: with model.frozen, not every parameter has a state of the optimizer; "
                         "begin from the weights with model.weights",
                         path);
    OK_OR_RETURN(job_to_json(job, &request->job_json, err));
    options->job = request->job_json;
    options->seed = job->run.seed;
    options->ranks = (uint32_t)(job->launch.nproc_per_node * job->launch.nnodes);
    /*
     * Prefixes that are removed from the names of tensors. A state dict that was saved as {"model": ...} has
     * "model." before each name. Other programs put a word of their own there.
     */
    options->names.prefixes[1] = "model.";
    options->names.prefixes[2] = job_weights_prefix(job);
    options->names.passed_over = job_weights_passed_over(job, &options->names.n_passed_over);
    options->states = job->optimizer.kind == JOB_ADAMW ? adamw : sgd;
    options->n_states = job->optimizer.kind == JOB_ADAMW ? 2 : job->optimizer.momentum > 0;
    return FSDP_OK;
}

static enum fsdp_status read_request(const struct ckpt_words *words, struct request *request,
                                     struct fsdp_err *err)
{
    struct import_options *options = &request->options;
    uint64_t step = 0, ranks;

    options->ranks = 1;
    options->names.prefixes[0] = ckpt_words_value(words, "prefix");
    OK_OR_RETURN(read_job(words, request, err));
    ranks = options->ranks == 0 ? 1 : options->ranks;
    OK_OR_RETURN(read_number(words, "ranks", 1, MANIFEST_MAX_WORLD, &ranks, err));
    OK_OR_RETURN(read_number(words, "step", 0, 99999999, &step, err));
    options->step = (int64_t)step;
    options->ranks = (uint32_t)ranks;
    if (request->has_job)
        options->cursor = step * sequences_of(&request->job, request->job.launch.nproc_per_node *
                                                                 request->job.launch.nnodes);
    return FSDP_OK;
}

static enum fsdp_status import(const struct ckpt_words *words, const struct request *request,
                               struct import_result *result, char path[IO_PATH_BYTES], struct fsdp_err *err)
{
    char source_directory[IO_PATH_BYTES], directory[IO_PATH_BYTES];
    struct contents source;
    struct ckpt_lock lock = { 0 };
    enum fsdp_status status = weights_list(&io_anywhere, words->paths[0], &source, source_directory, err);

    if (status == FSDP_OK)
        status = io_join(directory, words->paths[1], "checkpoints", err);
    if (status == FSDP_OK)
        status = commit_step_path(directory, request->options.step, path, err);
    if (status == FSDP_OK)
        status = io_make_directories(&io_anywhere, directory, err);
    if (status == FSDP_OK)
        status = ckpt_lock_run(&lock, directory, err);
    if (status == FSDP_OK)
        status = import_tensors(&io_anywhere, &source, source_directory, directory, &request->options, result,
                                err);
    ckpt_unlock_run(&lock);
    contents_free(&source);
    return status;
}

int ckpt_import(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    struct request request = { 0 };
    struct import_result result;
    char path[IO_PATH_BYTES];
    enum fsdp_status status = read_request(words, &request, err);
    int ended = status == FSDP_ERR_CONFIG && !request.has_job && ckpt_words_value(words, "job") != NULL
                    ? FSDP_EXIT_CONFIG /* the job file cannot be used */
                : status == FSDP_ERR_CONFIG ? FSDP_EXIT_USAGE
                                            : ckpt_exit_status(status);

    if (status == FSDP_OK) {
        status = import(words, &request, &result, path, err);
        ended = status == FSDP_ERR_CONFIG ? FSDP_EXIT_USAGE : ckpt_exit_status(status);
    }
    if (status == FSDP_OK) {
        say(out, "imported %zu weights and %zu states of the optimizer to %s, %.1f MiB", result.n_weights,
            result.n_states, path, (double)result.bytes / 1048576);
        if (result.n_zeroed > 0)
            fprintf(out, "%zu states of the optimizer begin at zero\n", result.n_zeroed);
        if (result.n_passed_over > 0)
            fprintf(out, "%zu tensors are no weights, and were passed over\n", result.n_passed_over);
        ended = json_written(out);
    }
    if (request.has_job)
        job_free(&request.job);
    free(request.job_json);
    return ended;
}

#include "shard_runtime/trainer/generate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <fsdp/fsdp.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/job/job.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/manifest.h"
#include "shard_runtime/shardfile/verify.h"
#include "shard_runtime/trainer/models.h"
#include "shard_runtime/trainer/sharding.h"

enum { BYTE_CLASSES = 256 };

struct writer {
    struct job job;
    char directory[IO_PATH_BYTES]; /* the directory that has the step-... directories */
    int64_t step;
    struct fsdp_module *tree;
    struct fsdp_model *model;
};

/*
 * Place of class `which` by its logit: how many classes have a larger logit, or an equal one and a lower
 * index.
 */
static uint64_t place_of(const float *logits, uint64_t n_classes, uint64_t which)
{
    uint64_t place = 0;

    for (uint64_t c = 0; c < n_classes; c++)
        place += logits[c] > logits[which] || (c < which && logits[c] == logits[which]);
    return place;
}

uint32_t generate_choose(const float *logits, uint64_t n_classes, double temperature, uint64_t top_k,
                         double u)
{
    uint64_t best = 0;
    double total = 0, sum = 0;

    for (uint64_t c = 1; c < n_classes; c++)
        if (logits[c] > logits[best])
            best = c;
    if (temperature == 0)
        return (uint32_t)best;
    for (int pass = 0; pass < 2;
         pass++) { /* pass 0 finds the total; pass 1 finds the class at which the sum exceeds u * total */
        for (uint64_t c = 0; c < n_classes; c++) {
            if (top_k > 0 && place_of(logits, n_classes, c) >= top_k)
                continue;
            sum += exp(((double)logits[c] - (double)logits[best]) / temperature);
            if (pass == 1 && sum > u * total)
                return (uint32_t)c;
        }
        total = sum;
        sum = 0;
    }
    return (uint32_t)best; /* u is so close to 1 that, after rounding, no sum exceeded u * total */
}

static bool is_directory(const char *path)
{
    struct io_stat info;

    return io_anywhere.stat(&io_anywhere, path, &info) == 0 && info.kind == IO_DIRECTORY;
}

/*
 * Finds the checkpoint that `path` names: a checkpoint (step-00000050), the directory of checkpoints, or a
 * run directory.
 */
static enum fsdp_status find_checkpoint(struct writer *writer, const char *path, struct fsdp_err *err)
{
    char text[IO_PATH_BYTES];
    size_t length = strlen(path);
    const char *name;
    int n;

    while (length > 1 && path[length - 1] == '/')
        length--;
    n = snprintf(text, sizeof text, "%.*s", (int)length, path);
    if (n < 0 || (size_t)n >= sizeof text)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "the path of the checkpoint is too long");
    if (!is_directory(text))
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "%s: no such directory", text);
    name = strrchr(text, '/') == NULL ? text : strrchr(text, '/') + 1;
    writer->step = commit_parse_step(name);
    if (writer->step >= 0) {
        snprintf(writer->directory, sizeof writer->directory, "%.*s", (int)(name - text), text);
        if (name == text)
            snprintf(writer->directory, sizeof writer->directory, ".");
        return FSDP_OK;
    }
    n = snprintf(writer->directory, sizeof writer->directory, "%s/checkpoints", text);
    if (n < 0 || (size_t)n >= sizeof writer->directory || !is_directory(writer->directory))
        snprintf(writer->directory, sizeof writer->directory, "%s", text);
    if (verify_newest(&io_anywhere, writer->directory, VERIFY_STRUCTURE, &writer->step, NULL, err) != FSDP_OK)
        return err != NULL ? err->status : FSDP_ERR_FORMAT;
    if (writer->step < 0)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "%s: no checkpoint there", path);
    return FSDP_OK;
}

static enum fsdp_status read_job(struct writer *writer, struct fsdp_err *err)
{
    char path[IO_PATH_BYTES];
    struct manifest manifest = { 0 };
    enum fsdp_status status = commit_step_path(writer->directory, writer->step, path, err);

    if (status == FSDP_OK)
        status = manifest_read(&io_anywhere, path, &manifest, err);
    if (status == FSDP_OK && manifest.job == NULL)
        status = fsdp_fail(err, FSDP_ERR_FORMAT, "%s does not say of which job it is", path);
    if (status == FSDP_OK) {
        status = job_from_json(&writer->job, manifest.job, manifest.job_length, err);
        if (status != FSDP_OK)
            fsdp_wrap(err, "the job in %s", path);
    }
    manifest_free(&manifest);
    return status;
}

static enum fsdp_status load_model(struct writer *writer, struct fsdp_context *context, struct fsdp_err *err)
{
    const struct fsdp_model_options options = { .seq = writer->job.model.seq, .seed = writer->job.run.seed };
    struct fsdp_checkpoint_state state;

    if (!writer->job.model.causal)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "a model with model.causal false does not write text");
    OK_OR_RETURN(models_create(&writer->tree, &writer->job, NULL, err));
    /* The job's numbers for reshard_after_forward were chosen for the number of ranks that train. */
    (void)sharding_fit_slices(writer->tree, fsdp_context_world_size(context));
    OK_OR_RETURN(fsdp_model_create(&writer->model, context, writer->tree, &options, err));
    OK_OR_RETURN(fsdp_model_prepare_evaluation(writer->model, 1, writer->job.model.seq, err));
    return fsdp_checkpoint_load(writer->model, NULL, writer->directory, writer->step, &state, err);
}

/*
 * Appends the next token after tokens 0 .. *n - 1. The model sees the last seq of them. Later positions of
 * its window may hold any value, because the model is causal and masks them.
 */
static enum fsdp_status append_token(struct writer *writer, const struct options *options, int32_t *tokens,
                                     uint64_t *n, struct fsdp_err *err)
{
    const uint64_t seq = writer->job.model.seq, vocab = writer->job.model.vocab;
    const uint64_t first = *n > seq ? *n - seq : 0;
    /* only classes that stand for a byte are chosen */
    const uint64_t n_classes = vocab < BYTE_CLASSES ? vocab : BYTE_CLASSES;
    const float *logits;
    struct fsdp_loss loss;
    uint32_t words[4];

    OK_OR_RETURN(fsdp_model_evaluate(writer->model, tokens + first, NULL, &logits, &loss, err));
    rng_philox(rng_key(options->seed, "sample"), 0, *n, words);
    tokens[*n] = (int32_t)generate_choose(logits + (*n - first - 1) * vocab, n_classes, options->temperature,
                                          options->top_k, (double)words[0] * 0x1p-32);
    ++*n;
    return FSDP_OK;
}

static void write_byte(FILE *out, int32_t token, bool terminal)
{
    const bool plain = token == '\n' || token == '\t' || (token >= ' ' && token < 0x7f);

    (void)fputc(plain || !terminal ? (int)token : '?', out);
}

static enum fsdp_status write_text(struct writer *writer, const struct options *options, FILE *out,
                                   struct fsdp_err *err)
{
    const char *prompt = options->prompt[0] != '\0' ? options->prompt : "\n";
    const bool terminal = isatty(fileno(out)) == 1;
    uint64_t n = strlen(prompt);
    const uint64_t end = n + options->tokens;
    enum fsdp_status status = FSDP_OK;
    int32_t *tokens;

    if (options->tokens > (UINT64_MAX >> 8) - n)
        return fsdp_fail(err, FSDP_ERR_ARG, "--tokens %llu is too much", (unsigned long long)options->tokens);
    /* the model's window extends past the last token */
    tokens = calloc(end + writer->job.model.seq, sizeof *tokens);
    if (tokens == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %llu tokens", (unsigned long long)end);
    for (uint64_t i = 0; i < n; i++) {
        tokens[i] = (unsigned char)prompt[i];
        write_byte(out, tokens[i], terminal);
    }
    while (status == FSDP_OK && n < end && !ferror(out)) { /* stop if the reader of the output is gone */
        status = append_token(writer, options, tokens, &n, err);
        if (status == FSDP_OK)
            write_byte(out, tokens[n - 1], terminal);
        (void)fflush(out);
    }
    (void)fputc('\n', out);
    if (status == FSDP_OK && (fflush(out) != 0 || ferror(out)))
        status = fsdp_fail(err, FSDP_ERR_IO, "writing the text failed");
    free(tokens);
    return status;
}

enum fsdp_status generate(struct fsdp_context *context, const struct options *options, FILE *out,
                          struct fsdp_err *err)
{
    struct writer writer = { .step = -1 };
    enum fsdp_status status;

    status = find_checkpoint(&writer, options->sample, err);
    if (status == FSDP_OK)
        status = read_job(&writer, err);
    if (status == FSDP_OK)
        status = load_model(&writer, context, err);
    if (status == FSDP_OK)
        status = write_text(&writer, options, out, err);
    fsdp_model_destroy(writer.model);
    fsdp_module_destroy(writer.tree);
    job_free(&writer.job);
    return status;
}

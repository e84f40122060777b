/*
 * A program of the C API that does what its arguments say, one after the other, on every rank; links libfsdp:
 *
 *   steps=N        train until N steps are done; rank 0 prints "step N loss L" for each, L with all its
 *                  digits
 *   save=DIR       save the step; DIR "-": NULL, the run directory's
 *   load=DIR:STEP  load that step (-1: the newest) and go on from it; rank 0 prints "loaded STEP"
 *   keep=N         of the saves that follow
 *   kill=RANK      that rank kills itself; the others wait for it in a collective
 *   touch=FILE     rank 0 creates FILE
 *   await=FILE     rank 0 goes on when FILE is there, or after ten minutes
 *
 * A failure prints "rank R: save=DIR: words" on stderr and ends with 1. With "!" in front of it a word must
 * fail: its words are printed, and the program goes on; else it ends with 3. When a rank is gone it ends with
 * FSDP_EXIT_PEER. Needs nothing but the installed headers.
 */
#include <fsdp/fsdp.h>

#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BATCH = 2, SEQ = 4, VOCAB = 13, DIM = 12 };

static struct fsdp_context *context;
static struct fsdp_model *model;
static struct fsdp_optimizer *optimizer;
static struct fsdp_err err;
static uint64_t done;
static uint32_t keep;

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "output"),
                     fsdp_call(fsdp_module_child(self, "embedding"), tokens));
}

static enum fsdp_status begin(void)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = SEQ, .seed = 7 };
    const struct fsdp_optimizer_options adamw = fsdp_optimizer_defaults();
    struct fsdp_module *root = fsdp_module_create(forward, NULL);

    fsdp_embedding(root, "embedding", VOCAB, DIM);
    fsdp_linear(root, "output", DIM, VOCAB, true);
    if (fsdp_context_create(&context, NULL, &err) == FSDP_OK &&
        fsdp_fully_shard(root, NULL, &err) == FSDP_OK &&
        fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK)
        fsdp_optimizer_create(&optimizer, model, &adamw, &err);
    return err.status;
}

static enum fsdp_status train(uint64_t steps)
{
    const uint64_t rank = (uint64_t)fsdp_context_rank(context),
                   W = (uint64_t)fsdp_context_world_size(context);
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];

    for (; done < steps; done++) {
        const uint64_t first = (done * W + rank) * BATCH;
        const struct fsdp_batch micro = { .input = tokens, .targets = targets, .first_sample = first };
        struct fsdp_loss loss;

        for (uint64_t i = 0; i < BATCH * SEQ; i++) {
            tokens[i] = (int32_t)((first * 5 + i * i * 7) % VOCAB);
            targets[i] = (tokens[i] * 3 + 1) % VOCAB;
        }
        if (fsdp_model_forward_backward(model, &micro, 1, &loss, &err) != FSDP_OK ||
            fsdp_optimizer_step(optimizer, &err) != FSDP_OK)
            return err.status;
        if (rank == 0)
            printf("step %" PRIu64 " loss %.17g\n", done + 1, loss.mean);
    }
    return FSDP_OK;
}

static const char *directory_of(const char *text)
{
    return strcmp(text, "-") == 0 ? NULL : text;
}

static enum fsdp_status save(const char *text)
{
    const struct fsdp_checkpoint_state state = { .step = done, .cursor = done * BATCH, .seed = 7 };

    return fsdp_checkpoint_save(model, optimizer, directory_of(text), &state, keep, NULL, &err);
}

static enum fsdp_status load(const char *text)
{
    struct fsdp_checkpoint_state state;
    char directory[4096];
    const char *colon = strrchr(text, ':');

    snprintf(directory, sizeof directory, "%.*s", (int)(colon - text), text);
    if (fsdp_checkpoint_load(model, optimizer, directory_of(directory), strtoll(colon + 1, NULL, 10), &state,
                             &err) != FSDP_OK)
        return err.status;
    done = state.step;
    if (fsdp_context_rank(context) == 0)
        printf("loaded %" PRIu64 "\n", done);
    return FSDP_OK;
}

static enum fsdp_status end_rank(int rank)
{
    if (fsdp_context_rank(context) == rank)
        raise(SIGKILL);
    return train(done + 1);
}

static void touch(const char *path)
{
    const int fd = fsdp_context_rank(context) == 0 ? open(path, O_WRONLY | O_CREAT, 0666) : -1;

    if (fd >= 0)
        close(fd);
}

static void await(const char *path)
{
    for (int tries = 0; fsdp_context_rank(context) == 0 && access(path, F_OK) < 0 && tries < 30000; tries++)
        usleep(20000);
}

static enum fsdp_status perform(const char *word)
{
    const char *value = strchr(word, '=');
    const size_t length = value == NULL ? strlen(word) : (size_t)(value - word);

#define IS(name) (length == strlen(name) && strncmp(word, name, length) == 0)
    err.status = FSDP_OK;
    value = value == NULL ? "" : value + 1;
    if (IS("steps"))
        return train(strtoull(value, NULL, 10));
    if (IS("save"))
        return save(value);
    if (IS("load"))
        return load(value);
    if (IS("kill"))
        return end_rank(atoi(value));
    if (IS("keep"))
        keep = (uint32_t)atoi(value);
    else if (IS("touch"))
        touch(value);
    else if (IS("await"))
        await(value);
    else
        exit(2);
    return FSDP_OK;
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (begin() != FSDP_OK) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    for (int i = 1; i < argc; i++) {
        const bool must_fail = argv[i][0] == '!';
        const enum fsdp_status status = perform(argv[i] + must_fail);

        if (status != FSDP_OK)
            fprintf(stderr, "rank %d: %s: %s\n", fsdp_context_rank(context), argv[i] + must_fail,
                    err.message);
        if ((status != FSDP_OK) != must_fail)
            return must_fail ? 3 : status == FSDP_ERR_PEER ? FSDP_EXIT_PEER : 1;
    }
    return 0;
}

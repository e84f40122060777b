/*
 * create_model HOW DIRECTORY THREADS: what a program pays before its first step, in seconds on stdout. It
 * uses the public API alone and is linked with libfsdp.so, so that LD_LIBRARY_PATH chooses the build that is
 * measured.
 *
 *   save    create a model of 128 Mi parameters and save its weights in DIRECTORY, as step 1
 *   create  create it
 *   draw    create it and have every value
 *   load    create it and load step 1 of DIRECTORY
 */
#include <fsdp/fsdp.h>

#include "tests/bench/bench.h"

enum { LAYERS = 8, WIDE = 4096 };

static void check(enum fsdp_status status, const struct fsdp_err *err)
{
    errno = 0;
    if (status != FSDP_OK)
        bench_die(err->message);
}

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    for (size_t i = 0; i < fsdp_module_child_count(self); i++)
        x = fsdp_call(fsdp_module_child_at(self, i), x);
    return x;
}

int main(int argc, char **argv)
{
    const struct fsdp_model_options options = { .batch = 1, .seq = 1, .input_features = WIDE };
    struct fsdp_checkpoint_state state = { .step = 1 };
    struct fsdp_tensor_shard shards[LAYERS];
    struct fsdp_context_options how = { 0 };
    struct fsdp_context *context;
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    struct fsdp_err err = { 0 };
    struct fsdp_model *model;
    double start, end;
    char name[8];

    if (argc != 4) {
        fprintf(stderr, "usage: create_model save|create|draw|load DIRECTORY THREADS\n");
        return 2;
    }
    how.threads = atoi(argv[3]);
    for (int i = 0; i < LAYERS; i++) {
        snprintf(name, sizeof name, "l%d", i);
        fsdp_linear(root, name, WIDE, WIDE, false);
    }
    check(fsdp_fully_shard(root, NULL, &err), &err);
    check(fsdp_context_create(&context, &how, &err), &err);
    start = bench_now();
    check(fsdp_model_create(&model, context, root, &options, &err), &err);
    if (strcmp(argv[1], "draw") == 0)
        fsdp_model_state(model, shards);
    if (strcmp(argv[1], "load") == 0)
        check(fsdp_checkpoint_load(model, NULL, argv[2], 1, &state, &err), &err);
    end = bench_now();
    if (strcmp(argv[1], "save") == 0)
        check(fsdp_checkpoint_save(model, NULL, argv[2], &state, 0, NULL, &err), &err);
    printf("%.6f\n", end - start);
    fsdp_model_destroy(model);
    fsdp_context_destroy(context);
    fsdp_module_destroy(root);
    return 0;
}

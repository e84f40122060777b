/*
 * One rank fails alone in a collective entry point outside a step: a bad argument, no memory, a file that it
 * cannot read. All ranks come back, with one status; the words of every other rank name the one that failed;
 * and the same call then succeeds. Steps have tests of their own (test_lone_failure.c), real processes too
 * (tests/system/test_lone_failure.sh).
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/engine/model.h"
#include "tests/unit/engine/rig.h"
#include "tests/unit/shardfile/files.h"

enum { ELEMS = 19 * 12 };

static const char *directory;

struct scene {
    struct rig rig;
    struct fsdp_device_mesh *all;
    struct fsdp_device_mesh *mesh; /* of the model's ranks; of 4 two replicas */
    int first_rank;                /* of the model */
    struct fsdp_module *unused;    /* a tree that no model is made of */
};

/* A call succeeds on every rank; with `bad` it is this rank's that must fail, in this way. */
enum bad { SOUND, BAD, ABSENT, OTHER };

struct entry {
    const char *name;
    enum fsdp_status (*call)(struct scene *scene, enum bad bad, struct fsdp_err *err);
    enum bad bad;
    enum fsdp_status expected; /* of a bad call; FSDP_OK: it cannot be called badly */
    const char *words;
    enum { ALLOCATES = 1, OVERLAPS } how; /* the second: in a model with a second thread */
};

static enum fsdp_status gather_value(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    static const char *const names[] = { "output.weight", "outptu.weight", NULL };
    float whole[ELEMS];

    return fsdp_parameter_gather(s->rig.model, names[bad], FSDP_VALUE, whole, ELEMS, err);
}

static enum fsdp_status gather_gradient(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    float whole[ELEMS];

    return fsdp_parameter_gather(s->rig.model, "output.weight", FSDP_GRADIENT, whole, bad ? 3 : ELEMS, err);
}

static enum fsdp_status get_full(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_full_state_dict state;
    const enum fsdp_status status = fsdp_get_full_state_dict(s->rig.model, &state, err);

    (void)bad;
    if (status == FSDP_OK)
        fsdp_full_state_dict_fini(&state);
    return status;
}

static enum fsdp_status set_full(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_full_state_dict state = { 0 };
    const size_t n = (size_t)s->rig.model->layout.n_params;
    enum fsdp_status status;

    if (s->rig.context->rank == s->first_rank) {
        struct fsdp_full_tensor *tensors = calloc(n, sizeof *tensors);

        for (size_t i = 0; i < n; i++) {
            const struct fsdp_parameter *parameter = s->rig.model->layout.params[i].parameter;

            tensors[i] = (struct fsdp_full_tensor){ .name = parameter->name,
                                                    .n_dims = parameter->n_dims,
                                                    .n_elems = parameter->whole_elems,
                                                    .data = calloc(parameter->whole_elems, sizeof(float)) };
            memcpy(tensors[i].shape, parameter->whole_shape, sizeof tensors[i].shape);
        }
        state = (struct fsdp_full_state_dict){ tensors, n };
    }
    (void)bad;
    status = fsdp_set_full_state_dict(s->rig.model, &state, err);
    for (size_t i = 0; i < state.n_tensors; i++)
        free(state.tensors[i].data);
    free(state.tensors);
    return status;
}

static enum fsdp_status load_weights(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_load_report report;
    enum fsdp_status status;
    char path[96];

    snprintf(path, sizeof path, "%s/%s", directory, bad == BAD ? "not-there" : "step-00000003");
    status = fsdp_model_load_weights(s->rig.model, bad == ABSENT ? NULL : path, false, &report, err);
    fsdp_load_report_fini(&report);
    return status;
}

static enum fsdp_status load_checkpoint(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_checkpoint_state state;

    return fsdp_checkpoint_load(s->rig.model, s->rig.optimizer, bad ? "/not/there" : directory, 3, &state,
                                err);
}

/* Ranks that are told to save different steps wait for different verdicts; nothing is saved here. */
static enum fsdp_status save(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    const struct fsdp_checkpoint_state state = { .step = 4 + (uint64_t)s->rig.context->rank };
    enum fsdp_status status;

    alloc_fail_nth(bad == BAD ? 2 : 0);
    status = fsdp_checkpoint_save(s->rig.model, s->rig.optimizer, directory, bad == ABSENT ? NULL : &state, 0,
                                  NULL, err);
    alloc_fail_nth(0);
    return bad || status != FSDP_ERR_MISMATCH || strstr(err->message, "different steps") == NULL ? status
                                                                                                 : FSDP_OK;
}

static enum fsdp_status prepare_evaluation(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    return fsdp_model_prepare_evaluation(s->rig.model, bad ? 0 : 2, 6, err);
}

static enum fsdp_status evaluate(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    int32_t tokens[2 * 6];

    memcpy(tokens, s->rig.tokens, sizeof tokens);
    tokens[3] = bad == OTHER ? 19 : tokens[3];
    return fsdp_model_evaluate(s->rig.model, bad == BAD ? NULL : tokens, s->rig.targets, NULL,
                               bad == ABSENT ? NULL : &s->rig.loss, err);
}

static enum fsdp_status clip(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    double norm;

    return fsdp_clip_grad_norm(s->rig.model, bad ? -1 : 0, &norm, err);
}

static enum fsdp_status clip_largest(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    double norm;

    return fsdp_clip_grad_norm_of(s->rig.model, 0, bad ? 0.5 : INFINITY, &norm, err);
}

static enum fsdp_status forward_backward(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_batch batch = s->rig.micro[0];

    batch.input = bad == OTHER ? NULL : batch.input;
    return fsdp_model_forward_backward(s->rig.model, bad == ABSENT ? NULL : &batch, bad == BAD ? 0 : 1,
                                       &s->rig.loss, err);
}

static enum fsdp_status forward_backward_in_parts(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    enum fsdp_status status;

    fsdp_module_set_is_last_backward(s->rig.model, !bad); /* the model does not accumulate */
    status = forward_backward(s, SOUND, err);
    fsdp_module_set_is_last_backward(s->rig.model, true);
    return status;
}

static enum fsdp_status halves(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_batch batch = s->rig.micro[0];
    enum fsdp_status status;

    batch.targets = bad ? NULL : batch.targets;
    status = fsdp_model_forward(s->rig.model, &batch, &s->rig.loss, err);
    return status == FSDP_OK ? fsdp_model_backward(s->rig.model, err) : status;
}

static enum fsdp_status unshard(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_module *root = s->rig.root;
    const enum fsdp_status status =
        fsdp_module_unshard(s->rig.model, bad ? fsdp_module_child(root, "norm") : root, false, NULL, err);

    fsdp_module_reshard(s->rig.model, root);
    return status;
}

static enum fsdp_status unshard_later(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_unshard_handle *handle;
    enum fsdp_status status = fsdp_module_unshard(s->rig.model, bad ? NULL : s->rig.root, true, &handle, err);

    if (status == FSDP_OK)
        status = fsdp_unshard_handle_wait(handle, err);
    fsdp_module_reshard(s->rig.model, s->rig.root);
    return status;
}

static enum fsdp_status make_mesh(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    static const char *const names[] = { "b", "c" };
    const int sizes[] = { bad ? 3 : 2, s->rig.context->W / 2 };
    struct fsdp_device_mesh *mesh = NULL, *flat = NULL;
    enum fsdp_status status =
        fsdp_init_device_mesh(&mesh, s->rig.context, 2, bad == ABSENT ? NULL : sizes, names, err);

    if (status == FSDP_OK)
        status = fsdp_device_mesh_flatten(&flat, mesh, "flat", err);
    fsdp_device_mesh_destroy(flat);
    fsdp_device_mesh_destroy(mesh);
    return status;
}

static enum fsdp_status flatten(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_device_mesh *flat = NULL;
    const enum fsdp_status status = fsdp_device_mesh_flatten(
        &flat, s->mesh, bad ? "a name of more letters than a dimension may have" : "flat", err);

    fsdp_device_mesh_destroy(flat);
    return status;
}

static enum fsdp_status make_model(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    const struct fsdp_model_options options = { .batch = 2, .seq = bad == BAD ? 0 : 6, .seed = 3 };
    struct fsdp_model *model = NULL;
    const enum fsdp_status status = fsdp_model_create(
        &model, s->rig.context, bad == OTHER ? s->rig.root : s->unused, bad == ABSENT ? NULL : &options, err);

    fsdp_model_destroy(model);
    return status;
}

static struct fsdp_value *call_linear(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "linear"), x);
}

/* The root fails to be sharded over the model's ranks, and the model is created all the same. */
static enum fsdp_status make_model_unsharded(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    const struct fsdp_model_options options = { .batch = 2, .seq = 6, .input_features = 4 };
    const struct fsdp_fully_shard_options sharding = { .mesh = s->mesh,
                                                       .reshard_after_forward =
                                                           bad ? FSDP_RESHARD_TO : FSDP_RESHARD_AUTO };
    struct fsdp_module *root = fsdp_module_create(call_linear, NULL);
    struct fsdp_model *model = NULL;
    enum fsdp_status status;

    fsdp_linear(root, "linear", 4, 5, true);
    (void)fsdp_fully_shard(root, &sharding, NULL);
    status = fsdp_model_create(&model, s->rig.context, root, &options, err);
    world_drop(NULL, model, root);
    return status;
}

static enum fsdp_status make_optimizer(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer = NULL;
    enum fsdp_status status;

    options.lr = bad ? -1 : options.lr;
    status = fsdp_optimizer_create(&optimizer, s->rig.model, &options, err);
    fsdp_optimizer_destroy(optimizer);
    return status;
}

static ssize_t refuse_write(struct fsdp_io *io, int fd, const void *bytes, size_t size_bytes, uint64_t offset)
{
    (void)io, (void)fd, (void)bytes, (void)size_bytes, (void)offset;
    errno = ENOSPC;
    return -1;
}

static double no_rate(uint64_t step, void *user)
{
    (void)step, (void)user;
    return NAN;
}

/* The state of the optimizer is in a file. Bad: its disk is full; absent: there is no learning rate. */
static enum fsdp_status step_on_disk(struct scene *s, enum bad bad, struct fsdp_err *err)
{
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();
    struct fsdp_io *io = context_files(s->rig.context), sound = *io;
    struct fsdp_optimizer *optimizer;
    enum fsdp_status status;

    options.offload_dir = BUILD_DIR;
    must(fsdp_optimizer_create(&optimizer, s->rig.model, &options, err), err);
    must(forward_backward(s, SOUND, err), err);
    io->pwrite = bad == BAD ? refuse_write : sound.pwrite;
    if (bad == ABSENT)
        fsdp_optimizer_set_lr_lambda(optimizer, no_rate, NULL);
    status = fsdp_optimizer_step(optimizer, err);
    *io = sound;
    fsdp_optimizer_destroy(optimizer);
    return status;
}

static const struct entry entries[] = {
    { "fsdp_parameter_gather", gather_value, BAD, FSDP_ERR_ARG, "outptu.weight", ALLOCATES },
    { "fsdp_parameter_gather of a gradient", gather_gradient, BAD, FSDP_ERR_ARG, "elements, not 3", 0 },
    { "fsdp_get_full_state_dict", get_full, SOUND, FSDP_OK, NULL, ALLOCATES },
    { "fsdp_set_full_state_dict", set_full, SOUND, FSDP_OK, NULL, ALLOCATES },
    { "fsdp_model_load_weights", load_weights, BAD, FSDP_ERR_NOT_FOUND, "not-there", ALLOCATES },
    { "fsdp_checkpoint_load", load_checkpoint, BAD, FSDP_ERR_NOT_FOUND, "/not/there", ALLOCATES },
    { "fsdp_checkpoint_save", save, BAD, FSDP_ERR_NOMEM, "out of memory", 0 },
    { "fsdp_model_prepare_evaluation", prepare_evaluation, BAD, FSDP_ERR_ARG, "0 samples", ALLOCATES },
    { "fsdp_model_evaluate", evaluate, BAD, FSDP_ERR_ARG, "without input", ALLOCATES },
    { "fsdp_model_evaluate without a loss", evaluate, ABSENT, FSDP_ERR_ARG, "place for its loss", 0 },
    { "fsdp_model_evaluate of a token", evaluate, OTHER, FSDP_ERR_ARG, "token 19 is not in the embedding",
      0 },
    { "fsdp_clip_grad_norm", clip, BAD, FSDP_ERR_ARG, "max_norm", 0 },
    { "fsdp_clip_grad_norm_of", clip_largest, BAD, FSDP_ERR_ARG, "norm_type", 0 },
    { "fsdp_model_forward_backward", forward_backward, BAD, FSDP_ERR_ARG, "0 batches", 0 },
    { "fsdp_model_forward_backward of no input", forward_backward, OTHER, FSDP_ERR_ARG, "has no input", 0 },
    { "fsdp_module_set_is_last_backward", forward_backward_in_parts, BAD, FSDP_ERR_ARG, "not the step's last",
      0 },
    { "fsdp_model_forward", halves, BAD, FSDP_ERR_ARG, "no targets", 0 },
    { "fsdp_module_unshard", unshard, BAD, FSDP_ERR_ARG, "no unit", ALLOCATES },
    { "fsdp_module_unshard in the background", unshard_later, BAD, FSDP_ERR_ARG, "no unit", OVERLAPS },
    { "fsdp_init_device_mesh", make_mesh, BAD, FSDP_ERR_ARG, "in a world of", ALLOCATES },
    { "fsdp_device_mesh_flatten", flatten, BAD, FSDP_ERR_ARG, "letters", ALLOCATES },
    { "fsdp_model_create", make_model, BAD, FSDP_ERR_ARG, "seq of at least 1", ALLOCATES },
    { "fsdp_optimizer_create", make_optimizer, BAD, FSDP_ERR_ARG, "lr", ALLOCATES },
    { "fsdp_parameter_gather of NULL", gather_value, ABSENT, FSDP_ERR_ARG, "name is NULL", 0 },
    { "fsdp_model_load_weights of NULL", load_weights, ABSENT, FSDP_ERR_ARG, "path is NULL", 0 },
    { "fsdp_checkpoint_save of NULL", save, ABSENT, FSDP_ERR_ARG, "state is NULL", 0 },
    { "fsdp_model_forward_backward of NULL", forward_backward, ABSENT, FSDP_ERR_ARG, "no batch", 0 },
    { "fsdp_init_device_mesh of NULL", make_mesh, ABSENT, FSDP_ERR_ARG, "sizes is NULL", 0 },
    { "fsdp_model_create again", make_model, OTHER, FSDP_ERR_ARG, "made of this tree already", 0 },
    { "fsdp_fully_shard", make_model_unsharded, BAD, FSDP_ERR_ARG, "resharded to 0 ranks", 0 },
    { "fsdp_model_create of NULL", make_model, ABSENT, FSDP_ERR_ARG, "options is NULL", 0 },
    { "fsdp_optimizer_step with a file", step_on_disk, BAD, FSDP_ERR_IO, "", 0 },
    { "fsdp_optimizer_set_lr_lambda", step_on_disk, ABSENT, FSDP_ERR_ARG, "", 0 },
};

static void open_meshes(struct scene *s, struct fsdp_context *context, int n_parts)
{
    static const char *const names[] = { "part", "replicate", "shard" };
    const int W = context->W / n_parts, R = W == 4 ? 2 : 1, sizes[] = { n_parts, R, W / R };
    struct fsdp_err err = { 0 };

    *s = (struct scene){ 0 };
    rig_init(&s->rig, context);
    must(fsdp_init_device_mesh(&s->all, context, 3, sizes, names, &err), &err);
    must(fsdp_device_mesh_slice(&s->mesh, s->all, &names[1], 2, &err), &err);
    s->first_rank = context->rank - context->rank % W;
    s->rig.tiny.mesh = s->mesh;
}

static void open_model(struct scene *s, bool overlaps)
{
    struct rig *rig = &s->rig;

    rig->options.overlap = overlaps ? FSDP_OVERLAP_ON : FSDP_OVERLAP_OFF;
    rig_open(rig);
    s->unused = tiny_build(&rig->tiny, NULL);
    rig_fill(rig, 0);
    must(fsdp_model_prepare_evaluation(rig->model, 2, 6, &rig->err), &rig->err);
    must(rig_run(rig), &rig->err);
}

static void close_scene(struct scene *s)
{
    rig_close(&s->rig);
    fsdp_module_destroy(s->unused);
    fsdp_device_mesh_destroy(s->mesh);
    fsdp_device_mesh_destroy(s->all);
}

struct lone {
    int victim;
    const struct entry *entry;
    int n_parts; /* of the world: the model is of the victim's, and the other ranks call nothing */
};

/* As each rank that shares the model with the victim: what `lone` says. */
static void among_its_ranks(struct fsdp_context *context, const struct lone *lone,
                            void (*body)(struct scene *scene, const struct lone *lone))
{
    const int n = context->W / lone->n_parts;
    struct scene s;

    open_meshes(&s, context, lone->n_parts);
    if (context->rank / n == lone->victim / n) {
        open_model(&s, lone->entry->how == OVERLAPS);
        body(&s, lone);
    }
    close_scene(&s);
}

static void expect_told(const struct scene *s, const struct lone *lone, enum fsdp_status status,
                        enum fsdp_status expected, const char *words, const struct fsdp_err *err)
{
    const int rank = s->rig.context->rank;
    char prefix[24];

    snprintf(prefix, sizeof prefix, "rank %d: ", lone->victim);
    cr_expect(status == expected, "%s, rank %d: %s", lone->entry->name, rank,
              status == FSDP_OK ? "nothing failed" : err->message);
    cr_expect_not_null(strstr(err->message, words), "%s, rank %d: %s", lone->entry->name, rank, err->message);
    cr_expect((strncmp(err->message, prefix, strlen(prefix)) == 0) == (rank != lone->victim),
              "%s, rank %d: %s", lone->entry->name, rank, err->message);
}

/* Step 3, for the entries that load. */
static void save_step(struct fsdp_context *context, void *user)
{
    const struct fsdp_checkpoint_state state = { .step = 3 };
    struct rig rig;

    (void)user;
    rig_start(&rig, context);
    must(rig_backward(&rig, 0, RIG_IN_ONE_CALL), &rig.err);
    must(fsdp_checkpoint_save(rig.model, rig.optimizer, directory, &state, 0, NULL, &rig.err), &rig.err);
    rig_close(&rig);
}

static void make_directory(void)
{
    directory = files_begin();
    world_run(1, save_step, NULL);
}

TestSuite(lone_entries, .init = make_directory, .fini = files_end, .timeout = 120);

static void call_badly_twice(struct scene *s, const struct lone *lone)
{
    const struct entry *entry = lone->entry;
    struct fsdp_err err = { 0 };

    for (int round = 0; round < 2; round++) {
        const bool is_victim = s->rig.context->rank == lone->victim;

        expect_told(s, lone, entry->call(s, is_victim ? entry->bad : SOUND, &err), entry->expected,
                    entry->words, &err);
        if (entry->call == prepare_evaluation)
            must(prepare_evaluation(s, SOUND, &err), &err);
        must(forward_backward(s, SOUND, &err), &err);
        cr_assert(entry->call(s, SOUND, &err) == FSDP_OK, "%s: %s", entry->name, err.message);
    }
}

static void call_badly(struct fsdp_context *context, void *user)
{
    among_its_ranks(context, user, call_badly_twice);
}

Test(lone_entries, a_bad_argument_of_one_rank_ends_the_call_on_all)
{
    for (int W = 2; W <= 4; W += 2)
        for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
            for (int victim = 0; victim < W && entries[i].expected != FSDP_OK; victim += W - 1)
                world_run(W, call_badly, &(struct lone){ victim, &entries[i], 1 });
}

static _Thread_local const struct device_ops *sound_device;

/* Device memory counts among the allocations of alloc_fail_nth(). */
static enum fsdp_status alloc_counted(struct device *device, size_t size_bytes, void **out,
                                      struct fsdp_err *err)
{
    void *counted = alloc_array(1, 1);

    free(counted);
    *out = NULL;
    return counted != NULL ? sound_device->alloc(device, size_bytes, out, err)
                           : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory, as the test wants it");
}

/* Each allocation of one rank fails in turn, until the call has made none that fails. */
static void call_until_it_succeeds(struct scene *s, const struct lone *lone)
{
    enum fsdp_status status;
    unsigned long nth = 0;

    do {
        struct fsdp_err err = { 0 };

        alloc_fail_nth(s->rig.context->rank == lone->victim ? ++nth : (++nth, 0));
        status = lone->entry->call(s, SOUND, &err);
        alloc_fail_nth(0);
        if (status != FSDP_OK)
            expect_told(s, lone, status, FSDP_ERR_NOMEM, "emory", &err);
    } while (status == FSDP_ERR_NOMEM);
    cr_expect(status == FSDP_OK && (nth > 1 || lone->entry->call == evaluate), "%s made no allocation",
              lone->entry->name);
}

static void call_without_memory(struct fsdp_context *context, void *user)
{
    struct device_ops counting = *context->device.ops;

    sound_device = context->device.ops;
    counting.alloc = alloc_counted;
    context->device.ops = &counting;
    among_its_ranks(context, user, call_until_it_succeeds);
    context->device.ops = sound_device;
}

Test(lone_entries, no_memory_on_one_rank_ends_the_call_on_all)
{
    for (int W = 2; W <= 4; W += 2)
        for (size_t i = 0; i < sizeof entries / sizeof *entries; i++)
            if (entries[i].how == ALLOCATES)
                world_run(W, call_without_memory, &(struct lone){ W - 1, &entries[i], 1 });
}

/* Entries that every rank of the world calls, whatever models there are. */
static bool is_of_world(const struct entry *entry)
{
    return entry->call == load_checkpoint || entry->call == save || entry->call == make_mesh;
}

Test(lone_entries, ranks_of_a_model_of_half_the_world_need_no_other_rank)
{
    for (int W = 4; W <= 8; W += 4)
        for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
            struct lone lone = { W - 1, &entries[i], 2 };

            if (is_of_world(lone.entry))
                continue;
            if (lone.entry->expected != FSDP_OK)
                world_run(W, call_badly, &lone);
            if (lone.entry->how == ALLOCATES && W == 4)
                world_run(W, call_without_memory, &lone);
        }
}

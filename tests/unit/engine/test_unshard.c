/*
 * unshard() and reshard() by hand, and collectives of a user's own: counted by one of these, compared bit for bit with steps
 * that know of neither.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/context.h"
#include "tests/unit/engine/world.h"

enum { BATCH = 2, MAX_ELEMS = 256 };

/* A way to run, and what rank 0 and others saw. */
struct
try {
    int W, replicate;
    enum fsdp_overlap overlap;
    enum fsdp_reshard reshard;
    bool bf16, async, root;
};

struct counts {
    int gathers, reduces;
};

static enum fsdp_status count_gather(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                     enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                     struct fsdp_err *err)
{
    ((struct counts *)user)->gathers++;
    return fsdp_all_gather(group, send, recv, n_elems, dtype, stream, err);
}

static enum fsdp_status count_reduce(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                     enum fsdp_dtype dtype, enum fsdp_reduce_op op,
                                     struct device_stream *stream, void *user, struct fsdp_err *err)
{
    ((struct counts *)user)->reduces++;
    return fsdp_reduce_scatter(group, send, recv, n_elems, dtype, op, stream, err);
}

struct run {
    struct fsdp_device_mesh *mesh;
    struct tiny tiny;
    struct fsdp_module *root, *unit;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
    struct counts counts;
};

static void must(enum fsdp_status status, const struct fsdp_err *err)
{
    cr_assert(status == FSDP_OK, "%s", err->message);
}

static void open_run(struct run *run, struct fsdp_context *context, const struct try *t, bool counts)
{
    static const struct fsdp_mixed_precision_policy bf16 = { FSDP_BF16, FSDP_F32, FSDP_DTYPE_NONE,
                                                             true,      false,    false };
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6, .seed = 3, .overlap = t->overlap };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_err err = { 0 };

    memset(run, 0, sizeof *run);
    run->tiny = tiny_defaults;
    run->tiny.reshard = t->reshard;
    run->tiny.mp_policy = t->bf16 ? &bf16 : NULL;
    if (t->replicate > 1)
        must(fsdp_init_device_mesh(&run->mesh, context, 2, (int[]){ t->replicate, t->W / t->replicate },
                                   (const char *const[]){ "replicate", "shard" }, &err),
             &err);
    run->tiny.mesh = run->mesh;
    run->root = tiny_build(&run->tiny, &err);
    run->unit = t->root ? run->root : fsdp_module_child_at(fsdp_module_child(run->root, "layers"), 1);
    if (counts) {
        fsdp_module_set_custom_all_gather(run->unit, count_gather, &run->counts);
        fsdp_module_set_custom_reduce_scatter(run->unit, count_reduce, &run->counts);
    }
    must(fsdp_model_create(&run->model, context, run->root, &options, &err), &err);
    must(fsdp_optimizer_create(&run->optimizer, run->model, &updates, &err), &err);
}

static void close_run(struct run *run)
{
    fsdp_optimizer_destroy(run->optimizer);
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
    fsdp_device_mesh_destroy(run->mesh);
}

static double backward(struct run *run, int step)
{
    const uint64_t first = (uint64_t)(step * 8 + fsdp_context_rank(fsdp_model_context(run->model)) * BATCH);
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets, .first_sample = first };
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    tiny_samples(&run->tiny, first, BATCH, tokens, targets);
    must(fsdp_model_forward_backward(run->model, &micro, 1, &loss, &err), &err);
    return loss.mean;
}

static void unshard(struct run *run, bool async)
{
    struct fsdp_unshard_handle *handle, *again;
    struct fsdp_err err = { 0 };

    must(fsdp_module_unshard(run->model, run->unit, async, &handle, &err), &err);
    must(fsdp_module_unshard(run->model, run->unit, async, &again, &err), &err); /* nothing more */
    cr_expect(handle == again);
    if (async)
        must(fsdp_unshard_handle_wait(handle, &err), &err);
    must(fsdp_unshard_handle_wait(handle, &err), &err);
}

static float rounded(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* What lies unsharded is what gathering by name gives, of the unit's dtype. */
static void expect_values(struct run *run, const struct try *t)
{
    const char *name = t->root ? "pos_embeddings.weight" : "layers.1.attention.wq.weight";
    const size_t n = t->root ? 6 * 12 : 12 * 12;
    float whole[MAX_ELEMS];
    struct fsdp_err err = { 0 };
    enum fsdp_dtype dtype;
    const void *data;

    must(fsdp_parameter_gather(run->model, name, FSDP_VALUE, whole, n, &err), &err);
    must(fsdp_parameter_unsharded(run->model, name, &data, &dtype, &err), &err);
    cr_assert(dtype == (t->bf16 ? FSDP_BF16 : FSDP_F32));
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = t->bf16 ? (uint32_t)((const uint16_t *)data)[i] << 16 : 0;
        float value;

        memcpy(&value, t->bf16 ? (const void *)&bits : (const void *)&((const float *)data)[i], sizeof value);
        cr_assert(value == (t->bf16 ? rounded(whole[i]) : whole[i]), "element %zu", i);
    }
}

static void unshard_between_steps(struct fsdp_context *context, void *user)
{
    const struct try *t = user;
    const int shards = t->replicate > 1 ? t->W / t->replicate : t->W;
    const char *name = t->root ? "pos_embeddings.weight" : "layers.1.attention.wq.weight";
    const bool gathers = shards > 1, held = gathers || t->bf16;
    struct run plain, run;
    struct fsdp_err err = { 0 };
    int per_step = 0;

    open_run(&plain, context, t, false);
    open_run(&run, context, t, true);
    for (int step = 0; step < 5; step++) {
        const double want = backward(&plain, step);
        enum fsdp_dtype dtype;
        const void *data;
        double got;

        run.counts = (struct counts){ 0 };
        if (step > 0)
            unshard(&run, t->async);
        if (step > 0)
            expect_values(&run, t);
        cr_expect_eq(run.counts.gathers, step > 0 && gathers ? 1 : 0);
        if (step == 3) { /* given back: as if it had never been */
            fsdp_module_reshard(run.model, run.unit);
            fsdp_module_reshard(run.model, run.unit);
            run.counts.gathers = 0;
        }
        got = backward(&run, step);
        cr_expect(memcmp(&got, &want, sizeof got) == 0, "step %d: %.17g, not %.17g", step, got, want);
        if (step == 0)
            per_step = run.counts.gathers;
        cr_expect_eq(run.counts.gathers, per_step, "step %d: %d gathers, not %d", step, run.counts.gathers,
                     per_step);
        cr_expect_eq(run.counts.reduces, gathers ? 1 : 0);
        cr_expect(fsdp_parameter_unsharded(run.model, name, &data, &dtype, &err) ==
                  (held ? FSDP_ERR_ARG : FSDP_OK)); /* the forward took it */
        if (step == 2)
            unshard(&run, t->async); /* and the optimizer step drops it: it is older than the parameters */
        must(fsdp_optimizer_step(plain.optimizer, &err), &err);
        must(fsdp_optimizer_step(run.optimizer, &err), &err);
        cr_expect(fsdp_parameter_unsharded(run.model, name, &data, &dtype, &err) ==
                  (held ? FSDP_ERR_ARG : FSDP_OK));
    }
    cr_expect(per_step > 0 || !gathers);
    close_run(&run);
    close_run(&plain);
}

Test(unshard, the_next_forward_takes_it_in_place_of_a_gather_and_no_bit_changes, .timeout = 600)
{
    static struct try tries[] = {
        { .W = 1 },
        { .W = 1, .bf16 = true },
        { .W = 2 },
        { .W = 3, .bf16 = true, .root = true },
        { .W = 2, .reshard = FSDP_RESHARD_FALSE },
        { .W = 2, .reshard = FSDP_RESHARD_TRUE, .root = true },
        { .W = 4, .replicate = 2 },
        { .W = 2, .replicate = 2 },
        { .W = 2, .async = true, .overlap = FSDP_OVERLAP_OFF },
        { .W = 2, .async = true, .overlap = FSDP_OVERLAP_ON },
        { .W = 3, .async = true, .overlap = FSDP_OVERLAP_ON, .bf16 = true },
    };

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        world_run(tries[i].W, unshard_between_steps, &tries[i]);
}

static void evaluate(struct run *run, float *logits, struct counts *counts)
{
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    struct fsdp_err err = { 0 };
    const float *own;

    tiny_samples(&run->tiny, 0, BATCH, tokens, targets);
    must(fsdp_model_evaluate(run->model, tokens, NULL, &own, NULL, &err), &err);
    memcpy(logits, own, BATCH * 6 * 19 * sizeof *logits);
    *counts = run->counts;
    run->counts = (struct counts){ 0 };
}

static void unshard_for_evaluation(struct fsdp_context *context, void *user)
{
    static _Thread_local float want[BATCH * 6 * 19], got[BATCH * 6 * 19];
    const struct try *t = user;
    struct fsdp_unshard_handle *handle;
    struct counts counts;
    struct run run;
    struct fsdp_err err = { 0 };

    open_run(&run, context, t, true);
    must(fsdp_model_prepare_evaluation(run.model, BATCH, 6, &err), &err);
    evaluate(&run, want, &counts);
    cr_expect_eq(counts.gathers, 1);
    must(fsdp_module_unshard(run.model, run.unit, true, &handle, &err), &err);
    evaluate(&run, got, &counts); /* which waits for it */
    cr_expect_eq(counts.gathers, 1);
    cr_expect(memcmp(got, want, sizeof got) == 0);
    must(fsdp_module_unshard(run.model, run.unit, true, NULL, &err), &err);
    must(fsdp_model_prepare_evaluation(run.model, 1, 6, &err), &err); /* its thread goes, and another comes */
    cr_expect(fsdp_module_unshard(run.model, fsdp_module_child(run.root, "norm"), false, &handle, &err) ==
                  FSDP_ERR_ARG &&
              handle == NULL);
    must(fsdp_module_unshard(run.model, run.root, true, NULL, &err), &err); /* left to the model's end */
    close_run(&run);
}

Test(unshard, evaluation_takes_it_too_and_what_is_left_ends_with_the_model, .timeout = 300)
{
    static struct try tries[] = { { .W = 2, .overlap = FSDP_OVERLAP_ON },
                                  { .W = 3, .overlap = FSDP_OVERLAP_OFF } };

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        world_run(tries[i].W, unshard_for_evaluation, &tries[i]);
}

/* --- no room on one rank ------------------------------------------------------------------------------------ */

static _Thread_local const struct device_ops *sound_device;
static _Thread_local bool memory_is_out;

static enum fsdp_status alloc_or_not(struct device *device, size_t size_bytes, void **out,
                                     struct fsdp_err *err)
{
    *out = NULL;
    return memory_is_out ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory, as the test wants it")
                         : sound_device->alloc(device, size_bytes, out, err);
}

/* On rank 1 alone; nobody has the unit then, nobody waits for ever, and the next steps have their bits. */
static void unshard_without_room(struct fsdp_context *context, void *user)
{
    const struct try *t = user;
    struct device_ops ops = *context->device.ops;
    struct fsdp_unshard_handle *handle;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;
    struct run run;
    double want;

    sound_device = context->device.ops;
    ops.alloc = alloc_or_not;
    open_run(&run, context, t, false);
    want = backward(&run, 1);
    context->device.ops = &ops;
    for (int round = 0; round < 3; round++) {
        memory_is_out = context->rank == 1;
        status = fsdp_module_unshard(run.model, run.unit, t->async, &handle, &err);
        cr_expect(context->rank == 1 ? strstr(err.message, "as the test wants it") != NULL
                                     : t->async == (status == FSDP_OK),
                  "%s", err.message);
        if (t->async) {
            fsdp_module_unshard(run.model, run.unit, true, NULL, NULL); /* no second time */
            status = fsdp_unshard_handle_wait(handle, &err);
        }
        memory_is_out = false;
        cr_expect(status == FSDP_ERR_NOMEM);
        cr_expect(context->rank == 1 || strncmp(err.message, "rank 1: unsharding", 18) == 0, "%s",
                  err.message);
        cr_expect(backward(&run, 1) == want);
    }
    unshard(&run, t->async);
    cr_expect(backward(&run, 1) == want);
    context->device.ops = sound_device;
    close_run(&run);
}

Test(unshard, without_room_on_one_rank_nobody_has_it_and_all_are_told, .timeout = 300)
{
    static struct try tries[] = { { .W = 2, .overlap = FSDP_OVERLAP_OFF },
                                  { .W = 3, .overlap = FSDP_OVERLAP_ON, .async = true } };

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        world_run(tries[i].W, unshard_without_room, &tries[i]);
}

/* --- collectives of one's own ------------------------------------------------------------------------------- */

static enum fsdp_status give_up(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                struct fsdp_err *err)
{
    (void)group, (void)send, (void)recv, (void)n_elems, (void)dtype, (void)stream, (void)user;
    return fsdp_fail(err, FSDP_ERR_IO, "this one gives up");
}

static void fail_a_gather(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6 };
    struct tiny tiny = tiny_defaults;
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets };
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    (void)user;
    root = tiny_build(&tiny, &err);
    fsdp_module_set_custom_all_gather(fsdp_module_child_at(fsdp_module_child(root, "layers"), 0), give_up,
                                      NULL);
    must(fsdp_model_create(&model, context, root, &options, &err), &err);
    tiny_samples(&tiny, 0, BATCH, tokens, targets);
    cr_expect(fsdp_model_forward_backward(model, &micro, 1, &loss, &err) == FSDP_ERR_IO);
    cr_expect_not_null(strstr(err.message, "gather of layers.0: this one gives up"), "%s", err.message);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(unshard, an_error_of_a_custom_communicator_ends_the_step_with_its_words)
{
    world_run(2, fail_a_gather, NULL);
}

/* --- who may communicate meanwhile ------------------------------------------------------------------------- */

/* A gather of rank's second thread that lasts until the rank has tried other things. */
struct held {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool may_go;
};

static enum fsdp_status gather_when_told(struct fsdp_comm *group, const void *send, void *recv,
                                         size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                                         void *user, struct fsdp_err *err)
{
    struct held *held = user;

    pthread_mutex_lock(&held->mutex);
    while (!held->may_go)
        pthread_cond_wait(&held->changed, &held->mutex);
    pthread_mutex_unlock(&held->mutex);
    return fsdp_all_gather(group, send, recv, n_elems, dtype, stream, err);
}

static void let_go(struct held *held)
{
    pthread_mutex_lock(&held->mutex);
    held->may_go = true;
    pthread_cond_signal(&held->changed);
    pthread_mutex_unlock(&held->mutex);
}

static void *call_elsewhere(void *user)
{
    struct fsdp_err err = { 0 };

    cr_expect_eq(fsdp_barrier(fsdp_context_comm(user), &err), FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "only the thread that created the context"), "%s", err.message);
    return NULL;
}

static void share_a_context(struct fsdp_context *context, void *user)
{
    static const struct try how = { .W = 2, .overlap = FSDP_OVERLAP_ON };
    struct held held = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .may_go = true };
    struct fsdp_unshard_handle *handle;
    struct fsdp_err err = { 0 };
    struct run one, other;
    pthread_t thread;
    double want, sum = 1;

    (void)user;
    open_run(&one, context, &how, false);
    open_run(&other, context, &how, false);
    want = backward(&other, 1);
    fsdp_module_set_custom_all_gather(one.unit, gather_when_told, &held);
    (void)backward(&one, 1);

    held.may_go = false;
    must(fsdp_module_unshard(one.model, one.unit, true, &handle, &err), &err);
    cr_expect_eq(fsdp_all_reduce(context->comm, &sum, 1, FSDP_F64, FSDP_SUM, NULL, &err), FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "second thread"), "%s", err.message);
    let_go(&held);
    cr_expect(backward(&other, 1) == want, "another model's step waits for it");
    must(fsdp_unshard_handle_wait(handle, &err), &err);
    must(fsdp_all_reduce(context->comm, &sum, 1, FSDP_F64, FSDP_SUM, NULL, &err), &err);
    cr_expect_eq(sum, 2);

    cr_assert_eq(pthread_create(&thread, NULL, call_elsewhere, context), 0);
    pthread_join(thread, NULL);
    close_run(&other);
    close_run(&one);
}

Test(unshard, has_the_groups_until_another_model_or_its_caller_waits_for_it, .timeout = 60)
{
    world_run(2, share_a_context, NULL);
}

/* --- a step of several calls -------------------------------------------------------------------------------- */

static void step_too_early(struct fsdp_context *context, void *user)
{
    const struct fsdp_model_options options = { .batch = BATCH, .seq = 6, .accumulates = true };
    const struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer;
    struct tiny tiny = tiny_defaults;
    int32_t tokens[BATCH * 6], targets[BATCH * 6];
    const struct fsdp_batch micro = { .input = tokens, .targets = targets };
    struct fsdp_module *root = NULL;
    struct fsdp_model *model;
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;
    double whole, parts, norm;

    (void)user;
    root = tiny_build(&tiny, &err);
    must(fsdp_model_create(&model, context, root, &options, &err), &err);
    must(fsdp_optimizer_create(&optimizer, model, &updates, &err), &err);
    tiny_samples(&tiny, 0, BATCH, tokens, targets);
    must(fsdp_model_forward_backward(model, &micro, 1, &loss, &err), &err);
    must(fsdp_clip_grad_norm(model, 0, &whole, &err), &err);

    fsdp_module_set_is_last_backward(model, false);
    must(fsdp_model_forward_backward(model, &micro, 1, &loss, &err), &err);
    cr_expect(fsdp_optimizer_step(optimizer, &err) == FSDP_ERR_ARG && strstr(err.message, "yet to come"));
    cr_expect(fsdp_clip_grad_norm(model, 1, &norm, &err) == FSDP_ERR_ARG &&
              strstr(err.message, "1 micro-steps"));
    for (size_t i = 0; i < BATCH * 6;
         i++) /* a last call without a target counts, and changes nothing of the mean */
        targets[i] = FSDP_IGNORED_TARGET;
    fsdp_module_set_is_last_backward(model, true);
    must(fsdp_model_forward_backward(model, &micro, 1, &loss, &err), &err);
    cr_expect_eq(loss.n_targets, 0);
    must(fsdp_clip_grad_norm(model, 0, &parts, &err), &err);
    cr_expect_float_eq(parts, whole, 1e-6 * whole, "%.9g, not %.9g", parts, whole);
    must(fsdp_optimizer_step(optimizer, &err), &err);

    fsdp_module_set_is_last_backward(model, false);
    tiny_samples(&tiny, 0, BATCH, tokens, targets);
    must(fsdp_model_forward_backward(model, &micro, 1, &loss, &err), &err);
    must(fsdp_module_reset_iteration(model, &err), &err); /* as if the step had not begun */
    fsdp_module_set_is_last_backward(model, true);
    must(fsdp_model_forward_backward(model, &micro, 1, &loss, &err), &err);
    must(fsdp_optimizer_step(optimizer, &err), &err);
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

Test(recovery, a_step_of_several_calls_is_stepped_on_when_it_is_whole)
{
    world_run(1, step_too_early, NULL);
    world_run(2, step_too_early, NULL);
}

/*
 * unshard() and reshard() by hand, and collectives of a user's own. They are counted by one of these, and
 * compared bit for bit with steps that know of neither.
 */
#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/engine/context.h"
#include "tests/unit/engine/counted_comm.h"
#include "tests/unit/engine/rig.h"

enum { MAX_ELEMS = 256, N_LOGITS = 2 * 6 * 19 };

/* A way to run, and what rank 0 and others saw. */
struct attempt {
    int W, replicate;
    enum fsdp_overlap overlap;
    enum fsdp_reshard reshard;
    bool bf16, async, root;
};

struct run {
    struct rig rig;
    struct fsdp_module *unit;
    struct counts counts;
};

static struct rig *open_run(struct run *run, struct fsdp_context *context, const struct attempt *t,
                            bool counts)
{
    static const struct fsdp_mixed_precision_policy bf16 = { FSDP_BF16, FSDP_F32, FSDP_DTYPE_NONE,
                                                             true,      false,    false };
    struct rig *rig = &run->rig;

    *run = (struct run){ 0 };
    rig_init(rig, context);
    rig->options.overlap = t->overlap;
    rig->tiny.reshard = t->reshard;
    rig->tiny.mp_policy = t->bf16 ? &bf16 : NULL;
    rig_mesh(rig, t->replicate, 1);
    run->unit = t->root ? rig_root(rig) : rig_block(rig, 1);
    if (counts) {
        fsdp_module_set_custom_all_gather(run->unit, count_gather, &run->counts);
        fsdp_module_set_custom_reduce_scatter(run->unit, count_reduce, &run->counts);
    }
    rig_open(rig);
    return rig;
}

static double backward(struct rig *rig, int step)
{
    must(rig_backward(rig, step, RIG_IN_ONE_CALL), &rig->err);
    return rig->loss.mean;
}

static void unshard(struct run *run, bool async)
{
    struct fsdp_unshard_handle *handle, *again;
    struct fsdp_err err = { 0 };

    must(fsdp_module_unshard(run->rig.model, run->unit, async, &handle, &err), &err);
    must(fsdp_module_unshard(run->rig.model, run->unit, async, &again, &err), &err); /* nothing more */
    cr_expect(handle == again);
    if (async)
        must(fsdp_unshard_handle_wait(handle, &err), &err);
    must(fsdp_unshard_handle_wait(handle, &err), &err);
}

/* The unit's first parameter, of n elements. */
static const char *first_of(const struct attempt *t, size_t *n)
{
    *n = t->root ? 6 * 12 : 12 * 12;
    return t->root ? "pos_embeddings.weight" : "layers.1.attention.wq.weight";
}

/* What is unsharded is what gathering by name gives, in the unit's dtype. */
static void expect_values(struct run *run, const struct attempt *t)
{
    size_t n;
    const char *name = first_of(t, &n);
    float whole[MAX_ELEMS];
    struct fsdp_err err = { 0 };
    enum fsdp_dtype dtype;
    const void *data;

    must(fsdp_parameter_gather(run->rig.model, name, FSDP_VALUE, whole, n, &err), &err);
    must(fsdp_parameter_unsharded(run->rig.model, name, &data, &dtype, &err), &err);
    cr_assert(dtype == (t->bf16 ? FSDP_BF16 : FSDP_F32));
    for (size_t i = 0; i < n; i++)
        cr_assert(t->bf16 ? ((const uint16_t *)data)[i] == bf16_of_f32(whole[i])
                          : ((const float *)data)[i] == whole[i],
                  "element %zu", i);
}

/* The first parameter can be read unsharded, or not. */
static void expect_held(struct run *run, const struct attempt *t, bool held)
{
    size_t n;
    struct fsdp_err err = { 0 };
    enum fsdp_dtype dtype;
    const void *data;

    cr_expect_eq(fsdp_parameter_unsharded(run->rig.model, first_of(t, &n), &data, &dtype, &err),
                 held ? FSDP_OK : FSDP_ERR_ARG);
}

static void unshard_between_steps(struct fsdp_context *context, void *user)
{
    const struct attempt *t = user;
    const bool gathers = (t->replicate > 1 ? t->W / t->replicate : t->W) > 1;
    const bool shard_is_whole = !gathers && !t->bf16;
    struct run plain, run;
    int per_step = 0;

    open_run(&plain, context, t, false);
    open_run(&run, context, t, true);
    for (int step = 0; step < 5; step++) {
        const double want = backward(&plain.rig, step);
        double got;

        run.counts = (struct counts){ 0 };
        if (step > 0) {
            unshard(&run, t->async);
            expect_values(&run, t);
        }
        cr_expect_eq(run.counts.gathers, step > 0 && gathers ? 1 : 0);
        if (step == 3) { /* given back: as if it had never been */
            fsdp_module_reshard(run.rig.model, run.unit);
            fsdp_module_reshard(run.rig.model, run.unit);
            run.counts.gathers = 0;
        }
        got = backward(&run.rig, step);
        cr_expect(memcmp(&got, &want, sizeof got) == 0, "step %d: %.17g, not %.17g", step, got, want);
        if (step == 0)
            per_step = run.counts.gathers;
        cr_expect_eq(run.counts.gathers, per_step, "step %d: %d gathers, not %d", step, run.counts.gathers,
                     per_step);
        cr_expect_eq(run.counts.reduces, gathers ? 1 : 0);
        expect_held(&run, t, shard_is_whole); /* the forward took it */
        if (step == 2)
            unshard(&run, t->async); /* and the optimizer step drops it: it is older than the parameters */
        must(fsdp_optimizer_step(plain.rig.optimizer, &plain.rig.err), &plain.rig.err);
        must(fsdp_optimizer_step(run.rig.optimizer, &run.rig.err), &run.rig.err);
        expect_held(&run, t, shard_is_whole);
    }
    cr_expect(per_step > 0 || !gathers);
    rig_close(&run.rig);
    rig_close(&plain.rig);
}

Test(unshard, the_next_forward_takes_it_in_place_of_a_gather_and_no_bit_changes, .timeout = 600)
{
    static struct attempt tries[] = {
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

static void evaluate(struct run *run, float *logits)
{
    struct rig *rig = &run->rig;
    const float *own;

    rig_fill(rig, 0);
    must(fsdp_model_evaluate(rig->model, rig->tokens, NULL, &own, NULL, &rig->err), &rig->err);
    memcpy(logits, own, N_LOGITS * sizeof *logits);
    cr_expect_eq(run->counts.gathers, 1);
    run->counts = (struct counts){ 0 };
}

static void unshard_for_evaluation(struct fsdp_context *context, void *user)
{
    static _Thread_local float want[N_LOGITS], got[N_LOGITS];
    struct fsdp_unshard_handle *handle;
    struct run run;
    struct rig *rig = open_run(&run, context, user, true);

    must(fsdp_model_prepare_evaluation(rig->model, 2, 6, &rig->err), &rig->err);
    evaluate(&run, want);
    must(fsdp_module_unshard(rig->model, run.unit, true, &handle, &rig->err), &rig->err);
    evaluate(&run, got); /* which waits for it */
    cr_expect(memcmp(got, want, sizeof got) == 0);
    must(fsdp_module_unshard(rig->model, run.unit, true, NULL, &rig->err), &rig->err);
    must(fsdp_model_prepare_evaluation(rig->model, 1, 6, &rig->err), &rig->err); /* on another thread now */
    cr_expect_eq(fsdp_module_unshard(rig->model, fsdp_module_child(rig->root, "norm"), false, &handle, NULL),
                 FSDP_ERR_ARG);
    cr_expect_null(handle);
    must(fsdp_module_unshard(rig->model, rig->root, true, NULL, &rig->err), &rig->err); /* left to the end */
    rig_close(rig);
}

Test(unshard, evaluation_takes_it_too_and_what_is_left_ends_with_the_model, .timeout = 300)
{
    static struct attempt tries[] = { { .W = 2, .overlap = FSDP_OVERLAP_ON },
                                      { .W = 3, .overlap = FSDP_OVERLAP_OFF } };

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        world_run(tries[i].W, unshard_for_evaluation, &tries[i]);
}

static _Thread_local const struct device_ops *sound_device;
static _Thread_local bool memory_is_out;

static enum fsdp_status alloc_or_not(struct device *device, size_t size_bytes, void **out,
                                     struct fsdp_err *err)
{
    *out = NULL;
    return memory_is_out ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory, as the test wants it")
                         : sound_device->alloc(device, size_bytes, out, err);
}

/* On rank 1 alone. Then no rank has the unit, no rank waits for ever, and the next steps have their bits. */
static void unshard_without_room(struct fsdp_context *context, void *user)
{
    const struct attempt *t = user;
    struct device_ops ops = *context->device.ops;
    struct fsdp_unshard_handle *handle;
    struct fsdp_err err = { 0 };
    struct run run;
    double want;

    sound_device = context->device.ops;
    ops.alloc = alloc_or_not;
    open_run(&run, context, t, false);
    want = backward(&run.rig, 1);
    context->device.ops = &ops;
    for (int round = 0; round < 3; round++) {
        enum fsdp_status status;

        memory_is_out = context->rank == 1;
        status = fsdp_module_unshard(run.rig.model, run.unit, t->async, &handle, &err);
        cr_expect(context->rank == 1 ? strstr(err.message, "as the test wants it") != NULL
                                     : t->async == (status == FSDP_OK),
                  "%s", err.message);
        if (t->async) {
            fsdp_module_unshard(run.rig.model, run.unit, true, NULL, NULL); /* no second time */
            status = fsdp_unshard_handle_wait(handle, &err);
        }
        memory_is_out = false;
        cr_expect(status == FSDP_ERR_NOMEM);
        cr_expect(context->rank == 1 || strncmp(err.message, "rank 1: unsharding", 18) == 0, "%s",
                  err.message);
        cr_expect(backward(&run.rig, 1) == want);
    }
    unshard(&run, t->async);
    cr_expect(backward(&run.rig, 1) == want);
    context->device.ops = sound_device;
    rig_close(&run.rig);
}

Test(unshard, without_room_on_one_rank_nobody_has_it_and_all_are_told, .timeout = 300)
{
    static struct attempt tries[] = { { .W = 2, .overlap = FSDP_OVERLAP_OFF },
                                      { .W = 3, .overlap = FSDP_OVERLAP_ON, .async = true } };

    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++)
        world_run(tries[i].W, unshard_without_room, &tries[i]);
}

static enum fsdp_status give_up(struct fsdp_comm *group, const void *send, void *recv, size_t n_elems,
                                enum fsdp_dtype dtype, struct device_stream *stream, void *user,
                                struct fsdp_err *err)
{
    (void)group, (void)send, (void)recv, (void)n_elems, (void)dtype, (void)stream, (void)user;
    return fsdp_fail(err, FSDP_ERR_IO, "this one gives up");
}

static void fail_a_gather(struct fsdp_context *context, void *user)
{
    struct rig rig;

    (void)user;
    rig_init(&rig, context);
    fsdp_module_set_custom_all_gather(rig_block(&rig, 0), give_up, NULL);
    rig_model(&rig);
    expect_refused(rig_backward(&rig, 0, RIG_IN_ONE_CALL), FSDP_ERR_IO,
                   "gather of layers.0: this one gives up", &rig.err);
    rig_close(&rig);
}

WorldTest(unshard, an_error_of_a_custom_communicator_ends_the_step_with_its_words, fail_a_gather, 2);

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

    expect_refused(fsdp_barrier(fsdp_context_comm(user), &err), FSDP_ERR_ARG,
                   "only the thread that created the context", &err);
    return NULL;
}

static void share_a_context(struct fsdp_context *context, void *user)
{
    static const struct attempt how = { .W = 2, .overlap = FSDP_OVERLAP_ON };
    struct held held = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, .may_go = true };
    struct fsdp_unshard_handle *handle;
    struct fsdp_err err = { 0 };
    struct run one, other;
    pthread_t thread;
    double want, sum = 1;

    (void)user;
    open_run(&one, context, &how, false);
    open_run(&other, context, &how, false);
    want = backward(&other.rig, 1);
    fsdp_module_set_custom_all_gather(one.unit, gather_when_told, &held);
    (void)backward(&one.rig, 1);

    held.may_go = false;
    must(fsdp_module_unshard(one.rig.model, one.unit, true, &handle, &err), &err);
    expect_refused(fsdp_all_reduce(context->comm, &sum, 1, FSDP_F64, FSDP_SUM, NULL, &err), FSDP_ERR_ARG,
                   "second thread", &err);
    let_go(&held);
    cr_expect(backward(&other.rig, 1) == want, "another model's step waits for it");
    must(fsdp_unshard_handle_wait(handle, &err), &err);
    must(fsdp_all_reduce(context->comm, &sum, 1, FSDP_F64, FSDP_SUM, NULL, &err), &err);
    cr_expect_eq(sum, 2);

    cr_assert_eq(pthread_create(&thread, NULL, call_elsewhere, context), 0);
    pthread_join(thread, NULL);
    rig_close(&other.rig);
    rig_close(&one.rig);
}

WorldTest(unshard, has_the_groups_until_another_model_or_its_caller_waits_for_it, share_a_context, 2);

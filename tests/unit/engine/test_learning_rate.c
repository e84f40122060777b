/*
 * The learning rate while a program runs. It is set between steps, for all parameters or for a group, or as a
 * function of the step. Updates come once at the end of a step, or inside backward. Compared bit for bit with
 * optimizers made so.
 */
#include <math.h>

#include "tests/unit/engine/rig.h"
#include "tests/unit/shardfile/files.h"

enum { STEPS = 4, CHANGES_AT = 2 };

static const double high = 0.25, low = 0.0625;

static enum fsdp_status update_group(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model;
    return fsdp_optimizer_step_group(((struct rig *)user)->optimizer, group, err);
}

/* SGD with momentum, and the embeddings' own rate (negative: none). */
static struct fsdp_optimizer_options rates(double lr, struct fsdp_optimizer_group *group,
                                           double of_embeddings)
{
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();

    *group =
        (struct fsdp_optimizer_group){ .pattern = "*embeddings*", .lr = of_embeddings, .weight_decay = -1 };
    updates.kind = FSDP_SGD;
    updates.momentum = 0.5;
    updates.lr = lr;
    updates.groups = group;
    updates.n_groups = 1;
    return updates;
}

static void open_run(struct rig *rig, struct fsdp_context *context, bool in_backward)
{
    struct fsdp_optimizer_group group;

    rig_init(rig, context);
    rig->updates = rates(high, &group, -1);
    if (in_backward)
        fsdp_module_register_post_accumulate_grad_hook(rig_root(rig), update_group, rig, true);
    rig_open(rig);
}

static void steps(struct rig *rig, int from, int to)
{
    for (int i = from; i < to; i++)
        rig_step(rig, i);
}

static bool same(struct rig *a, struct rig *b)
{
    static _Thread_local float left[RIG_ELEMS], right[RIG_ELEMS];
    const size_t n = rig_gather(a, FSDP_VALUE, left);

    return n == rig_gather(b, FSDP_VALUE, right) && memcmp(left, right, n * sizeof *left) == 0;
}

static double by_step(uint64_t done, void *user)
{
    (void)user;
    return done < CHANGES_AT ? 1.0 : low / high;
}

/*
 * What is expected: the first steps with one optimizer, the others with one made with the second rate, on the
 * first one's momentum.
 */
static void expected(struct rig *rig, struct fsdp_context *context, double embeddings)
{
    struct fsdp_optimizer_group group;
    const struct fsdp_optimizer_options updates = rates(low, &group, embeddings);
    struct fsdp_optimizer *second;
    struct fsdp_tensor_shard *old, *new;
    size_t n;

    open_run(rig, context, false);
    steps(rig, 0, CHANGES_AT);
    must(fsdp_optimizer_create(&second, rig->model, &updates, &rig->err), &rig->err);
    n = fsdp_optimizer_state_count(second);
    old = calloc(n, sizeof *old);
    new = calloc(n, sizeof *new);
    fsdp_optimizer_state(rig->optimizer, old);
    fsdp_optimizer_state(second, new);
    for (size_t i = 0; i < n; i++) {
        size_t elems = 1;

        for (int d = 0; d < old[i].n_dims; d++)
            elems *= old[i].sizes[d];
        if (elems > 0)
            memcpy(new[i].data, old[i].data, elems * sizeof(float));
    }
    free(old);
    free(new);
    fsdp_optimizer_set_step_count(second, CHANGES_AT);
    fsdp_optimizer_destroy(rig->optimizer);
    rig->optimizer = second;
    steps(rig, CHANGES_AT, STEPS);
}

static void change_between_steps(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct rig want, plain;

    (void)user;
    expected(&want, context, -1);
    open_run(&plain, context, false);
    steps(&plain, 0, STEPS);
    cr_expect(!same(&want, &plain), "the rate makes a difference");
    rig_close(&plain);
    for (int in_backward = 0; in_backward < 2; in_backward++) {
        struct rig set, scheduled;

        open_run(&set, context, in_backward);
        steps(&set, 0, CHANGES_AT);
        must(fsdp_optimizer_set_lr(set.optimizer, low, &err), &err);
        cr_expect(fsdp_optimizer_lr(set.optimizer) == low);
        steps(&set, CHANGES_AT, STEPS);
        cr_expect(same(&want, &set), "set between steps, in backward: %d", in_backward);
        open_run(&scheduled, context, in_backward);
        fsdp_optimizer_set_lr_lambda(scheduled.optimizer, by_step, NULL);
        cr_expect(fsdp_optimizer_lr(scheduled.optimizer) == high);
        steps(&scheduled, 0, STEPS);
        cr_expect(fsdp_optimizer_lr(scheduled.optimizer) == low);
        cr_expect(same(&want, &scheduled), "by a function of the step, in backward: %d", in_backward);
        rig_close(&set);
        rig_close(&scheduled);
    }
    rig_close(&want);
}

WorldTest(learning_rate, set_between_steps_or_by_a_function_is_that_of_an_optimizer_made_so,
          change_between_steps, 1, 2, 3);

static void change_a_group(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct rig want, set;

    (void)user;
    expected(&want, context, 2 * low);
    open_run(&set, context, false);
    steps(&set, 0, CHANGES_AT);
    must(fsdp_optimizer_set_group_lr(set.optimizer, 0, 2 * low, &err), &err);
    must(fsdp_optimizer_set_lr(set.optimizer, low, &err), &err); /* leaves alone what has its own now */
    steps(&set, CHANGES_AT, STEPS);
    cr_expect(same(&want, &set));
    cr_expect(fsdp_optimizer_set_group_lr(set.optimizer, 1, low, &err) == FSDP_ERR_ARG, "there is one group");
    rig_close(&set);
    rig_close(&want);
}

WorldTest(learning_rate, a_group_that_is_set_keeps_its_own, change_a_group, 2);

static double broken(uint64_t done, void *user)
{
    (void)user;
    return done == 1 ? (double)NAN : 1.0;
}

static void refuse(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct rig one, run;

    (void)user;
    open_run(&run, context, false);
    cr_expect(fsdp_optimizer_set_lr(run.optimizer, (double)NAN, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_optimizer_set_lr(run.optimizer, -1, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_optimizer_set_group_lr(run.optimizer, 0, (double)INFINITY, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_optimizer_lr(run.optimizer) == high, "nothing was changed");
    fsdp_optimizer_set_lr_lambda(run.optimizer, broken, NULL);
    fsdp_err_clear(&err);
    steps(&run, 0, 1);
    must(rig_backward(&run, 1, RIG_IN_ONE_CALL), &run.err);
    expect_refused(fsdp_optimizer_step(run.optimizer, &err), FSDP_ERR_ARG, "update 2 is nan", &err);
    open_run(&one, context, false);
    steps(&one, 0, 1);
    cr_expect(same(&one, &run), "the refused update changed nothing");
    cr_expect(fsdp_optimizer_step_count(run.optimizer) == 1);
    rig_close(&one);
    rig_close(&run);
}

WorldTest(learning_rate, what_is_no_rate_is_refused_and_changes_nothing, refuse, 1);

static double note_step(uint64_t done, void *user)
{
    *(uint64_t *)user = done;
    return 1.0;
}

static void resume(struct fsdp_context *context, void *user)
{
    const struct fsdp_checkpoint_state state = { .step = CHANGES_AT };
    struct fsdp_checkpoint_state found;
    const char *const folder = files_begin();
    struct fsdp_err err = { 0 };
    uint64_t seen = UINT64_MAX;
    struct rig saved, loaded;

    (void)user;
    open_run(&saved, context, false);
    fsdp_optimizer_set_lr_lambda(saved.optimizer, note_step, &seen);
    cr_expect(fsdp_optimizer_lr(saved.optimizer) == high && seen == 0, "0 before the first update");
    steps(&saved, 0, CHANGES_AT);
    must(fsdp_optimizer_set_lr(saved.optimizer, low, &err), &err);
    must(fsdp_checkpoint_save(saved.model, saved.optimizer, folder, &state, 0, NULL, &err), &err);
    open_run(&loaded, context, false);
    fsdp_optimizer_set_lr_lambda(loaded.optimizer, note_step, &seen);
    must(fsdp_checkpoint_load(loaded.model, loaded.optimizer, folder, -1, &found, &err), &err);
    cr_expect(fsdp_optimizer_lr(loaded.optimizer) == high, "a checkpoint holds no rate");
    cr_expect(seen == CHANGES_AT, "the function goes on at the loaded count of updates");
    files_end();
    rig_close(&saved);
    rig_close(&loaded);
}

WorldTest(learning_rate, a_checkpoint_holds_the_count_of_updates_and_no_rate, resume, 1);

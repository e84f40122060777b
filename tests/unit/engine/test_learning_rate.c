/*
 * The learning rate while a program runs: set between steps, for all parameters or for a group, or as a function of the step;
 * with one update at the end of a step and with updates inside backward. Compared bit for bit with optimizers made so.
 */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/engine/world.h"

enum { BATCH = 2, SEQ = 6, STEPS = 4, CHANGES_AT = 2, N_WHOLE = 8192 };

static const double high = 0.25, low = 0.0625;

struct run {
    struct fsdp_module *root;
    struct fsdp_model *model;
    struct fsdp_optimizer *optimizer;
};

static void must(enum fsdp_status status, const struct fsdp_err *err)
{
    cr_assert(status == FSDP_OK, "%s", err->message);
}

static enum fsdp_status update_group(struct fsdp_model *model, int group, void *user, struct fsdp_err *err)
{
    (void)model;
    return fsdp_optimizer_step_group(((struct run *)user)->optimizer, group, err);
}

/* Of the embeddings' own rate (negative: none). */
static void open_run(struct run *run, struct fsdp_context *context, double lr, double of_embeddings,
                     bool in_backward)
{
    const struct fsdp_optimizer_group group = { .pattern = "*embeddings*",
                                                .lr = of_embeddings,
                                                .weight_decay = -1 };
    const struct fsdp_model_options options = { .batch = BATCH, .seq = SEQ, .seed = 3 };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_err err = { 0 };

    updates.kind = FSDP_SGD;
    updates.momentum = 0.5;
    updates.lr = lr;
    updates.groups = &group;
    updates.n_groups = 1;
    run->root = tiny_build(&tiny_defaults, &err);
    if (in_backward)
        fsdp_module_register_post_accumulate_grad_hook(run->root, update_group, run, true);
    must(fsdp_model_create(&run->model, context, run->root, &options, &err), &err);
    must(fsdp_optimizer_create(&run->optimizer, run->model, &updates, &err), &err);
}

static void close_run(struct run *run)
{
    fsdp_optimizer_destroy(run->optimizer);
    fsdp_model_destroy(run->model);
    fsdp_module_destroy(run->root);
}

static enum fsdp_status step(struct run *run, uint64_t number, struct fsdp_err *err)
{
    int32_t tokens[BATCH * SEQ], targets[BATCH * SEQ];
    const struct fsdp_batch batch = { .input = tokens, .targets = targets };
    enum fsdp_status status;
    struct fsdp_loss loss;

    tiny_samples(&tiny_defaults, number * BATCH, BATCH, tokens, targets);
    status = fsdp_model_forward_backward(run->model, &batch, 1, &loss, err);
    return status == FSDP_OK ? fsdp_optimizer_step(run->optimizer, err) : status;
}

static void steps(struct run *run, uint64_t from, uint64_t to)
{
    struct fsdp_err err = { 0 };

    for (uint64_t i = from; i < to; i++)
        must(step(run, i, &err), &err);
}

/* All parameters, whole, one after the other. */
static size_t read_all(struct run *run, float out[N_WHOLE])
{
    struct fsdp_err err = { 0 };
    size_t n = 0;

    for (size_t i = 0; i < fsdp_model_parameter_count(run->model); i++) {
        struct fsdp_parameter_info info;

        must(fsdp_model_parameter(run->model, i, &info, &err), &err);
        cr_assert(n + info.n_elems <= N_WHOLE);
        must(fsdp_parameter_gather(run->model, info.name, FSDP_VALUE, out + n, info.n_elems, &err), &err);
        n += info.n_elems;
    }
    return n;
}

static bool same(struct run *a, struct run *b)
{
    static _Thread_local float left[N_WHOLE], right[N_WHOLE];
    const size_t n = read_all(a, left);

    return n == read_all(b, right) && memcmp(left, right, n * sizeof *left) == 0;
}

static double by_step(uint64_t done, void *user)
{
    (void)user;
    return done < CHANGES_AT ? 1.0 : low / high;
}

/* What is expected: the first steps with one optimizer, the others with one made with the second rate, on the first one's momentum. */
static void expected(struct run *run, struct fsdp_context *context, double embeddings)
{
    const struct fsdp_optimizer_group group = { .pattern = "*embeddings*",
                                                .lr = embeddings,
                                                .weight_decay = -1 };
    struct fsdp_optimizer_options updates = fsdp_optimizer_defaults();
    struct fsdp_optimizer *second;
    struct fsdp_tensor_shard *old, *new;
    struct fsdp_err err = { 0 };
    size_t n;

    open_run(run, context, high, -1, false);
    steps(run, 0, CHANGES_AT);
    updates.kind = FSDP_SGD;
    updates.momentum = 0.5;
    updates.lr = low;
    updates.groups = &group;
    updates.n_groups = 1;
    must(fsdp_optimizer_create(&second, run->model, &updates, &err), &err);
    n = fsdp_optimizer_state_count(second);
    old = calloc(n, sizeof *old);
    new = calloc(n, sizeof *new);
    fsdp_optimizer_state(run->optimizer, old);
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
    fsdp_optimizer_destroy(run->optimizer);
    run->optimizer = second;
    steps(run, CHANGES_AT, STEPS);
}

static void change_between_steps(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct run want, plain;

    (void)user;
    expected(&want, context, -1);
    open_run(&plain, context, high, -1, false);
    steps(&plain, 0, STEPS);
    cr_expect(!same(&want, &plain), "the rate makes a difference");
    close_run(&plain);
    for (int in_backward = 0; in_backward < 2; in_backward++) {
        struct run set, scheduled;

        open_run(&set, context, high, -1, in_backward == 1);
        steps(&set, 0, CHANGES_AT);
        must(fsdp_optimizer_set_lr(set.optimizer, low, &err), &err);
        cr_expect(fsdp_optimizer_lr(set.optimizer) == low);
        steps(&set, CHANGES_AT, STEPS);
        cr_expect(same(&want, &set), "set between steps, in backward: %d", in_backward);
        open_run(&scheduled, context, high, -1, in_backward == 1);
        fsdp_optimizer_set_lr_lambda(scheduled.optimizer, by_step, NULL);
        cr_expect(fsdp_optimizer_lr(scheduled.optimizer) == high);
        steps(&scheduled, 0, STEPS);
        cr_expect(fsdp_optimizer_lr(scheduled.optimizer) == low);
        cr_expect(same(&want, &scheduled), "by a function of the step, in backward: %d", in_backward);
        close_run(&set);
        close_run(&scheduled);
    }
    close_run(&want);
}

Test(learning_rate, set_between_steps_or_by_a_function_is_that_of_an_optimizer_made_so)
{
    for (int W = 1; W <= 3; W++)
        world_run(W, change_between_steps, NULL);
}

static void change_a_group(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct run want, set;

    (void)user;
    expected(&want, context, 2 * low);
    open_run(&set, context, high, -1, false);
    steps(&set, 0, CHANGES_AT);
    must(fsdp_optimizer_set_group_lr(set.optimizer, 0, 2 * low, &err), &err);
    must(fsdp_optimizer_set_lr(set.optimizer, low, &err), &err); /* leaves alone what has its own now */
    steps(&set, CHANGES_AT, STEPS);
    cr_expect(same(&want, &set));
    cr_expect(fsdp_optimizer_set_group_lr(set.optimizer, 1, low, &err) == FSDP_ERR_ARG, "there is one group");
    close_run(&set);
    close_run(&want);
}

Test(learning_rate, a_group_that_is_set_keeps_its_own)
{
    world_run(2, change_a_group, NULL);
}

static double broken(uint64_t done, void *user)
{
    (void)user;
    return done == 1 ? (double)NAN : 1.0;
}

static void refuse(struct fsdp_context *context, void *user)
{
    struct fsdp_err err = { 0 };
    struct run one, run;

    (void)user;
    open_run(&run, context, high, -1, false);
    cr_expect(fsdp_optimizer_set_lr(run.optimizer, (double)NAN, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_optimizer_set_lr(run.optimizer, -1, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_optimizer_set_group_lr(run.optimizer, 0, (double)INFINITY, &err) == FSDP_ERR_ARG);
    cr_expect(fsdp_optimizer_lr(run.optimizer) == high, "nothing was changed");
    fsdp_optimizer_set_lr_lambda(run.optimizer, broken, NULL);
    fsdp_err_clear(&err);
    steps(&run, 0, 1);
    cr_expect(step(&run, 1, &err) == FSDP_ERR_ARG);
    cr_expect_not_null(strstr(err.message, "update 2 is nan"), "%s", err.message);
    open_run(&one, context, high, -1, false);
    steps(&one, 0, 1);
    cr_expect(same(&one, &run), "the refused update changed nothing");
    cr_expect(fsdp_optimizer_step_count(run.optimizer) == 1);
    close_run(&one);
    close_run(&run);
}

Test(learning_rate, what_is_no_rate_is_refused_and_changes_nothing)
{
    world_run(1, refuse, NULL);
}

static double note_step(uint64_t done, void *user)
{
    *(uint64_t *)user = done;
    return 1.0;
}

static void resume(struct fsdp_context *context, void *user)
{
    const struct fsdp_checkpoint_state state = { .step = CHANGES_AT };
    struct fsdp_checkpoint_state found;
    char folder[] = "/tmp/fsdp-rate.XXXXXX", command[64];
    struct fsdp_err err = { 0 };
    uint64_t seen = UINT64_MAX;
    struct run saved, loaded;

    (void)user;
    cr_assert_not_null(mkdtemp(folder));
    open_run(&saved, context, high, -1, false);
    fsdp_optimizer_set_lr_lambda(saved.optimizer, note_step, &seen);
    cr_expect(fsdp_optimizer_lr(saved.optimizer) == high && seen == 0, "0 before the first update");
    steps(&saved, 0, CHANGES_AT);
    must(fsdp_optimizer_set_lr(saved.optimizer, low, &err), &err);
    must(fsdp_checkpoint_save(saved.model, saved.optimizer, folder, &state, 0, NULL, &err), &err);
    open_run(&loaded, context, high, -1, false);
    fsdp_optimizer_set_lr_lambda(loaded.optimizer, note_step, &seen);
    must(fsdp_checkpoint_load(loaded.model, loaded.optimizer, folder, -1, &found, &err), &err);
    cr_expect(fsdp_optimizer_lr(loaded.optimizer) == high, "a checkpoint holds no rate");
    cr_expect(seen == CHANGES_AT, "the function goes on at the loaded count of updates");
    snprintf(command, sizeof command, "rm -rf %s", folder);
    cr_expect(system(command) == 0);
    close_run(&saved);
    close_run(&loaded);
}

Test(learning_rate, a_checkpoint_holds_the_count_of_updates_and_no_rate)
{
    world_run(1, resume, NULL);
}

/*
 * A forecast against the model that is then made: the same bytes, at every world size.
 */
#include <criterion/criterion.h>
#include <fsdp/forecast.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/engine/rig.h"

struct case_of {
    struct tiny tiny;
    struct fsdp_model_options options;
    struct fsdp_forecast forecast;
    enum fsdp_optimizer_kind kind;
    size_t evaluation_batch; /* 0: nothing is evaluated */
    char *text;
};

static struct fsdp_forecast forecast_of(const struct case_of *c, int W)
{
    const struct fsdp_forecast_world world = {
        .size = W,
        .ranks_per_host = W,
        .threads = 1,
        .n_micro = c->options.accumulates ? 2 : 1,
        .evaluation_batch = c->evaluation_batch,
        .evaluation_seq = c->evaluation_batch > 0 ? c->tiny.seq : 0,
    };
    struct fsdp_optimizer_options optimizer = fsdp_optimizer_defaults();
    struct fsdp_err err = { 0 };
    struct fsdp_module *root = tiny_build(&c->tiny, &err);
    struct fsdp_forecast forecast;

    optimizer.kind = c->kind;
    must(fsdp_model_forecast(root, &c->options, &optimizer, &world, &forecast, &err), &err);
    fsdp_module_destroy(root);
    return forecast;
}

static void open_case(struct rig *rig, struct fsdp_context *context, const struct case_of *c)
{
    rig_init(rig, context);
    rig->tiny = c->tiny;
    rig->options = c->options;
    rig->updates.kind = c->kind;
    rig_open(rig);
}

static void compare(struct fsdp_context *context, void *user)
{
    const struct case_of *c = user;
    struct fsdp_memory memory;
    struct rig rig;

    open_case(&rig, context, c);
    if (c->evaluation_batch > 0)
        must(fsdp_model_prepare_evaluation(rig.model, c->evaluation_batch, c->tiny.seq, &rig.err), &rig.err);
    fsdp_model_memory(rig.model, &memory);

    cr_assert((memory.evaluation > 0) == (c->evaluation_batch > 0));
    cr_assert(memcmp(&memory, &c->forecast.memory, sizeof memory) == 0, "arena %zu, planned %zu",
              memory.arena, c->forecast.memory.arena);
    if (rig.rank == 0)
        cr_assert_eq(fsdp_optimizer_bytes(rig.optimizer), c->forecast.optimizer);
    else
        cr_assert(fsdp_optimizer_bytes(rig.optimizer) <= c->forecast.optimizer);
    rig_close(&rig);
}

Test(forecast, is_the_memory_of_the_model_that_is_made, .timeout = 1200)
{
    static const enum fsdp_reshard reshards[] = { FSDP_RESHARD_AUTO, FSDP_RESHARD_TRUE, FSDP_RESHARD_FALSE };

    setenv("FSDP_NUMERICS", "ref", 1); /* as world_run() has it */
    for (int W = 1; W <= 4; W++)
        for (int way = 0; way < 6; way++) {
            struct case_of c = { .tiny = tiny_defaults,
                                 .options = { .batch = 3, .seq = tiny_defaults.seq, .accumulates = way % 2 },
                                 .kind = way < 3 ? FSDP_ADAMW : FSDP_SGD };

            c.tiny.reshard = reshards[way % 3];
            c.tiny.keep_after_backward = way == 5;
            c.options.gradient_sync = way == 3 ? FSDP_SYNC_EVERY : FSDP_SYNC_LAST;
            c.evaluation_batch = way > 3 ? (size_t)way : 0;
            c.forecast = forecast_of(&c, W);
            world_run(W, compare, &c);
        }
}

static void compare_text(struct fsdp_context *context, void *user)
{
    const struct case_of *c = user;
    const char *program;
    struct rig rig;
    char *text;

    open_case(&rig, context, c);
    text = fsdp_model_plan_text(rig.model);
    program = strstr(c->text, "\n\n");
    cr_assert(text != NULL && program != NULL);
    cr_assert_str_eq(program + 2, text);
    free(text);
    rig_close(&rig);
}

Test(forecast, its_text_is_the_layout_and_the_program_of_the_model_that_is_made, .timeout = 1200)
{
    setenv("FSDP_NUMERICS", "ref", 1);
    for (int W = 1; W <= 3; W++) {
        struct case_of c = { .tiny = tiny_defaults, .options = { .batch = 2, .seq = tiny_defaults.seq } };
        const struct fsdp_forecast_world world = {
            .size = W, .ranks_per_host = W, .threads = 1, .n_micro = 1
        };
        struct fsdp_err err = { 0 };
        struct fsdp_module *root = tiny_build(&c.tiny, &err);

        must(fsdp_model_forecast_text(root, &c.options, NULL, &world, &c.text, &err), &err);
        cr_assert(strncmp(c.text, "# layout: ", 10) == 0);
        world_run(W, compare_text, &c);
        free(c.text);
        fsdp_module_destroy(root);
    }
}

/* 4 bytes of each padded element of parameters and of gradients, 8 of each element without padding. */
Test(forecast, state_is_the_formula_at_up_to_forty_ranks)
{
    const struct case_of c = { .tiny = tiny_defaults, .options = { .batch = 1, .seq = tiny_defaults.seq } };
    const struct tiny *t = &c.tiny;
    const size_t L = t->layers, shapes[][3] = {
        /* how many there are, rows, elements of a row */
        { 2, t->vocab, t->dim },  { 1, t->seq, t->dim }, { 2 + 5 * L, t->dim, 1 }, { 4 * L, t->dim, t->dim },
        { L, t->hidden, t->dim }, { L, t->hidden, 1 },   { L, t->dim, t->hidden }
    };

    for (size_t W = 1; W <= 40; W++) {
        const struct fsdp_forecast forecast = forecast_of(&c, (int)W);
        size_t padded = 0, own = 0;

        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            const size_t rows = (shapes[i][1] + W - 1) / W;

            padded += shapes[i][0] * rows * shapes[i][2];
            own += shapes[i][0] * (rows < shapes[i][1] ? rows : shapes[i][1]) * shapes[i][2];
        }
        cr_assert_eq(forecast.memory.parameters, 4 * padded, "W %zu", W);
        cr_assert_eq(forecast.memory.gradients, 4 * padded, "W %zu", W);
        cr_assert_eq(forecast.optimizer, 8 * own, "W %zu", W);
    }
}

Test(forecast, a_world_that_makes_no_sense_is_refused)
{
    static const struct fsdp_forecast_world worlds[] = {
        { .size = 0, .ranks_per_host = 1, .threads = 1, .n_micro = 1 },
        { .size = 4, .ranks_per_host = 3, .threads = 1, .n_micro = 1 },
        { .size = 4, .ranks_per_host = 2, .threads = 0, .n_micro = 1 },
        { .size = 4, .ranks_per_host = 2, .threads = 1, .n_micro = 0 },
        { .size = 4, .ranks_per_host = 2, .threads = 1, .n_micro = 2 },
        { .size = 4, .ranks_per_host = 2, .threads = 1, .n_micro = 1, .evaluation_batch = 2 },
    };
    const struct fsdp_model_options options = { .batch = 1, .seq = tiny_defaults.seq };
    struct fsdp_module *root = tiny_build(&tiny_defaults, NULL);

    for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
        struct fsdp_forecast forecast;
        char *text;

        cr_assert_eq(fsdp_model_forecast_text(root, &options, NULL, &worlds[i], &text, NULL), FSDP_ERR_ARG);
        cr_assert_null(text);
        cr_assert_eq(fsdp_model_forecast(root, &options, NULL, &worlds[i], &forecast, NULL), FSDP_ERR_ARG,
                     "%zu", i);
    }
    fsdp_module_destroy(root);
}

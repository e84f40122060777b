/* Learning rates, decay rules and refusals. The arithmetic itself is tested with numerics and by parity. */
#include <criterion/criterion.h>
#include <math.h>

#include "shard_runtime/optim/optim.h"

static struct fsdp_optimizer_options schedule(enum fsdp_schedule kind)
{
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();

    options.lr = 2.0;
    options.schedule = kind;
    options.warmup_steps = 4;
    options.total_steps = 14;
    return options;
}

Test(schedule, warms_up_in_equal_steps)
{
    for (int kind = FSDP_CONSTANT; kind <= FSDP_COSINE; kind++) {
        const struct fsdp_optimizer_options options = schedule((enum fsdp_schedule)kind);

        for (uint64_t step = 1; step <= 4; step++)
            cr_expect(fabs(fsdp_schedule_lr(&options, step) - 0.5 * (double)step) < 1e-15);
        cr_expect(fsdp_schedule_lr(&options, 5) == 2.0, "full rate right after the warm-up");
    }
}

Test(schedule, constant_stays_and_the_others_fall_to_nothing)
{
    const struct fsdp_optimizer_options constant = schedule(FSDP_CONSTANT), linear = schedule(FSDP_LINEAR),
                                        cosine = schedule(FSDP_COSINE);

    for (uint64_t step = 6; step <= 14; step++) {
        const double done = (double)(step - 5) / 10;

        cr_expect(fsdp_schedule_lr(&constant, step) == 2.0);
        cr_expect(fabs(fsdp_schedule_lr(&linear, step) - 2.0 * (1 - done)) < 1e-15);
        cr_expect(fabs(fsdp_schedule_lr(&cosine, step) - (1 + cos(3.14159265358979323846 * done))) < 1e-14);
        cr_expect(fsdp_schedule_lr(&linear, step) < fsdp_schedule_lr(&linear, step - 1));
        cr_expect(fsdp_schedule_lr(&cosine, step) < fsdp_schedule_lr(&cosine, step - 1));
    }
    cr_expect(fsdp_schedule_lr(&linear, 15) == 0 && fsdp_schedule_lr(&cosine, 1000) == 0);
    cr_expect(fsdp_schedule_lr(&constant, 1000) == 2.0);
}

Test(schedule, without_a_warm_up_begins_at_the_full_rate)
{
    struct fsdp_optimizer_options options = schedule(FSDP_LINEAR);

    options.warmup_steps = 0;
    cr_expect(fsdp_schedule_lr(&options, 1) == 2.0);
    cr_expect(fsdp_schedule_lr(&options, 0) == 0.0);
}

Test(optim, decay_takes_all_or_matrices)
{
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();

    cr_expect(optim_decay(&options, 1) == 0.1 && optim_decay(&options, 2) == 0.1);
    options.decay = FSDP_DECAY_MATRICES;
    cr_expect(optim_decay(&options, 1) == 0 && optim_decay(&options, 2) == 0.1 &&
              optim_decay(&options, 3) == 0.1);
}

Test(optim, state_is_two_for_adamw_and_one_for_momentum)
{
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();

    cr_expect(optim_find(FSDP_ADAMW)->n_states(&options) == 2);
    cr_expect(optim_find(FSDP_SGD)->n_states(&options) == 0);
    options.momentum = 0.9;
    cr_expect(optim_find(FSDP_SGD)->n_states(&options) == 1);
    cr_expect_str_eq(optim_find(FSDP_ADAMW)->state_names[1], "exp_avg_sq");
    cr_expect_str_eq(optim_find(FSDP_SGD)->state_names[0], "momentum_buffer");
}

Test(optim, numbers_out_of_range_are_refused)
{
    const struct fsdp_optimizer_options sound = fsdp_optimizer_defaults();
    struct fsdp_optimizer_options bad[9];

    for (int i = 0; i < 9; i++)
        bad[i] = sound;
    bad[0].lr = -1;
    bad[1].lr = NAN;
    bad[2].betas[0] = 1;
    bad[3].betas[1] = -0.1;
    bad[4].eps = INFINITY;
    bad[5].weight_decay = -1;
    bad[6].kind = FSDP_SGD;
    bad[6].momentum = NAN;
    bad[7].schedule = FSDP_COSINE;
    bad[8].kind = (enum fsdp_optimizer_kind)7;

    cr_expect(optim_check(&sound, NULL) == FSDP_OK);
    for (int i = 0; i < 9; i++)
        cr_expect(optim_check(&bad[i], NULL) == FSDP_ERR_ARG, "case %d", i);
}

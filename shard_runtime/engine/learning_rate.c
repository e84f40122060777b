/*
 * The learning rate of an optimizer while a program runs: the schedule of its options, or a function of the
 * program's; and the rates that both scale, which the program may change between steps.
 */
#include "shard_runtime/engine/optimizer.h"

#include "shard_runtime/core/require.h"

double optimizer_rate(const struct fsdp_optimizer *optimizer, const struct fsdp_optimizer_options *options)
{
    return optimizer->lr_lambda != NULL
               ? options->lr * optimizer->lr_lambda(optimizer->step, optimizer->lr_user)
               : fsdp_schedule_lr(options, optimizer->step + 1);
}

enum fsdp_status optimizer_check_rates(const struct fsdp_optimizer *optimizer, struct fsdp_err *err)
{
    for (int i = 0; i < optimizer->n_tensors && optimizer->lr_lambda != NULL; i++) {
        const double rate = optimizer_rate(optimizer, &optimizer->of[i]);

        if (!optim_is_rate(rate))
            return fsdp_fail(err, FSDP_ERR_ARG,
                             "the learning rate of update %llu is %g by the function of "
                             "fsdp_optimizer_set_lr_lambda(): no number from 0 on",
                             (unsigned long long)optimizer->step + 1, rate);
    }
    return FSDP_OK;
}

double fsdp_optimizer_lr(const struct fsdp_optimizer *optimizer)
{
    return optimizer != NULL ? optimizer_rate(optimizer, &optimizer->options) : 0;
}

static enum fsdp_status check_rate(double lr, struct fsdp_err *err)
{
    return optim_is_rate(lr) ? FSDP_OK
                             : fsdp_fail(err, FSDP_ERR_ARG, "optimizer: lr %g is no number from 0 on", lr);
}

enum fsdp_status fsdp_optimizer_set_lr(struct fsdp_optimizer *optimizer, double lr, struct fsdp_err *err)
{
    REQUIRE(optimizer, err);

    OK_OR_RETURN(check_rate(lr, err));
    optimizer->options.lr = lr;
    for (int i = 0; i < optimizer->n_tensors; i++)
        if (!optimizer->lr_groups[i].own_lr)
            optimizer->of[i].lr = lr;
    return FSDP_OK;
}

enum fsdp_status fsdp_optimizer_set_group_lr(struct fsdp_optimizer *optimizer, size_t group, double lr,
                                             struct fsdp_err *err)
{
    REQUIRE(optimizer, err);

    OK_OR_RETURN(check_rate(lr, err));
    if (group >= optimizer->options.n_groups)
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: there is no group %zu, but %zu of them", group,
                         optimizer->options.n_groups);
    for (int i = 0; i < optimizer->n_tensors; i++)
        if (optimizer->lr_groups[i].index == (int)group) {
            optimizer->lr_groups[i].own_lr = true;
            optimizer->of[i].lr = lr;
        }
    return FSDP_OK;
}

void fsdp_optimizer_set_lr_lambda(struct fsdp_optimizer *optimizer, fsdp_lr_lambda_fn lr_lambda, void *user)
{
    if (optimizer == NULL)
        return;
    optimizer->lr_lambda = lr_lambda;
    optimizer->lr_user = user;
}

#include "shard_runtime/optim/rates.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/optim/optim.h"

/* Checks that every pattern matches a parameter; one that matches none is a mistake of the caller. */
static enum fsdp_status check_groups(const struct fsdp_optimizer_options *options, const char *const *names,
                                     int n_names, struct fsdp_err *err)
{
    for (size_t g = 0; g < options->n_groups; g++) {
        bool found = false;

        if (options->groups == NULL || options->groups[g].pattern == NULL || isnan(options->groups[g].lr) ||
            isnan(options->groups[g].weight_decay))
            return fsdp_fail(err, FSDP_ERR_ARG, "optimizer group %zu: no pattern, or what is no number", g);
        for (int i = 0; i < n_names && !found; i++)
            found = fnmatch(options->groups[g].pattern, names[i], 0) == 0;
        if (!found)
            return fsdp_fail(err, FSDP_ERR_ARG, "optimizer group \"%s\": no parameter has such a name",
                             options->groups[g].pattern);
    }
    return FSDP_OK;
}

enum fsdp_status optim_rates_init(struct optim_rates *rates, const struct fsdp_optimizer_options *options,
                                  const char *const *names, int n_names, struct fsdp_err *err)
{
    *rates = (struct optim_rates){ .general = *options };
    OK_OR_RETURN(check_groups(options, names, n_names, err));
    rates->of = alloc_array((size_t)n_names, sizeof *rates->of);
    return rates->of != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_NOMEM, "an optimizer: out of memory");
}

void optim_rates_fini(struct optim_rates *rates)
{
    free(rates->of);
}

void optim_rates_add(struct optim_rates *rates, const char *name)
{
    struct optim_own *own = &rates->of[rates->n_tensors++];

    *own = (struct optim_own){ .options = rates->general, .group = -1 };
    own->options.groups = NULL;
    own->options.n_groups = 0;
    for (size_t g = 0; g < rates->general.n_groups && own->group < 0; g++) {
        const struct fsdp_optimizer_group *group = &rates->general.groups[g];

        if (fnmatch(group->pattern, name, 0) != 0)
            continue;
        own->group = (int)g;
        own->own_lr = group->lr >= 0;
        if (own->own_lr)
            own->options.lr = group->lr;
        if (group->weight_decay >= 0) {
            own->options.weight_decay = group->weight_decay;
            own->options.decay = FSDP_DECAY_ALL; /* the group sets the decay for exactly these parameters */
        }
    }
}

double optim_rate(const struct optim_rates *rates, const struct fsdp_optimizer_options *options,
                  uint64_t step)
{
    return rates->lr_lambda != NULL ? options->lr * rates->lr_lambda(step, rates->lr_user)
                                    : fsdp_schedule_lr(options, step + 1);
}

enum fsdp_status optim_rates_check(const struct optim_rates *rates, uint64_t step, struct fsdp_err *err)
{
    for (int i = 0; i < rates->n_tensors && rates->lr_lambda != NULL; i++) {
        const double rate = optim_rate(rates, &rates->of[i].options, step);

        if (!optim_is_rate(rate))
            return fsdp_fail(err, FSDP_ERR_ARG,
                             "the learning rate of update %llu is %g by the function of "
                             "fsdp_optimizer_set_lr_lambda(): no number from 0 on",
                             (unsigned long long)step + 1, rate);
    }
    return FSDP_OK;
}

static enum fsdp_status check_rate(double lr, struct fsdp_err *err)
{
    return optim_is_rate(lr) ? FSDP_OK
                             : fsdp_fail(err, FSDP_ERR_ARG, "optimizer: lr %g is no number from 0 on", lr);
}

enum fsdp_status optim_rates_set(struct optim_rates *rates, double lr, struct fsdp_err *err)
{
    OK_OR_RETURN(check_rate(lr, err));
    rates->general.lr = lr;
    for (int i = 0; i < rates->n_tensors; i++)
        if (!rates->of[i].own_lr)
            rates->of[i].options.lr = lr;
    return FSDP_OK;
}

enum fsdp_status optim_rates_set_group(struct optim_rates *rates, size_t group, double lr,
                                       struct fsdp_err *err)
{
    OK_OR_RETURN(check_rate(lr, err));
    if (group >= rates->general.n_groups)
        return fsdp_fail(err, FSDP_ERR_ARG, "optimizer: there is no group %zu, but %zu of them", group,
                         rates->general.n_groups);
    for (int i = 0; i < rates->n_tensors; i++)
        if (rates->of[i].group == (int)group) {
            rates->of[i].own_lr = true;
            rates->of[i].options.lr = lr;
        }
    return FSDP_OK;
}

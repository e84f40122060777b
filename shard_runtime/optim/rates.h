/*
 * The options of each tensor of an optimizer, and its learning rate. A group of options applies to the
 * tensors whose names match its pattern. The schedule, or a function of the program, scales all rates; the
 * program may change a rate between updates. Nothing here knows a model or the values of a tensor.
 *
 * Thread: one at a time.
 */
#ifndef OPTIM_RATES_H
#define OPTIM_RATES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/optimizer.h>

struct optim_rates {
    /*
     * The options of a tensor that no group applies to. Its list of groups and its directory are the
     * caller's.
     */
    struct fsdp_optimizer_options general;
    struct optim_own {
        /* the general options, overridden by those of the tensor's group */
        struct fsdp_optimizer_options options;
        int group;   /* index of the group that applies to the tensor; -1: none */
        bool own_lr; /* the tensor's group has a learning rate of its own */
    } * of;          /* one for each tensor */
    int n_tensors;
    fsdp_lr_lambda_fn lr_lambda; /* replaces the schedule; NULL: the schedule applies */
    void *lr_user;
};

/**
 * Makes room for the options of up to `n_names` tensors. names[0] ... names[n_names - 1] are the names of all
 * parameters of the model, also of those that are not trained.
 *   FSDP_ERR_ARG    a group has no pattern, a setting that is not a number, or a pattern that matches no name
 *   FSDP_ERR_NOMEM  there is no memory
 * Call optim_rates_fini() also after an error.
 */
enum fsdp_status optim_rates_init(struct optim_rates *rates, const struct fsdp_optimizer_options *options,
                                  const char *const *names, int n_names, struct fsdp_err *err);
/** Frees what optim_rates_init() allocated. */
void optim_rates_fini(struct optim_rates *rates);

/** Adds the next tensor; its options follow from its name. Reads the caller's list of groups. */
void optim_rates_add(struct optim_rates *rates, const char *name);

/**
 * Returns the learning rate of update number `step` + 1. `options` is `general`, or the options of a tensor.
 */
double optim_rate(const struct optim_rates *rates, const struct fsdp_optimizer_options *options,
                  uint64_t step);
/**
 * Checks the rates of all tensors in update number `step` + 1. FSDP_ERR_ARG: the program's function returns a
 * rate that is negative or not finite.
 */
enum fsdp_status optim_rates_check(const struct optim_rates *rates, uint64_t step, struct fsdp_err *err);

/**
 * Sets the rate of all tensors without a rate of their own. FSDP_ERR_ARG: `lr` is negative or not finite;
 * nothing was changed.
 */
enum fsdp_status optim_rates_set(struct optim_rates *rates, double lr, struct fsdp_err *err);
/** Sets the rate of the tensors of one group. FSDP_ERR_ARG also if there is no such group. */
enum fsdp_status optim_rates_set_group(struct optim_rates *rates, size_t group, double lr,
                                       struct fsdp_err *err);

#endif

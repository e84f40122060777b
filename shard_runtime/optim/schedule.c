/*
 * The learning rate of an update is a function of its number alone, so that a resumed run has the same one.
 */
#include <math.h>

#include "shard_runtime/optim/optim.h"

double fsdp_schedule_lr(const struct fsdp_optimizer_options *options, uint64_t step)
{
    const uint64_t warmup = options != NULL ? options->warmup_steps : 0;
    double done;

    if (options == NULL)
        return 0.0;
    if (step <= warmup)
        return options->lr * (double)step / (double)(warmup > 0 ? warmup : 1);
    if (options->schedule == FSDP_CONSTANT)
        return options->lr;
    if (options->total_steps <= warmup || step > options->total_steps)
        return 0.0;
    /*
     * The first update after the warm-up has the full rate. An update after the last one would have rate 0.
     */
    done = (double)(step - warmup - 1) / (double)(options->total_steps - warmup);
    return options->lr * (options->schedule == FSDP_LINEAR ? 1.0 - done : 0.5 * (1.0 + cos(M_PI * done)));
}

#include "shard_runtime/plan/divide.h"

struct plan_division plan_divide(int W, int R, double factor, bool force_sum)
{
    struct plan_division rule = { 1.0f, FSDP_MEAN, FSDP_MEAN, 1.0f };

    if (force_sum) {
        rule.reduce = rule.all_reduce = FSDP_SUM;
        rule.after = (float)(1.0 / (factor > 0 ? factor : (double)W * R));
    } else if (factor > 0) {
        /*
         * A mean over W ranks is a sum divided by W. If the factor happens to be W, the mean does the
         * division, without a pass of its own.
         */
        rule.all_reduce = FSDP_SUM;
        if (factor != (double)W || W == 1) {
            rule.reduce = FSDP_SUM;
            rule.before = (float)(1.0 / factor);
        }
    }
    return rule;
}

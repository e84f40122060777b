#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/ckpt/import_name.h"

static const char *const buffers[] = { "h.*.attn.bias" };
static const struct import_names gpt2 = { .prefixes = { NULL, "model.", "transformer." },
                                          .passed_over = buffers,
                                          .n_passed_over = 1 };

static void is(const struct import_names *names, const char *name, enum import_kind kind, const char *ours)
{
    char out[IMPORT_NAME_BYTES];

    cr_expect(eq(int, import_name(names, name, out), kind), "%s", name);
    if (kind == IMPORT_WEIGHT || kind == IMPORT_STATE)
        cr_expect(eq(str, out, (char *)ours), "%s", name);
}

Test(import_name, prefixes_are_taken_away_once_and_in_their_order)
{
    is(&gpt2, "wte.weight", IMPORT_WEIGHT, "wte.weight");
    is(&gpt2, "transformer.wte.weight", IMPORT_WEIGHT, "wte.weight");
    is(&gpt2, "model.transformer.wte.weight", IMPORT_WEIGHT, "wte.weight");
    is(&gpt2, "model.model.wte.weight", IMPORT_WEIGHT, "model.wte.weight");
    is(&(struct import_names){ .prefixes = { "net." } }, "net.a", IMPORT_WEIGHT, "a");
    is(&(struct import_names){ .prefixes = { NULL } }, "model.a", IMPORT_WEIGHT, "model.a");
}

Test(import_name, states_of_pytorch_and_of_ours_are_known)
{
    is(&gpt2, "optim.state.model.transformer.wte.weight.exp_avg", IMPORT_STATE,
       "optimizer.exp_avg.wte.weight");
    is(&gpt2, "optimizer.state.wte.weight.exp_avg_sq", IMPORT_STATE, "optimizer.exp_avg_sq.wte.weight");
    is(&gpt2, "state.wte.weight.momentum_buffer", IMPORT_STATE, "optimizer.momentum_buffer.wte.weight");
    is(&gpt2, "optimizer.exp_avg.wte.weight", IMPORT_STATE, "optimizer.exp_avg.wte.weight");
    is(&gpt2, "optimizer.exp_avg_sq.wte.weight", IMPORT_STATE, "optimizer.exp_avg_sq.wte.weight");
    is(&gpt2, "optim.state.wte.weight.step", IMPORT_STEP, "");
}

Test(import_name, what_is_no_weight_is_passed_over)
{
    is(&gpt2, "transformer.h.3.attn.bias", IMPORT_OTHER, "");
    is(&gpt2, "optim.param_groups.wte.weight.lr", IMPORT_OTHER, "");
    is(&gpt2, "optim.state.wte.weight.max_exp_avg_sq", IMPORT_OTHER, "");
    is(&gpt2, "optimizer.other.wte.weight", IMPORT_OTHER, "");
    is(&gpt2, "optim.state.exp_avg", IMPORT_OTHER, "");
    is(&gpt2, "model.", IMPORT_OTHER, "");
}

Test(import_name, a_name_of_any_length_fits_or_is_passed_over)
{
    char *name = calloc(1, 4096), out[IMPORT_NAME_BYTES];

    for (size_t n = 1; n < 4000; n++) {
        memset(name, 'a', n);
        memcpy(name, "optim.state.", n < 12 ? n : 12);
        if (n > 30)
            memcpy(name + n - 8, ".exp_avg", 8);
        if (import_name(&gpt2, name, out) == IMPORT_STATE)
            cr_assert(n < IMPORT_NAME_BYTES + 16);
    }
    free(name);
}

/* The umbrella header stands alone and gives everything a training program names. */
#include <fsdp/fsdp.h>

#include <criterion/criterion.h>

Test(headers, the_umbrella_is_self_contained)
{
    struct fsdp_model_options options = { .batch = 1, .seq = 1 };
    struct fsdp_batch batch = { 0 };

    cr_assert(options.input_features == 0 && options.gradient_sync == FSDP_SYNC_LAST);
    cr_assert(batch.targets == NULL && FSDP_IGNORED_TARGET == -100);
}

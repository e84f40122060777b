/*
 * The cuda row of the numerics table against the reference, on random inputs; and the collectives of a group
 * of one. Linked with libfsdp. Opens the device as a program does: with a GPU it is the GPU's, with
 * FSDP_CUDA_PLUGIN the emulated one. A line for each operation: "ok - NAME", "not ok - NAME: how far" or
 * "skip - NAME: reason". The checks are in tests/support/oracles/cuda_row.
 *
 *   cuda_numerics [GROUP]     one of products, kernels, attention, lists, collectives; all of them without
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/oracles/cuda_row/row.h"

static void check_plugin_collectives(void)
{
    check_collectives(plugin->collectives);
}

static const struct group {
    const char *name;
    void (*check)(void);
} groups[] = {
    { "products", check_products },
    { "kernels", check_kernels },
    { "attention", check_attention },
    { "lists", check_lists },
    { "collectives", check_plugin_collectives },
};
enum { N_GROUPS = sizeof groups / sizeof *groups };

int main(int argc, char **argv)
{
    const char *wanted = argc > 1 ? argv[1] : NULL;
    bool known = wanted == NULL;
    char words[200];

    (void)setenv("FSDP_CUDA_EPILOGUES", "all", 0); /* every way there is */
    for (int i = 0; i < N_GROUPS; i++)
        known = known || strcmp(wanted, groups[i].name) == 0;
    if (!known) {
        fprintf(stderr, "cuda_numerics: there is no group %s\n", wanted);
        return 2;
    }
    open_device();
    require(open_row(&cuda));
    device.ops->describe(&device, words, sizeof words);
    printf("# %s\n", words);
    find_tally();
    for (int i = 0; i < N_GROUPS; i++)
        if (wanted == NULL || strcmp(wanted, groups[i].name) == 0)
            groups[i].check();
    numerics_close(&cuda);
    close_device();
    return n_failed > 0;
}

/* The cuda row of the numerics table against the reference, on random inputs; then the collectives of a group of one. Linked with libfsdp.
 * Opens the device as a program does: with a GPU it is the GPU's, with FSDP_CUDA_PLUGIN the emulated one. A line for each operation:
 * "ok - NAME" or "not ok - NAME: how far". The checks are in tests/support/cuda_row.
 */
#include <stdio.h>

#include "shard_runtime/device/plugin.h"
#include "tests/support/cuda_row/row.h"

int main(void)
{
    const struct plugin *plugin;
    const struct device_config config = { .name = "cuda", .plugin = &plugin };
    char words[200];

    require(device_open(&device, &config, &err));
    require(device.ops->stream_create(&device, &stream, false, &err));
    require(numerics_open(
        &cuda, &(struct numerics_config){ .threads = 1, .row = plugin->numerics, .device = &device }, &err));
    require(numerics_open(&ref, &(struct numerics_config){ .threads = 1, .name = "ref" }, &err));
    device.ops->describe(&device, words, sizeof words);
    printf("# %s\n", words);
    find_tally();
    check_products();
    check_kernels();
    check_attention();
    check_lists();
    check_collectives(plugin->collectives);
    numerics_close(&ref);
    numerics_close(&cuda);
    device.ops->stream_destroy(stream);
    device_close(&device);
    return n_failed > 0;
}

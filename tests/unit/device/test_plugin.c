/* The plug-in that is not there, or is something else: words for each, and the cpu where that will do. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/device/device.h"
#include "shard_runtime/device/plugin.h"

static void arrange(const char *driver, const char *plugin)
{
    setenv("FSDP_CUDA_DRIVER", driver, 1);
    setenv("FSDP_CUDA_PLUGIN", plugin, 1);
}

Test(device_plugin, without_a_driver_is_no_gpu_and_no_plugin_is_sought)
{
    const struct plugin *plugin = (const struct plugin *)"left alone";
    struct fsdp_err err = { 0 };

    arrange("no-such-driver.so", BUILD_DIR "/there-is-none.so");

    cr_assert(eq(int, plugin_open(&plugin, &err), FSDP_ERR_NOT_FOUND));
    cr_assert(plugin == NULL);
    cr_assert(strstr(err.message, "no CUDA driver") != NULL, "%s", err.message);
}

Test(device_plugin, a_driver_without_a_plugin_says_so)
{
    const struct plugin *plugin;
    struct fsdp_err err = { 0 };

    arrange("libc.so.6", BUILD_DIR "/there-is-none.so");

    cr_assert(eq(int, plugin_open(&plugin, &err), FSDP_ERR_UNSUPPORTED));
    cr_assert(strstr(err.message, "there-is-none.so") != NULL, "%s", err.message);
}

Test(device_plugin, another_library_is_no_plugin)
{
    const struct plugin *plugin;
    struct fsdp_err err = { 0 };

    arrange("libc.so.6", "libm.so.6");

    cr_assert(eq(int, plugin_open(&plugin, &err), FSDP_ERR_UNSUPPORTED));
    cr_assert(strstr(err.message, "libm.so.6 is no plug-in") != NULL, "%s", err.message);
}

Test(device_plugin, auto_takes_the_cpu_and_keeps_the_reason)
{
    struct fsdp_err err = { 0 }, refusal = { 0 };
    const struct device_config config = { .name = "auto", .refusal = &refusal };
    struct device device;

    arrange("libc.so.6", "libm.so.6");

    cr_assert(eq(int, device_open(&device, &config, &err), FSDP_OK));
    cr_assert(eq(str, (char *)device.ops->name, "cpu"));
    cr_assert(strstr(refusal.message, "device auto takes the cpu: libm") != NULL, "%s", refusal.message);
    device_close(&device);
}

Test(device_plugin, auto_without_a_driver_has_nothing_to_say)
{
    struct fsdp_err err = { 0 }, refusal = { .status = FSDP_ERR_IO, .message = "of another time" };
    const struct device_config config = { .name = "auto", .refusal = &refusal };
    struct device device;

    arrange("no-such-driver.so", "");

    cr_assert(eq(int, device_open(&device, &config, &err), FSDP_OK));
    cr_assert(eq(str, refusal.message, ""));
    device_close(&device);
}

Test(device_plugin, cuda_that_cannot_be_is_an_error)
{
    struct fsdp_err err = { 0 };
    const struct device_config config = { .name = "cuda" };
    struct device device;

    arrange("no-such-driver.so", "");

    cr_assert(eq(int, device_open(&device, &config, &err), FSDP_ERR_UNSUPPORTED));
    cr_assert(strstr(err.message, "device cuda: no CUDA driver") != NULL, "%s", err.message);
}

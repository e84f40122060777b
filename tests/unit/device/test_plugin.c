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

Test(device_plugin, that_cannot_be_opened_says_why)
{
    static const struct {
        const char *driver, *plugin, *words;
        enum fsdp_status status;
    } cases[] = {
        { "no-such-driver.so", BUILD_DIR "/there-is-none.so", "no CUDA driver", FSDP_ERR_NOT_FOUND },
        { "libc.so.6", BUILD_DIR "/there-is-none.so", "there-is-none.so", FSDP_ERR_UNSUPPORTED },
        { "libc.so.6", "libm.so.6", "libm.so.6 is no plug-in", FSDP_ERR_UNSUPPORTED },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct plugin *plugin = (const struct plugin *)"left alone";
        struct fsdp_err err = { 0 };

        arrange(cases[i].driver, cases[i].plugin);
        cr_expect(eq(int, plugin_open(&plugin, &err), cases[i].status), "%s", cases[i].words);
        cr_expect(plugin == NULL && strstr(err.message, cases[i].words) != NULL, "%s", err.message);
    }
}

Test(device_plugin, is_the_cpus_reason_where_the_device_is_chosen_and_an_error_where_it_is_named)
{
    static const struct {
        const char *device, *driver, *plugin, *words; /* of the refusal, or of the error */
        enum fsdp_status status;
    } cases[] = {
        { "auto", "libc.so.6", "libm.so.6", "device auto takes the cpu: libm", FSDP_OK },
        { "auto", "no-such-driver.so", "", "", FSDP_OK },
        { "cuda", "no-such-driver.so", "", "device cuda: no CUDA driver", FSDP_ERR_UNSUPPORTED },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fsdp_err err = { 0 }, refusal = { .status = FSDP_ERR_IO, .message = "of another time" };
        const char *words = cases[i].status == FSDP_OK ? refusal.message : err.message;
        struct device device;

        arrange(cases[i].driver, cases[i].plugin);
        cr_assert(
            eq(int,
               device_open(&device, &(struct device_config){ .name = cases[i].device, .refusal = &refusal },
                           &err),
               cases[i].status));
        cr_expect(strncmp(words, cases[i].words, strlen(cases[i].words)) == 0, "%s", words);
        cr_expect_eq(words[0] == '\0', cases[i].words[0] == '\0', "%s", words);
        if (cases[i].status == FSDP_OK) {
            cr_expect(eq(str, (char *)device.ops->name, "cpu"));
            device_close(&device);
        }
    }
}

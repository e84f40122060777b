#include "agent/placement/gpu.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/small_file.h"
#include "agent/placement/gpu_impl.h"

void gpu_host_init(struct gpu_host *host, const char *(*get_env)(void *arg, const char *name), void *arg)
{
    const char *root = get_env(arg, "FSDP_TEST_ROOT");

    *host = (struct gpu_host){ .root = root == NULL ? "" : root,
                               .nvml = get_env(arg, "FSDP_TEST_NVML"),
                               .get_env = get_env,
                               .arg = arg };
}

/* Writes the path below the root. Returns false if it is too long. */
static bool join(const struct gpu_host *host, char out[GPU_PATH_BYTES], const char *format, va_list args)
{
    int root = snprintf(out, GPU_PATH_BYTES, "%s", host->root), n;

    if (root >= GPU_PATH_BYTES)
        return false;
    n = vsnprintf(out + root, (size_t)(GPU_PATH_BYTES - root), format, args);
    return n >= 0 && n < GPU_PATH_BYTES - root;
}

bool gpu_read(const struct gpu_host *host, char *out, size_t size, const char *format, ...)
{
    char path[GPU_PATH_BYTES];
    va_list args;
    bool joined;

    va_start(args, format);
    joined = join(host, path, format, args);
    va_end(args);
    return joined && small_file_read(out, size, "%s", path);
}

bool gpu_may_open(const struct gpu_host *host, const char *format, ...)
{
    char path[GPU_PATH_BYTES];
    va_list args;
    bool may;

    va_start(args, format);
    may = join(host, path, format, args) && access(path, R_OK | W_OK) == 0;
    va_end(args);
    return may;
}

void gpu_find(struct gpu_list *out, enum gpu_want want, const struct gpu_host *host)
{
    static const char *const none[] = {
        [GPU_WANT_ANY] =
            "no driver shows one (/proc/driver/nvidia, /dev/nvidia0, /sys/class/kfd, /sys/class/drm)",
        [GPU_WANT_GPU] = "no driver shows one (/proc/driver/nvidia, /dev/nvidia0, /sys/class/kfd)",
        [GPU_WANT_CUDA] = "no driver of NVIDIA's shows one (/proc/driver/nvidia, /dev/nvidia0)",
        [GPU_WANT_XPU] = "no driver of Intel's shows one under /sys/class/drm",
    };
    const bool any = want == GPU_WANT_ANY;

    memset(out, 0, sizeof *out);
    if ((any || want == GPU_WANT_GPU || want == GPU_WANT_CUDA) && gpu_nvidia(out, host))
        return;
    if ((any || want == GPU_WANT_GPU) && gpu_amd(out, host))
        return;
    if ((any || want == GPU_WANT_XPU) && gpu_intel(out, host))
        return;
    snprintf(out->why, sizeof out->why, "%s", none[want]);
}

#include "launcher/devices.h"

#include <stdio.h>
#include <string.h>

#include "agent/os/environment.h"
#include "agent/placement/gpu.h"

int devices_count(void *arg, const char *word, bool one_each, char *why, size_t why_bytes)
{
    enum gpu_want want = strcmp(word, "gpu") == 0    ? GPU_WANT_GPU
                         : strcmp(word, "cuda") == 0 ? GPU_WANT_CUDA
                         : strcmp(word, "xpu") == 0  ? GPU_WANT_XPU
                                                     : GPU_WANT_ANY;
    struct gpu_host host;
    struct gpu_list list;

    (void)arg;
    gpu_host_init(&host, environment_get, NULL);
    host.one_each = one_each;
    gpu_find(&list, want, &host);
    snprintf(why, why_bytes, "%s", list.why);
    return list.n;
}

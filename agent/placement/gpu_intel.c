/* Intel's GPUs: the render nodes of /sys/class/drm whose device is Intel's, cut to ZE_AFFINITY_MASK. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/small_file.h"
#include "agent/placement/gpu_impl.h"
#include "agent/placement/gpu_visible.h"

/*
 * Finds the PCI address of a render node. Its file "device" is a link to the folder of the PCI device, and
 * the name of that folder is the PCI address.
 */
static void pci_of(const struct gpu_host *host, const char *node, char out[GPU_PCI_BYTES])
{
    char path[GPU_PATH_BYTES], target[GPU_PATH_BYTES];
    const char *slash;
    ssize_t n;

    out[0] = '\0';
    if (snprintf(path, sizeof path, "%s/sys/class/drm/%s/device", host->root, node) >= (int)sizeof path)
        return;
    n = readlink(path, target, sizeof target - 1);
    if (n <= 0)
        return;
    target[n] = '\0';
    slash = strrchr(target, '/');
    snprintf(out, GPU_PCI_BYTES, "%.*s", GPU_PCI_BYTES - 1, slash == NULL ? target : slash + 1);
}

bool gpu_intel(struct gpu_list *out, const struct gpu_host *host)
{
    const char *mask = host->get_env(host->arg, "ZE_AFFINITY_MASK");
    struct gpu found[GPU_MAX];
    char names[1024][64], vendor[16];
    int picked[GPU_MAX], n = 0, n_hidden = 0,
                         n_names = small_file_list(host->root, "/sys/class/drm", names, 1024);

    for (int i = 0; i < n_names && n < GPU_MAX; i++) {
        if (strncmp(names[i], "renderD", strlen("renderD")) != 0 ||
            !gpu_read(host, vendor, sizeof vendor, "/sys/class/drm/%s/device/vendor", names[i]) ||
            strncmp(vendor, "0x8086", strlen("0x8086")) != 0)
            continue;
        if (gpu_may_open(host, "/dev/dri/%s", names[i]))
            pci_of(host, names[i], found[n++].pci);
        else
            n_hidden++;
    }
    if (n == 0) {
        snprintf(out->why, sizeof out->why, "this process may open none of the %d under /dev/dri", n_hidden);
        return n_hidden > 0;
    }
    out->n = gpu_visible_pick("ZE_AFFINITY_MASK", mask, NULL, n, picked, GPU_MAX, out->why, sizeof out->why);
    for (int i = 0; i < out->n; i++)
        out->gpus[i] = found[picked[i]];
    return true;
}

/*
 * AMD's GPUs: the nodes of /sys/class/kfd that have compute units. ROCR_VISIBLE_DEVICES is applied first,
 * then HIP_VISIBLE_DEVICES (or CUDA_VISIBLE_DEVICES, which HIP reads too) to the remaining ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/small_file.h"
#include "agent/placement/gpu_impl.h"
#include "agent/placement/gpu_visible.h"

struct amd {
    int n;
    struct amd_device {
        char pci[GPU_PCI_BYTES], name[32];
    } devices[GPU_MAX];
};

/* The number after `key` at the beginning of a line of the node's properties; 0 if there is no such line. */
static unsigned long long property(const char *text, const char *key)
{
    const size_t length = strlen(key);

    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        line += *line == '\n';
        if (strncmp(line, key, length) == 0 && line[length] == ' ')
            return strtoull(line + length, NULL, 10);
    }
    return 0;
}

static void look(struct amd *found, const struct gpu_host *host, int *n_hidden)
{
    static const char folder[] = "/sys/class/kfd/kfd/topology/nodes";
    char names[GPU_MAX][64];
    int n = small_file_list(host->root, folder, names, GPU_MAX);

    for (int number = 0, left = n; left > 0 && number < 100000;
         number++) { /* in numeric order: "10" comes after "9" */
        struct amd_device *device = &found->devices[found->n];
        char text[8192], name[16];
        unsigned long long where;
        int i;

        snprintf(name, sizeof name, "%d", number);
        for (i = 0; i < n && strcmp(names[i], name) != 0; i++)
            ;
        if (i == n)
            continue;
        left--;
        if (!gpu_read(host, text, sizeof text, "%s/%s/properties", folder, name) ||
            property(text, "simd_count") == 0)
            continue; /* a CPU */
        if (!gpu_may_open(host, "/dev/dri/renderD%llu", property(text, "drm_render_minor"))) {
            ++*n_hidden;
            continue;
        }
        where = property(text, "location_id"); /* bus, device, function: 8, 5 and 3 bits */
        snprintf(device->pci, sizeof device->pci, "%04x:%02x:%02x.%x",
                 (unsigned)property(text, "domain") & 0xffff, (unsigned)(where >> 8) & 0xff,
                 (unsigned)(where >> 3) & 0x1f, (unsigned)where & 7);
        snprintf(device->name, sizeof device->name, "GPU-%016llx", property(text, "unique_id"));
        found->n++;
    }
}

static void cut(struct amd *found, const char *variable, const char *list, char *why, size_t why_bytes)
{
    const char *names[GPU_MAX];
    struct amd before = *found;
    int picked[GPU_MAX];

    if (list == NULL || found->n == 0)
        return;
    for (int i = 0; i < before.n; i++)
        names[i] = before.devices[i].name;
    found->n = gpu_visible_pick(variable, list, names, before.n, picked, GPU_MAX, why, why_bytes);
    for (int i = 0; i < found->n; i++)
        found->devices[i] = before.devices[picked[i]];
}

bool gpu_amd(struct gpu_list *out, const struct gpu_host *host)
{
    const char *hip = host->get_env(host->arg, "HIP_VISIBLE_DEVICES");
    struct amd found = { 0 };
    int n_hidden = 0;

    look(&found, host, &n_hidden);
    if (found.n == 0) {
        snprintf(out->why, sizeof out->why, "this process may open none of the %d under /dev/dri", n_hidden);
        return n_hidden > 0;
    }
    cut(&found, "ROCR_VISIBLE_DEVICES", host->get_env(host->arg, "ROCR_VISIBLE_DEVICES"), out->why,
        sizeof out->why);
    if (hip != NULL)
        cut(&found, "HIP_VISIBLE_DEVICES", hip, out->why, sizeof out->why);
    else
        cut(&found, "CUDA_VISIBLE_DEVICES", host->get_env(host->arg, "CUDA_VISIBLE_DEVICES"), out->why,
            sizeof out->why);
    out->n = found.n;
    for (int i = 0; i < found.n; i++)
        memcpy(out->gpus[i].pci, found.devices[i].pci, GPU_PCI_BYTES);
    return true;
}

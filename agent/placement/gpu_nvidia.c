/*
 * NVIDIA's GPUs, from /proc/driver/nvidia/gpus and /dev/nvidia<minor>. NVML gives the facts that these files
 * do not have.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/small_file.h"
#include "agent/placement/gpu_impl.h"
#include "agent/placement/gpu_visible.h"
#include "agent/placement/nvml.h"

/* The devices of the machine, before a list of visible devices is applied. */
struct nvidia {
    int n;
    struct nvidia_device {
        char pci[GPU_PCI_BYTES], name[NVML_UUID_BYTES];
    } devices[GPU_MAX];
};

/* The value of a line "Key: \t value" in the driver's text; NULL: there is no such key. */
static const char *value_of(const char *text, const char *key, char *out, size_t size)
{
    const char *at = strstr(text, key);

    if (at == NULL)
        return NULL;
    at += strlen(key);
    at += strspn(at, " \t");
    snprintf(out, size, "%.*s", (int)strcspn(at, "\n"), at);
    return out;
}

/* Folders are named after PCI addresses, so sorted names are in PCI order. */
static int from_proc(struct nvidia *found, const struct gpu_host *host, int *n_hidden)
{
    static const char folder[] = "/proc/driver/nvidia/gpus";
    char names[GPU_MAX][64];
    int n = small_file_list(host->root, folder, names, GPU_MAX);

    for (int i = 0; i < n; i++) {
        struct nvidia_device *device = &found->devices[found->n];
        char text[2048], minor[16];

        if (!gpu_read(host, text, sizeof text, "%s/%s/information", folder, names[i]))
            continue;
        if (value_of(text, "Device Minor:", minor, sizeof minor) != NULL &&
            !gpu_may_open(host, "/dev/nvidia%d", (int)strtol(minor, NULL, 10))) {
            ++*n_hidden;
            continue;
        }
        snprintf(device->pci, sizeof device->pci, "%.*s", GPU_PCI_BYTES - 1, names[i]);
        /* Before the first use of a GPU, the driver writes "GPU-????????-..." as its name. */
        if (value_of(text, "GPU UUID:", device->name, sizeof device->name) == NULL ||
            strchr(device->name, '?') != NULL)
            device->name[0] = '\0';
        found->n++;
    }
    return n;
}

static int by_number(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

/*
 * For containers without /proc/driver: count the devices /dev/nvidia0, /dev/nvidia1, ...
 */
static void from_dev(struct nvidia *found, const struct gpu_host *host, int *n_hidden)
{
    char names[1024][64];
    int minors[GPU_MAX], n = 0, n_names = small_file_list(host->root, "/dev", names, 1024);

    for (int i = 0; i < n_names && n < GPU_MAX; i++) {
        const char *digits = names[i] + strlen("nvidia");

        if (strncmp(names[i], "nvidia", strlen("nvidia")) != 0 || *digits == '\0' || strlen(digits) > 6 ||
            digits[strspn(digits, "0123456789")] != '\0')
            continue;
        if (gpu_may_open(host, "/dev/%s", names[i]))
            minors[n++] = (int)strtol(digits, NULL, 10);
        else
            ++*n_hidden;
    }
    if (n > 1)
        qsort(minors, (size_t)n, sizeof *minors, by_number);
    found->n = n; /* PCI addresses are not known here */
}

static bool all_named(const struct nvidia *found)
{
    for (int i = 0; i < found->n; i++)
        if (found->devices[i].name[0] == '\0')
            return false;
    return true;
}

/*
 * Take the devices from NVML's list in place of the driver's files: the GPUs, or their MIG devices if `migs`.
 */
static bool from_nvml(struct nvidia *found, const struct gpu_host *host, bool migs, struct fsdp_err *err)
{
    struct nvml_list *list = malloc(sizeof *list);
    enum fsdp_status status;

    if (list == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory") == FSDP_OK;
    status = nvml_ask(host->nvml, list, err);
    if (status == FSDP_OK) {
        found->n = 0;
        for (int i = 0; i < list->n && found->n < GPU_MAX; i++) {
            if ((list->devices[i].parent >= 0) != migs)
                continue;
            snprintf(found->devices[found->n].pci, GPU_PCI_BYTES, "%.*s", GPU_PCI_BYTES - 1,
                     list->devices[i].pci);
            snprintf(found->devices[found->n++].name, NVML_UUID_BYTES, "%s", list->devices[i].uuid);
        }
    }
    free(list);
    return status == FSDP_OK;
}

static void pick(struct gpu_list *out, const struct nvidia *found, const char *list, bool one_each)
{
    const char *names[GPU_MAX];
    int picked[GPU_MAX];

    for (int i = 0; i < found->n; i++)
        names[i] = found->devices[i].name;
    out->n = gpu_visible_pick("CUDA_VISIBLE_DEVICES", list, names, found->n, picked, GPU_MAX, out->why,
                              sizeof out->why);
    if (out->n > 1 && gpu_visible_migs(list) && !one_each) {
        snprintf(
            out->why, sizeof out->why,
            "a process sees only the first MIG device of CUDA_VISIBLE_DEVICES: --virtual-local-rank gives "
            "each worker its own");
        out->n = 1;
    }
    for (int i = 0; i < out->n; i++) {
        memcpy(out->gpus[i].pci, found->devices[picked[i]].pci, GPU_PCI_BYTES);
        out->gpus[i].number = picked[i] + (gpu_visible_migs(list) ? GPU_MAX : 0);
    }
}

bool gpu_nvidia(struct gpu_list *out, const struct gpu_host *host)
{
    const char *list = host->get_env(host->arg, "CUDA_VISIBLE_DEVICES");
    struct nvidia found = { 0 };
    struct fsdp_err err = { 0 };
    int n_hidden = 0;

    if (from_proc(&found, host, &n_hidden) == 0)
        from_dev(&found, host, &n_hidden);
    /* Under WSL the driver has one device, /dev/dxg. NVML knows the GPUs. */
    if (found.n == 0 && n_hidden == 0 && gpu_may_open(host, "/dev/dxg") &&
        !from_nvml(&found, host, false, &err))
        return false;
    if (found.n == 0) {
        snprintf(out->why, sizeof out->why, "this process may open none of the %d under /dev", n_hidden);
        return n_hidden > 0;
    }
    if (gpu_visible_migs(list) || (gpu_visible_names(list) && !all_named(&found))) {
        if (!from_nvml(&found, host, gpu_visible_migs(list), &err)) {
            snprintf(out->why, sizeof out->why, "CUDA_VISIBLE_DEVICES has names, and NVML tells none: %.160s",
                     err.message);
            out->unknown = true;
            return true;
        }
    }
    pick(out, &found, list, host->one_each);
    return true;
}

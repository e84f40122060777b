/*
 * A stand-in for libnvidia-ml.so.1. FAKE_NVML says which GPUs there are:
 *   "GPU-aa@3b;GPU-bb@5e+MIG-1+MIG-2"  names, bus numbers (hexadecimal), and the MIG devices of each
 *   "refuse", "crash", "hang"          what nvmlInit_v2() does instead
 * The prototypes are those of NVIDIA's documentation of NVML.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID = 2, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, MOST = 32, MIGS = 7 };

struct pci_info {
    char bus_id_legacy[16];
    unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
};

struct mig {
    char uuid[96];
};
struct device {
    char uuid[96];
    unsigned bus;
    int n_migs;
    struct mig migs[MIGS];
};

static struct device devices[MOST];
static unsigned n_devices;

int nvmlInit_v2(void);
const char *nvmlErrorString(int error);
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle);
int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length);
int nvmlDeviceGetPciInfo_v3(void *handle, struct pci_info *info);
int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending);
int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count);
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **mig);

static void read_device(char *text)
{
    struct device *device = &devices[n_devices++];
    char *part = strtok(text, "+"), *at = strchr(part, '@');

    snprintf(device->uuid, sizeof device->uuid, "%.*s", (int)(at - part), part);
    device->bus = (unsigned)strtoul(at + 1, NULL, 16);
    while ((part = strtok(NULL, "+")) != NULL && device->n_migs < MIGS)
        snprintf(device->migs[device->n_migs++].uuid, sizeof device->migs->uuid, "%s", part);
}

int nvmlInit_v2(void)
{
    const char *text = getenv("FAKE_NVML");
    char copy[4096], *rest = copy, *one;

    if (text == NULL || strcmp(text, "refuse") == 0)
        return DRIVER_NOT_LOADED;
    if (strcmp(text, "crash") == 0)
        raise(SIGKILL);
    while (strcmp(text, "hang") == 0)
        pause();
    snprintf(copy, sizeof copy, "%s", text);
    n_devices = 0;
    while ((one = strsep(&rest, ";")) != NULL && n_devices < MOST)
        if (*one != '\0')
            read_device(one);
    return SUCCESS;
}

const char *nvmlErrorString(int error)
{
    return error == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    *count = n_devices;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **handle)
{
    if (index >= n_devices)
        return INVALID;
    *handle = &devices[index];
    return SUCCESS;
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length)
{
    snprintf(uuid, length, "%s", (char *)handle); /* it comes first in both kinds */
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, struct pci_info *info)
{
    info->bus = ((struct device *)handle)->bus;
    return SUCCESS;
}

int nvmlDeviceGetMigMode(void *handle, unsigned *current, unsigned *pending)
{
    *current = *pending = ((struct device *)handle)->n_migs > 0;
    return SUCCESS;
}

int nvmlDeviceGetMaxMigDeviceCount(void *handle, unsigned *count)
{
    (void)handle;
    *count = 2 * MIGS;
    return SUCCESS;
}

/* Every other place is free, as after an instance was destroyed. */
int nvmlDeviceGetMigDeviceHandleByIndex(void *handle, unsigned index, void **mig)
{
    struct device *device = handle;

    if (index % 2 == 0 || (int)index / 2 >= device->n_migs)
        return NOT_FOUND;
    *mig = &device->migs[index / 2];
    return SUCCESS;
}

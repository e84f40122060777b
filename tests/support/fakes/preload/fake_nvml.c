/*
 * A stand-in for libnvidia-ml.so.1. FAKE_NVML says which GPUs there are:
 *   "GPU-aa@3b;GPU-bb@5e+MIG-1+MIG-2"  names, bus numbers (hexadecimal), and the MIG devices of each
 *   "refuse", "crash", "hang"          what nvmlInit_v2() does instead
 * FAKE_NVML_STATE names a directory of files: memory (bytes in use), ecc, throttle, not_persistent, xid
 * (taken once, and deleted) are what the GPUs say; asked (a line for each nvmlInit_v2()) and told (the last
 * memory that was given) are left there. The prototypes are those of NVIDIA's documentation of NVML.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC diagnostic ignored "-Wmissing-prototypes"
#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { SUCCESS = 0, INVALID = 2, NOT_FOUND = 6, DRIVER_NOT_LOADED = 9, TIMEOUT = 10, MOST = 32, MIGS = 7 };

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

struct memory_info {
    unsigned long long total, free, used;
};
struct utilisation {
    unsigned gpu, memory;
};
struct event_data {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

/* The state */

static const char *state_path(const char *name)
{
    static char path[4096];
    const char *directory = getenv("FAKE_NVML_STATE");

    if (directory == NULL)
        return NULL;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return path;
}

static unsigned long long state(const char *name)
{
    const char *path = state_path(name);
    FILE *file = path == NULL ? NULL : fopen(path, "re");
    unsigned long long value = 0;

    if (file == NULL)
        return 0;
    if (fscanf(file, "%llu", &value) != 1)
        value = 0;
    fclose(file);
    return value;
}

static void leave(const char *name, const char *mode, unsigned long long value)
{
    const char *path = state_path(name);
    FILE *file = path == NULL ? NULL : fopen(path, mode);

    if (file == NULL)
        return;
    fprintf(file, "%llu\n", value);
    fclose(file);
}

int nvmlDeviceGetMemoryInfo(void *handle, struct memory_info *info)
{
    *info = (struct memory_info){ .total = 80ull << 30, .used = state("memory") };
    info->free = info->total - info->used;
    leave("told", "we", info->used);
    return SUCCESS;
}

int nvmlDeviceGetUtilizationRates(void *handle, struct utilisation *rates)
{
    *rates = (struct utilisation){ 50, 20 };
    return SUCCESS;
}

int nvmlDeviceGetTemperature(void *handle, int sensor, unsigned *celsius)
{
    *celsius = 60;
    return sensor == 0 ? SUCCESS : INVALID;
}

int nvmlDeviceGetTotalEccErrors(void *handle, int kind, int counter, unsigned long long *count)
{
    *count = state("ecc");
    return kind == 1 && counter == 0 ? SUCCESS : INVALID;
}

int nvmlDeviceGetCurrentClocksThrottleReasons(void *handle, unsigned long long *reasons)
{
    *reasons = state("throttle");
    return SUCCESS;
}

int nvmlDeviceGetPersistenceMode(void *handle, int *mode)
{
    *mode = state("not_persistent") == 0;
    return SUCCESS;
}

int nvmlEventSetCreate(void **set)
{
    *set = devices;
    return SUCCESS;
}

int nvmlDeviceRegisterEvents(void *handle, unsigned long long types, void *set)
{
    return types == 8 && set == devices ? SUCCESS : INVALID;
}

int nvmlEventSetWait_v2(void *set, struct event_data *data, unsigned timeout_ms)
{
    const unsigned long long xid = state("xid");

    if (xid == 0) {
        usleep(1000 * (timeout_ms < 20 ? timeout_ms : 20));
        return TIMEOUT;
    }
    unlink(state_path("xid"));
    *data = (struct event_data){ .device = &devices[0], .type = 8, .data = xid };
    return SUCCESS;
}

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
    leave("asked", "ae", 1);
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

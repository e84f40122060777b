#include "agent/placement/nvml_watch.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include "agent/os/clock.h"
#include "agent/placement/nvml_impl.h"
#include "agent/placement/nvml_process.h"

enum { FAST_FOR_MS = 10000, FAST_MS = 250, SLOW_MS = 5000 };
enum { ECC_UNCORRECTED = 1, ECC_VOLATILE = 0, SENSOR_GPU = 0 };
static const unsigned long long event_xid = 8;

_Static_assert(sizeof(struct gpu_sample) <= PIPE_BUF, "a sample is written in one piece");

struct memory_info { /* nvmlMemory_t */
    unsigned long long total, free, used;
};
struct utilisation { /* nvmlUtilization_t */
    unsigned gpu, memory;
};
struct event_data { /* nvmlEventData_t */
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

/* Each may be missing from a driver: what it says is then not known. */
struct watch {
    struct nvml nvml;
    int (*memory)(void *, struct memory_info *);
    int (*utilisation)(void *, struct utilisation *);
    int (*temperature)(void *, int, unsigned *);
    int (*ecc)(void *, int, int, unsigned long long *);
    int (*throttle)(void *, unsigned long long *);
    int (*event_set)(void **);
    int (*register_events)(void *, unsigned long long, void *);
    int (*event_wait)(void *, struct event_data *, unsigned);
    void *events; /* NULL: XIDs are not told */
    void *handles[GPU_HEALTH_MAX];
    struct gpu_sample samples[GPU_HEALTH_MAX]; /* index and pci */
    int n, fd;
};

static bool open_watch(struct watch *watch, const char *library)
{
    void *from;

    if (nvml_open(&watch->nvml, library, NULL) != FSDP_OK || watch->nvml.init() != NVML_SUCCESS)
        return false;
    from = watch->nvml.library;
    watch->memory = (int (*)(void *, struct memory_info *))nvml_look_up(from, "nvmlDeviceGetMemoryInfo");
    watch->utilisation =
        (int (*)(void *, struct utilisation *))nvml_look_up(from, "nvmlDeviceGetUtilizationRates");
    watch->temperature = (int (*)(void *, int, unsigned *))nvml_look_up(from, "nvmlDeviceGetTemperature");
    watch->ecc =
        (int (*)(void *, int, int, unsigned long long *))nvml_look_up(from, "nvmlDeviceGetTotalEccErrors");
    watch->throttle = (int (*)(void *, unsigned long long *))nvml_look_up(
        from, "nvmlDeviceGetCurrentClocksThrottleReasons");
    watch->event_set = (int (*)(void **))nvml_look_up(from, "nvmlEventSetCreate");
    watch->register_events =
        (int (*)(void *, unsigned long long, void *))nvml_look_up(from, "nvmlDeviceRegisterEvents");
    watch->event_wait =
        (int (*)(void *, struct event_data *, unsigned))nvml_look_up(from, "nvmlEventSetWait_v2");
    if (watch->event_set == NULL || watch->register_events == NULL || watch->event_wait == NULL ||
        watch->event_set(&watch->events) != NVML_SUCCESS)
        watch->events = NULL;
    return true;
}

static void find_gpus(struct watch *watch)
{
    unsigned count = 0;
    bool any = false;

    if (watch->nvml.count(&count) != NVML_SUCCESS)
        return;
    for (unsigned i = 0; i < count && watch->n < GPU_HEALTH_MAX; i++) {
        struct nvml_pci_info info = { 0 };
        void *handle;

        if (watch->nvml.handle(i, &handle) != NVML_SUCCESS || watch->nvml.pci(handle, &info) != NVML_SUCCESS)
            continue;
        watch->handles[watch->n] = handle;
        watch->samples[watch->n].index = (int)i;
        nvml_kernel_name(&info, watch->samples[watch->n].pci);
        any |=
            watch->events != NULL && watch->register_events(handle, event_xid, watch->events) == NVML_SUCCESS;
        watch->n++;
    }
    if (!any)
        watch->events = NULL; /* waiting for none of them would be no wait */
}

static void tell(const struct watch *watch, const struct gpu_sample *sample)
{
    if (write(watch->fd, sample, sizeof *sample) != (ssize_t)sizeof *sample)
        _exit(0); /* nobody listens any more */
}

static void sample_gpu(const struct watch *watch, int i)
{
    struct gpu_sample sample = watch->samples[i];
    void *handle = watch->handles[i];
    struct memory_info memory = { 0 };
    struct utilisation utilisation = { 0 };
    unsigned long long count = 0, reasons = 0;
    unsigned celsius = 0;
    bool known;

    known = watch->memory != NULL && watch->memory(handle, &memory) == NVML_SUCCESS;
    sample.memory_used_bytes = known ? (int64_t)memory.used : -1;
    sample.memory_total_bytes = known ? (int64_t)memory.total : -1;
    known = watch->utilisation != NULL && watch->utilisation(handle, &utilisation) == NVML_SUCCESS;
    sample.utilisation_percent = known ? (int)utilisation.gpu : -1;
    known = watch->temperature != NULL && watch->temperature(handle, SENSOR_GPU, &celsius) == NVML_SUCCESS;
    sample.temperature_c = known ? (int)celsius : -1;
    known = watch->ecc != NULL && watch->ecc(handle, ECC_UNCORRECTED, ECC_VOLATILE, &count) == NVML_SUCCESS;
    sample.ecc_uncorrected = known ? (int64_t)count : -1;
    if (watch->throttle != NULL && watch->throttle(handle, &reasons) == NVML_SUCCESS)
        sample.throttle_reasons = reasons;
    tell(watch, &sample);
}

static void tell_xid(const struct watch *watch, const struct event_data *data)
{
    for (int i = 0; i < watch->n; i++)
        if (watch->handles[i] == data->device && data->type == event_xid) {
            struct gpu_sample sample = watch->samples[i];

            sample.xid = (int)data->data;
            tell(watch, &sample);
        }
}

/* Until the next sample is due, telling every XID that comes. */
static void wait_until(const struct watch *watch, int64_t due_ms)
{
    int64_t left = due_ms - clock_now_ms();

    for (; left > 0; left = due_ms - clock_now_ms()) {
        struct event_data data = { 0 };

        if (watch->events == NULL) {
            poll(NULL, 0, (int)left);
            continue;
        }
        if (watch->event_wait(watch->events, &data, (unsigned)left) == NVML_SUCCESS)
            tell_xid(watch, &data);
        else
            poll(NULL, 0,
                 left < FAST_MS ? (int)left : FAST_MS); /* a time-out; or a failure, not to spin on */
    }
}

int nvml_watch_here(const char *library)
{
    struct watch watch = { .fd = STDOUT_FILENO };
    const int64_t began_ms = clock_now_ms();

    if (!open_watch(&watch, library))
        return 0;
    find_gpus(&watch);
    while (watch.n > 0) {
        const int64_t now_ms = clock_now_ms();

        for (int i = 0; i < watch.n; i++)
            sample_gpu(&watch, i);
        wait_until(&watch, now_ms + (now_ms - began_ms < FAST_FOR_MS ? FAST_MS : SLOW_MS));
    }
    return 0;
}

enum fsdp_status nvml_watch_start(const char *library, pid_t *pid, int *fd, struct fsdp_err *err)
{
    return nvml_process_start(NVML_WATCH, library, pid, fd, err);
}

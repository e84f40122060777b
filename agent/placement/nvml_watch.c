#include "agent/placement/gpu_health.h"

#include <limits.h>
#include <poll.h>
#include <unistd.h>

#include "agent/placement/nvml_impl.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/library.h"
#include "shard_runtime/core/thread.h"

enum {
    HURRY_FOR_MS = 1000,
    HURRY_MS = 20,
    FAST_FOR_MS = 10000,
    FAST_MS = 250,
    SLOW_MS = 5000,
    XID_MS = 1000
};
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

/* A driver may lack any of these functions; what the function would return then counts as not known. */
struct watch {
    struct nvml nvml;
    int (*memory)(void *, struct memory_info *);
    int (*utilisation)(void *, struct utilisation *);
    int (*temperature)(void *, int, unsigned *);
    int (*ecc)(void *, int, int, unsigned long long *);
    int (*throttle)(void *, unsigned long long *);
    int (*persistence)(void *, int *);
    int (*event_set)(void **);
    int (*register_events)(void *, unsigned long long, void *);
    int (*event_wait)(void *, struct event_data *, unsigned);
    void *events; /* NULL: the driver reports no XIDs */
    void *handles[GPU_HEALTH_MAX];
    struct gpu_sample samples[GPU_HEALTH_MAX]; /* index and pci */
    int n, fd;
    uint32_t n_asked;
};

static bool open_watch(struct watch *watch, const char *library)
{
    static const struct library_function functions[] = {
        { "nvmlDeviceGetMemoryInfo", offsetof(struct watch, memory) },
        { "nvmlDeviceGetUtilizationRates", offsetof(struct watch, utilisation) },
        { "nvmlDeviceGetTemperature", offsetof(struct watch, temperature) },
        { "nvmlDeviceGetTotalEccErrors", offsetof(struct watch, ecc) },
        { "nvmlDeviceGetCurrentClocksThrottleReasons", offsetof(struct watch, throttle) },
        { "nvmlDeviceGetPersistenceMode", offsetof(struct watch, persistence) },
        { "nvmlEventSetCreate", offsetof(struct watch, event_set) },
        { "nvmlDeviceRegisterEvents", offsetof(struct watch, register_events) },
        { "nvmlEventSetWait_v2", offsetof(struct watch, event_wait) },
    };

    if (nvml_open(&watch->nvml, library, NULL) != FSDP_OK || watch->nvml.init() != NVML_SUCCESS)
        return false;
    (void)library_look_up(watch->nvml.library, watch, functions, sizeof functions / sizeof *functions);
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
        if (watch->persistence == NULL ||
            watch->persistence(handle, &watch->samples[watch->n].persistence) != NVML_SUCCESS)
            watch->samples[watch->n].persistence = -1;
        watch->samples[watch->n].index = (int)i;
        nvml_kernel_name(&info, watch->samples[watch->n].pci);
        any |=
            watch->events != NULL && watch->register_events(handle, event_xid, watch->events) == NVML_SUCCESS;
        watch->n++;
    }
    if (!any)
        /*
         * no GPU could be registered for events; waiting for events would then return at once, again and
         * again
         */
        watch->events = NULL;
}

static void tell(const struct watch *watch, const struct gpu_sample *sample)
{
    if (write(watch->fd, sample, sizeof *sample) != (ssize_t)sizeof *sample)
        _exit(0); /* the reader is gone */
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

    sample.ends_round = i == watch->n - 1;
    sample.n_asked = watch->n_asked;
    known = watch->memory != NULL && watch->memory(handle, &memory) == NVML_SUCCESS;
    sample.memory_used_bytes = known ? (int64_t)memory.used : -1;
    sample.memory_total_bytes = known ? (int64_t)memory.total : -1;
    known = watch->utilisation != NULL && watch->utilisation(handle, &utilisation) == NVML_SUCCESS;
    sample.utilisation_percent = known ? (int)utilisation.gpu : -1;
    sample.memory_percent = known ? (int)utilisation.memory : -1;
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

/*
 * Reports every XID as it comes. It has a thread of its own, because the driver's wait ends only at an XID or
 * at its time-out.
 */
static void *watch_xids(void *arg)
{
    const struct watch *watch = arg;

    for (;;) {
        struct event_data data = { 0 };
        const int64_t began_ms = clock_now_ms();

        if (watch->event_wait(watch->events, &data, XID_MS) == NVML_SUCCESS)
            tell_xid(watch, &data);
        else if (clock_now_ms() - began_ms < 1)
            poll(NULL, 0, FAST_MS); /* a failure, not to spin on */
    }
    return NULL;
}

/*
 * Waits for up to `for_ms`. Returns whether the agent asked for a sample within that time. Ends the process
 * if the agent is gone.
 */
static bool wait_asked(struct watch *watch, int for_ms)
{
    struct pollfd input = { .fd = STDIN_FILENO, .events = POLLIN };
    char bytes[64];
    ssize_t n;

    if (poll(&input, 1, for_ms) <= 0)
        return false;
    n = read(STDIN_FILENO, bytes, sizeof bytes);
    if (n <= 0)
        _exit(0);
    watch->n_asked += (uint32_t)n;
    return true;
}

int nvml_watch_here(const char *library)
{
    struct watch watch = { .fd = STDOUT_FILENO };
    int64_t fast_ms = clock_now_ms(), hurry_ms = INT64_MIN / 2;

    if (!open_watch(&watch, library))
        return 0;
    find_gpus(&watch);
    if (watch.events != NULL)
        (void)thread_start(NULL, watch_xids, &watch);
    while (watch.n > 0) {
        const int64_t now_ms = clock_now_ms();

        for (int i = 0; i < watch.n; i++)
            sample_gpu(&watch, i);
        if (wait_asked(&watch, now_ms - hurry_ms < HURRY_FOR_MS ? HURRY_MS
                               : now_ms - fast_ms < FAST_FOR_MS ? FAST_MS
                                                                : SLOW_MS))
            hurry_ms = fast_ms = clock_now_ms();
    }
    return 0;
}

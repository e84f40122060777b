#define _GNU_SOURCE
#include "runtime.h"
#include "trace.h"

#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, size_bytes)   ((void)(begin), (void)(size_bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, size_bytes) ((void)(begin), (void)(size_bytes))
#endif

enum {
    MAX_RANGES = 4096,
    MAX_STREAMS = 256,
    MAX_TALLIES = 128,
    PAGE = 4096,
    QUERY_STEPS = 64,
    SLICE_NS = 50 * 1000
};

enum kind { WORK, HOST_FUNCTION, RECORD, WAIT };

struct operation {
    enum kind kind;
    emulated_work_fn work;
    cudaHostFn_t function;
    void *user;
    struct CUevent_st *event;
    uint64_t mark; /* of the event: to set, or to wait for */
    struct operation *next;
    _Alignas(16) unsigned char closure[];
};

struct CUstream_st {
    struct operation *first, *last;
    int number;
};

struct CUevent_st {
    uint64_t recorded, reached;
    int n_users; /* queued operations on it */
    bool destroyed;
};

struct range {
    char *begin;
    size_t size_bytes, mapped_bytes;
    bool device;
};

struct tally {
    char what[64];
    uint64_t count;
};

static struct tally tallies[MAX_TALLIES];
static size_t n_tallies;
static struct range ranges[MAX_RANGES];
static size_t n_ranges, used_bytes;
static struct CUstream_st *streams[MAX_STREAMS];
static int n_streams, n_made;
static bool open_now;
static int current_device;
static uint64_t random_state;
static enum { UNDECIDED, LATE, EARLY, SEEDED } order;

/* --- words ----------------------------------------------------------------------------------------------- */

const char *cudaGetErrorName(cudaError_t error)
{
    switch (error) {
    case cudaSuccess:
        return "cudaSuccess";
    case cudaErrorInvalidValue:
        return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
        return "cudaErrorMemoryAllocation";
    case cudaErrorNoDevice:
        return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
        return "cudaErrorInvalidDevice";
    case cudaErrorInvalidResourceHandle:
        return "cudaErrorInvalidResourceHandle";
    case cudaErrorNotReady:
        return "cudaErrorNotReady";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorUnknown:
        break;
    }
    return "cudaErrorUnknown";
}

const char *cudaGetErrorString(cudaError_t error)
{
    return error == cudaErrorMemoryAllocation ? "out of memory"
           : error == cudaErrorInvalidValue   ? "invalid argument"
           : error == cudaErrorNoDevice       ? "no CUDA-capable device is detected"
                                              : cudaGetErrorName(error);
}

/* A mistake in how the device is used: as a fault on a GPU, it is the end. */
static void die(const char *what)
{
    fprintf(stderr, "emulated device: %s\n", what);
    abort();
}

static uint64_t setting(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : fallback;
}

/* --- what was queued ------------------------------------------------------------------------------------- */

/* The name within "(name<arguments>)": its place and length. */
static const char *plain_name(const char *what, int *length)
{
    what += what[0] == '(';
    *length = (int)strcspn(what, "<()");
    return what;
}

static struct tally *tally_of(const char *what)
{
    int length;
    const char *name = plain_name(what, &length);

    for (size_t i = 0; i < n_tallies; i++)
        if (strncmp(tallies[i].what, name, (size_t)length) == 0 && tallies[i].what[length] == '\0')
            return &tallies[i];
    if (n_tallies == MAX_TALLIES || (size_t)length >= sizeof tallies->what)
        die("too many kernels to count, or a name that is too long");
    snprintf(tallies[n_tallies].what, sizeof tallies->what, "%.*s", length, name);
    return &tallies[n_tallies++];
}

void emulated_tally(const char *what)
{
    tally_of(what)->count++;
}

uint64_t emulated_tally_of(const char *what)
{
    return tally_of(what)->count;
}

__attribute__((destructor)) static void write_tallies(void)
{
    const char *path = getenv("FSDP_EMULATED_TALLY");
    FILE *file = path != NULL && path[0] != '\0' && n_tallies > 0 ? fopen(path, "a") : NULL;

    if (file == NULL)
        return;
    for (size_t i = 0; i < n_tallies; i++)
        fprintf(file, "%s %llu\n", tallies[i].what, (unsigned long long)tallies[i].count);
    fclose(file);
}

/* --- the device ------------------------------------------------------------------------------------------ */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = (int)setting("FSDP_EMULATED_DEVICES", 1);
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device)
{
    int count;

    if (cudaGetDeviceCount(&count) != cudaSuccess || device < 0 || device >= count)
        return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    const int capability = (int)setting("FSDP_EMULATED_CAPABILITY", 80); /* ten times it */

    (void)device;
    *properties = (struct cudaDeviceProp){
        .name = "emulated", .major = capability / 10, .minor = capability % 10, .multiProcessorCount = 4
    };
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    snprintf(id, (size_t)size, "0000:%02x:00.0", device);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -1;
    return cudaSuccess;
}

/* --- memory ---------------------------------------------------------------------------------------------- */

/* While queued work runs the device's pages may be touched, and at no other time. */
static void set_access(bool open)
{
    if (open == open_now)
        return;
    for (size_t i = 0; i < n_ranges; i++)
        if (ranges[i].device && mprotect(ranges[i].begin, ranges[i].mapped_bytes - PAGE,
                                         open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
            die("mprotect failed");
    open_now = open;
}

static struct range *range_of(const void *memory)
{
    for (size_t i = 0; i < n_ranges; i++)
        if ((const char *)memory >= ranges[i].begin &&
            (const char *)memory < ranges[i].begin + ranges[i].size_bytes)
            return &ranges[i];
    return NULL;
}

bool emulated_is_device(const void *memory)
{
    const struct range *range = range_of(memory);

    return range != NULL && range->device;
}

/* With a page behind it that nobody may touch; the address sanitizer knows of the bytes before that too. */
static cudaError_t map(void **out, size_t size_bytes, bool device)
{
    const size_t whole = (size_bytes + PAGE - 1) / PAGE * PAGE + PAGE;
    char *memory;

    *out = NULL;
    if (size_bytes == 0)
        return cudaSuccess;
    if (n_ranges == MAX_RANGES ||
        (device && used_bytes + size_bytes > setting("FSDP_EMULATED_MEMORY", SIZE_MAX)))
        return cudaErrorMemoryAllocation;
    memory = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    if ((!device || open_now) && mprotect(memory, whole - PAGE, PROT_READ | PROT_WRITE) != 0)
        die("mprotect failed");
    ASAN_POISON_MEMORY_REGION(memory + size_bytes, whole - PAGE - size_bytes);
    used_bytes += device ? size_bytes : 0;
    if (device)
        emulated_trace_memory("alloc", size_bytes);
    ranges[n_ranges++] = (struct range){ memory, size_bytes, whole, device };
    *out = memory;
    return cudaSuccess;
}

static cudaError_t unmap(void *memory, bool device)
{
    struct range *range = range_of(memory);

    if (memory == NULL)
        return cudaSuccess;
    if (range == NULL || range->begin != memory || range->device != device)
        return cudaErrorInvalidValue;
    /* As CUDA's, freeing waits for everything. */
    if (cudaDeviceSynchronize() != cudaSuccess)
        return cudaErrorUnknown;
    used_bytes -= device ? range->size_bytes : 0;
    if (device)
        emulated_trace_memory("free", range->size_bytes);
    ASAN_UNPOISON_MEMORY_REGION(range->begin, range->mapped_bytes);
    (void)munmap(range->begin, range->mapped_bytes);
    *range = ranges[--n_ranges];
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **out, size_t size_bytes)
{
    return map(out, size_bytes, true);
}

cudaError_t cudaFree(void *memory)
{
    return unmap(memory, true);
}

cudaError_t cudaHostAlloc(void **out, size_t size_bytes, unsigned flags)
{
    (void)flags;
    return map(out, size_bytes, false);
}

cudaError_t cudaFreeHost(void *memory)
{
    return unmap(memory, false);
}

cudaError_t cudaMemset(void *to, int value, size_t size_bytes)
{
    if (!emulated_is_device(to))
        return cudaErrorInvalidValue;
    set_access(true);
    memset(to, value, size_bytes);
    set_access(false);
    return cudaSuccess;
}

/* --- queues ---------------------------------------------------------------------------------------------- */

static cudaError_t append(cudaStream_t stream, struct operation operation, const void *closure,
                          size_t size_bytes)
{
    struct operation *made;

    if (stream == NULL)
        die("work on the default stream, which is nobody's here");
    made = malloc(sizeof *made + size_bytes);
    if (made == NULL)
        return cudaErrorMemoryAllocation;
    *made = operation;
    made->next = NULL;
    if (size_bytes > 0)
        memcpy(made->closure, closure, size_bytes);
    if (stream->first == NULL)
        stream->first = made;
    else
        stream->last->next = made;
    stream->last = made;
    return cudaSuccess;
}

static bool run_copy(void *closure);

cudaError_t emulated_queue(cudaStream_t stream, emulated_work_fn work, const void *closure, size_t size_bytes)
{
    if (stream != NULL && work != run_copy)
        emulated_trace_work(stream->number);
    return append(stream, (struct operation){ .kind = WORK, .work = work }, closure, size_bytes);
}

static void let_go(struct CUevent_st *event)
{
    if (event->destroyed && event->n_users == 0)
        free(event);
}

/* Do the first operation of a stream, if it can be done. */
static bool step(struct CUstream_st *stream)
{
    struct operation *operation = stream->first;

    if (operation == NULL)
        return false;
    switch (operation->kind) {
    case WORK:
        set_access(true);
        if (!operation->work(operation->closure))
            return false;
        break;
    case HOST_FUNCTION:
        set_access(false);
        operation->function(operation->user);
        break;
    case RECORD:
        operation->event->reached = operation->mark;
        break;
    case WAIT:
        if (operation->event->reached < operation->mark)
            return false;
        break;
    }
    if (operation->event != NULL) {
        operation->event->n_users--;
        let_go(operation->event);
    }
    stream->first = operation->next;
    free(operation);
    return true;
}

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static void decide_order(void)
{
    const char *text = getenv("FSDP_EMULATED_ORDER");

    if (text == NULL || strcmp(text, "late") == 0)
        order = LATE;
    else if (strcmp(text, "early") == 0)
        order = EARLY;
    else
        order = SEEDED;
    random_state = 0x9e3779b97f4a7c15u ^ (text != NULL ? strtoull(text, NULL, 10) * 0x2545f4914f6cdd1du : 0);
    if (random_state == 0)
        random_state = 1;
}

/* The stream that must run so that `stream` can: itself, or who is to record what it waits for. */
static struct CUstream_st *holder_of(struct CUstream_st *stream)
{
    for (int hops = 0; hops < MAX_STREAMS; hops++) {
        const struct operation *head = stream->first;
        struct CUstream_st *next = NULL;

        if (head == NULL || head->kind != WAIT || head->event->reached >= head->mark)
            return stream;
        for (int s = 0; s < n_streams && next == NULL; s++)
            for (const struct operation *o = streams[s]->first; o != NULL; o = o->next)
                if (o->kind == RECORD && o->event == head->event && o->mark >= head->mark)
                    next = streams[s];
        if (next == NULL)
            die("a stream waits for an event that nothing will record");
        stream = next;
    }
    die("streams wait for each other");
    return NULL;
}

static bool step_any_other(const struct CUstream_st *but)
{
    const int begin = n_streams > 0 ? (int)(next_random() % (unsigned)n_streams) : 0;

    for (int i = 0; i < n_streams; i++) {
        struct CUstream_st *stream = streams[(begin + i) % n_streams];

        if (stream != but && step(stream))
            return true;
    }
    return false;
}

/* Some work, for whoever waits for `wanted`; false: nothing can be done now. */
static bool advance(struct CUstream_st *wanted)
{
    if (order == UNDECIDED)
        decide_order();
    if (order == EARLY && step_any_other(wanted))
        return true;
    if (order == SEEDED && next_random() % 2 == 0 && step_any_other(NULL))
        return true;
    return step(holder_of(wanted)) || step_any_other(NULL);
}

static void pause_for_others(void)
{
    const struct timespec slice = { .tv_nsec = SLICE_NS };

    (void)nanosleep(&slice, NULL);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    emulated_trace_wait(stream->number);
    while (stream->first != NULL)
        if (!advance(stream))
            pause_for_others();
    set_access(false);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    bool moved = true;

    emulated_trace_wait(stream->number);
    for (int i = 0; i < QUERY_STEPS && moved && stream->first != NULL; i++)
        moved = advance(stream);
    set_access(false);
    return stream->first == NULL ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    for (int s = 0; s < n_streams; s++)
        if (cudaStreamSynchronize(streams[s]) != cudaSuccess)
            return cudaErrorUnknown;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    (void)priority;
    *out = NULL;
    if ((flags & cudaStreamNonBlocking) == 0)
        die("a stream that waits for the default stream");
    if (n_streams == MAX_STREAMS)
        return cudaErrorMemoryAllocation;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return cudaErrorMemoryAllocation;
    (*out)->number = n_made++;
    streams[n_streams++] = *out;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    if (cudaStreamSynchronize(stream) != cudaSuccess)
        return cudaErrorUnknown;
    for (int s = 0; s < n_streams; s++)
        if (streams[s] == stream)
            streams[s] = streams[--n_streams];
    free(stream);
    return cudaSuccess;
}

/* --- events ---------------------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    (void)flags;
    *out = calloc(1, sizeof **out);
    return *out != NULL ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    event->destroyed = true;
    let_go(event);
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    return event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    event->n_users++;
    return append(stream, (struct operation){ .kind = RECORD, .event = event, .mark = ++event->recorded },
                  NULL, 0);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    (void)flags;
    event->n_users++;
    return append(stream, (struct operation){ .kind = WAIT, .event = event, .mark = event->recorded }, NULL,
                  0);
}

/* --- copies ---------------------------------------------------------------------------------------------- */

struct copy {
    void *to;
    const void *from;
    size_t size_bytes;
};

static bool run_copy(void *closure)
{
    const struct copy *copy = closure;

    memmove(copy->to, copy->from, copy->size_bytes);
    return true;
}

static bool lies_in(const void *memory, size_t size_bytes, bool device)
{
    const struct range *range = range_of(memory);

    if (range == NULL)
        return !device;
    return range->device == device && (const char *)memory + size_bytes <= range->begin + range->size_bytes;
}

/* Even from memory that is not page-locked nothing is read before its turn: stricter than CUDA, which may copy it aside. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size_bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    const struct copy copy = { to, from, size_bytes };

    if (!lies_in(to, size_bytes, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
        !lies_in(from, size_bytes, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))
        return cudaErrorInvalidValue;
    emulated_tally("copy");
    if (stream != NULL)
        emulated_trace_copy(stream->number, kind, size_bytes,
                            range_of(kind == cudaMemcpyHostToDevice ? from : to) != NULL);
    return emulated_queue(stream, run_copy, &copy, sizeof copy);
}

struct fill {
    char *to;
    size_t pitch_bytes, width_bytes, height;
    int value;
};

static bool run_fill(void *closure)
{
    const struct fill *fill = closure;

    for (size_t row = 0; row < fill->height; row++)
        memset(fill->to + row * fill->pitch_bytes, fill->value, fill->width_bytes);
    return true;
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch_bytes, int value, size_t width_bytes, size_t height,
                              cudaStream_t stream)
{
    const struct fill fill = { to, pitch_bytes, width_bytes, height, value };

    if (height > 0 && !lies_in(to, (height - 1) * pitch_bytes + width_bytes, true))
        return cudaErrorInvalidValue;
    emulated_tally("fill");
    return emulated_queue(stream, run_fill, &fill, sizeof fill);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size_bytes, cudaStream_t stream)
{
    return cudaMemset2DAsync(to, size_bytes, value, size_bytes, 1, stream);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user)
{
    return append(stream, (struct operation){ .kind = HOST_FUNCTION, .function = function, .user = user },
                  NULL, 0);
}

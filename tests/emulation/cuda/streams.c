/*
 * Streams of the emulated device: queues whose work is done when somebody waits, in an order that is chosen.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime_impl.h"

enum { MAX_STREAMS = 256, QUERY_STEPS = 64, SLICE_NS = 50 * 1000 };

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
    uint64_t reached_ns; /* when it was reached last */
    bool timed;
    int n_users; /* queued operations on it */
    bool destroyed;
    struct CUevent_st *next;
};

static struct CUstream_st *streams[MAX_STREAMS];
static struct CUevent_st *lost_events; /* that could not be destroyed */
static int n_streams, n_made;
static uint64_t random_state;
static enum { UNDECIDED, LATE, EARLY, SEEDED } order;

static cudaError_t append(cudaStream_t stream, const struct operation *operation, const void *closure,
                          size_t size_bytes)
{
    struct operation *made;

    if (stream == NULL)
        emulated_die("work on the default stream, which is nobody's here");
    made = malloc(sizeof *made + size_bytes);
    if (made == NULL)
        return cudaErrorMemoryAllocation;
    *made = *operation;
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

cudaError_t emulated_queue_copy(cudaStream_t stream, emulated_work_fn work, const void *closure,
                                size_t size_bytes)
{
    return append(stream, &(struct operation){ .kind = WORK, .work = work }, closure, size_bytes);
}

cudaError_t emulated_queue(cudaStream_t stream, emulated_work_fn work, const void *closure, size_t size_bytes)
{
    if (stream != NULL)
        emulated_trace("work %d\n", stream->number);
    return emulated_queue_copy(stream, work, closure, size_bytes);
}

cudaError_t emulated_queue_host(cudaStream_t stream, cudaHostFn_t function, void *user)
{
    return append(stream, &(struct operation){ .kind = HOST_FUNCTION, .function = function, .user = user },
                  NULL, 0);
}

int emulated_number_of(cudaStream_t stream)
{
    return stream->number;
}

static void let_go(struct CUevent_st *event)
{
    if (event->destroyed && event->n_users == 0)
        free(event);
}

static uint64_t now_ns(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Do the first operation of a stream, if it can be done. */
static bool step(struct CUstream_st *stream)
{
    struct operation *operation = stream->first;

    if (operation == NULL)
        return false;
    switch (operation->kind) {
    case WORK:
        emulated_open(true);
        if (!operation->work(operation->closure))
            return false;
        break;
    case HOST_FUNCTION:
        emulated_open(false);
        operation->function(operation->user);
        break;
    case RECORD:
        operation->event->reached = operation->mark;
        operation->event->reached_ns = now_ns();
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
            emulated_die("a stream waits for an event that nothing will record");
        stream = next;
    }
    emulated_die("streams wait for each other");
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

static void finish(cudaStream_t stream)
{
    emulated_trace("wait %d\n", stream->number);
    while (stream->first != NULL)
        if (!advance(stream))
            pause_for_others();
    emulated_open(false);
}

void emulated_drain(void)
{
    for (int s = 0; s < n_streams; s++)
        finish(streams[s]);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    EMULATED_CALL();
    finish(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    EMULATED_CALL();
    bool moved = true;

    emulated_trace("wait %d\n", stream->number);
    for (int i = 0; i < QUERY_STEPS && moved && stream->first != NULL; i++)
        moved = advance(stream);
    emulated_open(false);
    return stream->first == NULL ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
    EMULATED_CALL();
    emulated_drain();
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority)
{
    EMULATED_CALL();
    (void)priority;
    *out = NULL;
    if ((flags & cudaStreamNonBlocking) == 0)
        emulated_die("a stream that waits for the default stream");
    if (n_streams == MAX_STREAMS)
        return cudaErrorMemoryAllocation;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return cudaErrorMemoryAllocation;
    (*out)->number = n_made++;
    streams[n_streams++] = *out;
    return cudaSuccess;
}

/* Told to fail it is destroyed all the same: as CUDA's, it may tell of work before it. */
cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    const cudaError_t told = emulated_call(__func__);

    if (emulated_is_lost())
        return told;
    finish(stream);
    for (int s = 0; s < n_streams; s++)
        if (streams[s] == stream)
            streams[s] = streams[--n_streams];
    free(stream);
    return told;
}

/* Events */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    EMULATED_CALL();
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return cudaErrorMemoryAllocation;
    (*out)->timed = (flags & cudaEventDisableTiming) == 0;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    const cudaError_t told = emulated_call(__func__);

    if (emulated_is_lost()) {
        event->next = lost_events;
        lost_events = event;
        return told;
    }
    event->destroyed = true;
    let_go(event);
    return told;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    EMULATED_CALL();
    return event->reached >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}

/* Of the host's clock: nothing of it means anything but which of the two was reached first. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    EMULATED_CALL();
    if (!from->timed || !to->timed || from->recorded == 0 || to->recorded == 0)
        return cudaErrorInvalidResourceHandle;
    if (from->reached < from->recorded || to->reached < to->recorded)
        return cudaErrorNotReady;
    *ms = (float)((double)((int64_t)(to->reached_ns - from->reached_ns)) * 1e-6);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    EMULATED_CALL();
    event->n_users++;
    return append(stream, &(struct operation){ .kind = RECORD, .event = event, .mark = ++event->recorded },
                  NULL, 0);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    EMULATED_CALL();
    (void)flags;
    event->n_users++;
    return append(stream, &(struct operation){ .kind = WAIT, .event = event, .mark = event->recorded }, NULL,
                  0);
}

/*
 * The cuda device: one GPU, chosen by the local rank. Streams and events are CUDA's. A call that returns no
 * status keeps its failure for the next synchronize() (failure.c); memory.c has the allocations.
 */
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/core/clock.h"
#include "shard_runtime/cuda/kernels/kernels.h"
#include "shard_runtime/cuda/ops.h"
#include "shard_runtime/cuda/profile.h"
#include "shard_runtime/cuda/state.h"

struct device_event {
    struct device *device;
    cudaEvent_t cuda;
    bool recorded;
};

/*
 * A thread that waits first yields for YIELD_NS, and then sleeps SLICE_NS at a time. It looks for dead peers
 * every WATCH_NS.
 */
enum {
    YIELD_NS = 200 * 1000,
    SLICE_NS = 50 * 1000,
    WATCH_NS = 4 * 1000 * 1000,
    SETTLE_NS = 1000 * 1000 * 1000
};

/*
 * Choose the device by the local rank. CUDA numbers the devices that CUDA_VISIBLE_DEVICES leaves; if there
 * are fewer of them than ranks, counting begins at 0 again.
 */
static enum fsdp_status choose(struct cuda_device *state, int local_rank, struct fsdp_err *err)
{
    struct cudaDeviceProp properties;
    int n_devices = 0;
    enum fsdp_status status = CUDA_TRY(state, cudaGetDeviceCount(&n_devices), err);

    if (status != FSDP_OK)
        return status;
    if (n_devices == 0)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "no CUDA device is visible to this process");
    state->index = local_rank % n_devices;
    status = CUDA_TRY(state, cudaSetDevice(state->index), err);
    if (status == FSDP_OK)
        status = CUDA_TRY(state, cudaGetDeviceProperties(&properties, state->index), err);
    if (status == FSDP_OK)
        status = CUDA_TRY(state, cudaDeviceGetPCIBusId(state->pci, sizeof state->pci, state->index), err);
    if (status != FSDP_OK)
        return status;
    snprintf(state->name, sizeof state->name, "%.*s", CUDA_NAME_BYTES - 1, properties.name);
    state->major = properties.major;
    state->minor = properties.minor;
    state->n_processors = properties.multiProcessorCount;
    state->shared_bytes = properties.sharedMemPerBlockOptin;
    if (state->major < 8)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "device %d (%s) has compute capability %d.%d: at least 8.0 is needed", state->index,
                         state->name, state->major, state->minor);
    return FSDP_OK;
}

static void cuda_close(struct device *device)
{
    struct cuda_device *state = cuda_state(device);

    if (state == NULL)
        return;
    profile_close(state);
    free(state->allocations);
    free(state);
    device->state = NULL;
}

static enum fsdp_status cuda_open(struct device *device, int local_rank, struct fsdp_err *err)
{
    struct cuda_device *state = calloc(1, sizeof *state);
    enum fsdp_status status;

    if (state == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "device cuda: no memory for its state");
    device->state = state;
    device->local_rank = local_rank;
    state->rank = cuda_own_rank();
    state->allocations = calloc(CUDA_MAX_ALLOCATIONS, sizeof *state->allocations);
    status = state->allocations == NULL
                 ? fsdp_fail(err, FSDP_ERR_NOMEM, "device cuda: no memory for its state")
                 : choose(state, local_rank, err);
    if (status == FSDP_OK)
        status = profile_open(device, err);
    if (status != FSDP_OK)
        cuda_close(device);
    return status;
}

static void cuda_identify(const struct device *device, char id[DEVICE_ID_BYTES])
{
    memset(id, 0, DEVICE_ID_BYTES);
    snprintf(id, DEVICE_ID_BYTES, "%s", cuda_state(device)->pci);
}

static void cuda_describe(const struct device *device, char *buffer, size_t size)
{
    const struct cuda_device *state = cuda_state(device);
    int runtime = 0, driver = 0;

    IGNORED(cudaRuntimeGetVersion, cudaRuntimeGetVersion(&runtime));
    IGNORED(cudaDriverGetVersion, cudaDriverGetVersion(&driver));
    snprintf(buffer, size, "%s (%d.%d, CUDA %d.%d, driver for %d.%d)", state->name, state->major,
             state->minor, runtime / 1000, runtime % 1000 / 10, driver / 1000, driver % 1000 / 10);
}

static void sleep_a_slice(void)
{
    (void)nanosleep(&(struct timespec){ .tv_nsec = SLICE_NS }, NULL);
}

/*
 * A wait failed, and its caller is about to free memory that queued copies still use. This waits until they
 * are done. A device that works is done soon, because its collectives have been aborted. A device that failed
 * reports that again. A device that is stuck is waited for once, for a second.
 */
static void settle(struct cuda_device *state, struct device_stream *stream)
{
    const uint64_t began = clock_now_ns();

    while (!state->stuck && cudaStreamQuery(stream->cuda) == cudaErrorNotReady) {
        state->stuck = clock_now_ns() - began > SETTLE_NS;
        sleep_a_slice();
    }
}

/*
 * Wait for a stream. It may hold a collective that waits for a dead rank, so the watch looks for dead peers
 * meanwhile.
 */
static enum fsdp_status wait_watching(struct cuda_device *state, struct device_stream *stream,
                                      struct fsdp_err *err)
{
    const uint64_t began = clock_now_ns();
    uint64_t asked = began;
    cudaError_t error;

    while ((error = cudaStreamQuery(stream->cuda)) == cudaErrorNotReady) {
        const uint64_t now = clock_now_ns();

        if (now - asked > WATCH_NS) {
            const enum fsdp_status status = state->watch(state->watch_user, err);

            if (status != FSDP_OK) {
                settle(state, stream);
                return status;
            }
            asked = now;
        }
        if (now - began < YIELD_NS)
            (void)sched_yield();
        else
            sleep_a_slice();
    }
    if (error != cudaSuccess)
        settle(state, stream);
    return cuda_status(state, error, "cudaStreamQuery", __FILE__, __LINE__, err);
}

/*
 * Wait for all streams before memory is freed. CUDA waits in cudaFree() too, but cannot look for dead peers
 * meanwhile; here the watch does, and collectives whose peer is gone are aborted. Failures are kept for the
 * next wait for a stream.
 */
void cuda_drain(struct cuda_device *state)
{
    for (int s = 0; s < state->n_streams && state->watch != NULL; s++) {
        struct fsdp_err err = { 0 };

        if (wait_watching(state, state->streams[s], &err) != FSDP_OK)
            cuda_keep(state, &err);
    }
}

static enum fsdp_status cuda_stream_create(struct device *device, struct device_stream **out, bool urgent,
                                           struct fsdp_err *err)
{
    struct cuda_device *state = cuda_state(device);
    struct device_stream *stream = calloc(1, sizeof *stream);
    int least = 0, greatest = 0;
    enum fsdp_status status;

    *out = NULL;
    if (stream == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "device cuda: no memory for a stream");
    stream->device = device;
    status = state->n_streams < CUDA_MAX_STREAMS
                 ? CUDA_TRY(state, cudaDeviceGetStreamPriorityRange(&least, &greatest), err)
                 : fsdp_fail(err, FSDP_ERR_NOMEM, "device cuda: more than %d streams", CUDA_MAX_STREAMS);
    if (status == FSDP_OK)
        status = CUDA_TRY(
            state,
            cudaStreamCreateWithPriority(&stream->cuda, cudaStreamNonBlocking, urgent ? greatest : least),
            err);
    if (status != FSDP_OK) {
        free(stream);
        return status;
    }
    state->streams[state->n_streams++] = stream;
    *out = stream;
    return FSDP_OK;
}

static void cuda_stream_destroy(struct device_stream *stream)
{
    struct cuda_device *state = cuda_state(stream->device);

    for (int s = 0; s < state->n_streams; s++)
        if (state->streams[s] == stream)
            state->streams[s] = state->streams[--state->n_streams];
    CUDA_NOTE(cuda_state(stream->device), cudaStreamDestroy(stream->cuda));
    free(stream);
}

static enum fsdp_status cuda_event_create(struct device *device, struct device_event **out,
                                          struct fsdp_err *err)
{
    struct device_event *event = calloc(1, sizeof *event);
    struct fsdp_err own = { 0 };
    enum fsdp_status status;

    *out = NULL;
    if (event == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "device cuda: no memory for an event");
    event->device = device;
    status =
        CUDA_TRY(cuda_state(device), cudaEventCreateWithFlags(&event->cuda, cudaEventDisableTiming), &own);
    if (status != FSDP_OK) {
        /* a caller that passes no `err` can do without an event: the next wait reports the failure */
        if (err == NULL)
            cuda_keep(cuda_state(device), &own);
        free(event);
        return fsdp_fail(err, status, "%s", own.message);
    }
    *out = event;
    return FSDP_OK;
}

static void cuda_event_destroy(struct device_event *event)
{
    CUDA_NOTE(cuda_state(event->device), cudaEventDestroy(event->cuda));
    free(event);
}

static void cuda_record(struct device_event *event, struct device_stream *stream)
{
    CUDA_NOTE(cuda_state(stream->device), cudaEventRecord(event->cuda, stream->cuda));
    event->recorded = true;
}

static void cuda_wait(struct device_stream *stream, struct device_event *event)
{
    if (event->recorded)
        CUDA_NOTE(cuda_state(stream->device), cudaStreamWaitEvent(stream->cuda, event->cuda, 0));
}

static bool cuda_passed(struct device_event *event)
{
    const cudaError_t error = event->recorded ? cudaEventQuery(event->cuda) : cudaSuccess;

    if (error != cudaSuccess && error != cudaErrorNotReady)
        cuda_note(cuda_state(event->device), error, "cudaEventQuery", __FILE__, __LINE__);
    return error == cudaSuccess;
}

static void cuda_set_watch(struct device *device, device_watch_fn watch, void *user)
{
    cuda_state(device)->watch = watch;
    cuda_state(device)->watch_user = user;
}

static enum fsdp_status cuda_synchronize(struct device_stream *stream, struct fsdp_err *err)
{
    struct cuda_device *state = cuda_state(stream->device);
    const uint64_t began = clock_now_ns();
    enum fsdp_status status = state->watch != NULL
                                  ? wait_watching(state, stream, err)
                                  : CUDA_TRY(state, cudaStreamSynchronize(stream->cuda), err);

    if (status != FSDP_OK && state->watch == NULL)
        settle(state, stream);
    state->waited_ns += clock_now_ns() - began;
    return status == FSDP_OK || state->broken.status != FSDP_OK ? cuda_sticky(state, err) : status;
}

static uint64_t cuda_waited_ns(const struct device *device)
{
    return cuda_state(device)->waited_ns;
}

/* Queue work on `stream`: it is timed, and a failure is kept. */
#define QUEUED(call) PROFILED(cuda_state(stream->device), stream, (cudaError_t)(call), #call)

static void cuda_copy(struct device_stream *stream, void *to, const void *from, size_t size_bytes,
                      enum device_copy kind)
{
    static const enum cudaMemcpyKind kinds[] = { [DEVICE_COPY_TO] = cudaMemcpyHostToDevice,
                                                 [DEVICE_COPY_FROM] = cudaMemcpyDeviceToHost,
                                                 [DEVICE_COPY_WITHIN] = cudaMemcpyDeviceToDevice };

    if (size_bytes > 0 && to != from)
        QUEUED(cudaMemcpyAsync(to, from, size_bytes, kinds[kind], stream->cuda));
}

static void cuda_fill_zero(struct device_stream *stream, void *to, size_t size_bytes)
{
    if (size_bytes > 0)
        QUEUED(cudaMemsetAsync(to, 0, size_bytes, stream->cuda));
}

static void cuda_cast_list(struct device_stream *stream, const struct device_cast *casts, size_t n_casts,
                           float scale, bool accumulate)
{
    QUEUED(kernel_cast(stream->cuda, casts, n_casts, scale, accumulate));
}

static void cuda_cast(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const void *from,
                      enum fsdp_dtype from_dtype, size_t n_elems, float scale, bool accumulate)
{
    const struct device_cast cast = {
        .to = to, .from = from, .n_elems = n_elems, .to_dtype = to_dtype, .from_dtype = from_dtype
    };

    if (to_dtype == from_dtype && scale == 1.0f && !accumulate)
        cuda_copy(stream, to, from, n_elems * fsdp_dtype_size(to_dtype), DEVICE_COPY_WITHIN);
    else
        cuda_cast_list(stream, &cast, 1, scale, accumulate);
}

static void cuda_round_list(struct device_stream *stream, const struct device_rounding *roundings,
                            size_t n_roundings, uint64_t step)
{
    QUEUED(kernel_round(stream->cuda, roundings, n_roundings, step));
}

static void cuda_amax(struct device_stream *stream, float *amax, const float *from, size_t n_elems)
{
    QUEUED(kernel_fp8_amax(stream->cuda, from, n_elems, FSDP_F32, amax));
}

static void cuda_encode(struct device_stream *stream, uint8_t *to, const void *from,
                        enum fsdp_dtype from_dtype, size_t n_elems, const float *amax)
{
    QUEUED(kernel_fp8_quantise(stream->cuda, from, n_elems, from_dtype, amax, to));
}

static void cuda_decode(struct device_stream *stream, void *to, enum fsdp_dtype to_dtype, const uint8_t *from,
                        size_t n_elems, const float *amax)
{
    QUEUED(kernel_fp8_dequantise(stream->cuda, from, n_elems, amax, to, to_dtype));
}

static enum fsdp_status cuda_check_float8(const struct device *device, struct fsdp_err *err)
{
    const struct cuda_device *state = cuda_state(device);

    return state->major > 8 || (state->major == 8 && state->minor >= 9)
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                           "device %d (%s) has compute capability %d.%d: float8 needs at least 8.9",
                           state->index, state->name, state->major, state->minor);
}

const struct device_ops device_cuda_ops = {
    .name = "cuda",
    .allocs_zeroed = true,
    .open = cuda_open,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .record = cuda_record,
    .wait = cuda_wait,
    .synchronize = cuda_synchronize,
    .copy = cuda_copy,
    .fill_zero = cuda_fill_zero,
    .cast = cuda_cast,
    .cast_list = cuda_cast_list,
    .round_list = cuda_round_list,
    .amax = cuda_amax,
    .encode = cuda_encode,
    .decode = cuda_decode,
    .check_float8 = cuda_check_float8,
    .owns = cuda_owns,
    .alloc_host = cuda_alloc_host,
    .free_host = cuda_free_host,
    .passed = cuda_passed,
    .set_watch = cuda_set_watch,
    .identify = cuda_identify,
    .describe = cuda_describe,
    .usage = cuda_usage,
    .waited_ns = cuda_waited_ns,
    .begin_step = profile_begin_step,
    .begin_span = profile_begin_span,
    .end_span = profile_end_span,
};

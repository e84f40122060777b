/* Copies and fills of the emulated device, and functions of the host's in its queues. */
#include <string.h>

#include "runtime_impl.h"

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
    const struct emulated_range *range = emulated_range_of(memory);

    if (range == NULL)
        return !device;
    return range->device == device && (const char *)memory + size_bytes <= range->begin + range->size_bytes;
}

/*
 * Even from memory that is not page-locked nothing is read before its turn: stricter than CUDA, which may
 * copy it aside.
 */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size_bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    EMULATED_CALL();
    const struct copy copy = { to, from, size_bytes };

    if (!lies_in(to, size_bytes, kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) ||
        !lies_in(from, size_bytes, kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice))
        return cudaErrorInvalidValue;
    emulated_tally("copy");
    if (stream != NULL)
        emulated_trace("copy %s %d %zu %s\n",
                       kind == cudaMemcpyHostToDevice   ? "in"
                       : kind == cudaMemcpyDeviceToHost ? "out"
                                                        : "within",
                       emulated_number_of(stream), size_bytes,
                       emulated_range_of(kind == cudaMemcpyHostToDevice ? from : to) != NULL ? "locked"
                                                                                             : "paged");
    return emulated_queue_copy(stream, run_copy, &copy, sizeof copy);
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

static cudaError_t queue_fill(const struct fill *fill, cudaStream_t stream)
{
    if (fill->height > 0 &&
        !lies_in(fill->to, (fill->height - 1) * fill->pitch_bytes + fill->width_bytes, true))
        return cudaErrorInvalidValue;
    emulated_tally("fill");
    return emulated_queue(stream, run_fill, fill, sizeof *fill);
}

cudaError_t cudaMemset2DAsync(void *to, size_t pitch_bytes, int value, size_t width_bytes, size_t height,
                              cudaStream_t stream)
{
    const struct fill fill = { to, pitch_bytes, width_bytes, height, value };

    EMULATED_CALL();
    return queue_fill(&fill, stream);
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t size_bytes, cudaStream_t stream)
{
    const struct fill fill = { to, size_bytes, size_bytes, 1, value };

    EMULATED_CALL();
    return queue_fill(&fill, stream);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user)
{
    EMULATED_CALL();
    return emulated_queue_host(stream, function, user);
}

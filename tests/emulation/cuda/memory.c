/*
 * The emulated device's memory: mapped without access but while queued work runs, each allocation with a page
 * behind it.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime_impl.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, size_bytes)   ((void)(begin), (void)(size_bytes))
#define ASAN_UNPOISON_MEMORY_REGION(begin, size_bytes) ((void)(begin), (void)(size_bytes))
#endif

enum { MAX_RANGES = 4096, PAGE = 4096 };

static struct emulated_range ranges[MAX_RANGES];
static size_t n_ranges, used_bytes;
static bool open_now;

void emulated_open(bool open)
{
    if (open == open_now)
        return;
    for (size_t i = 0; i < n_ranges; i++)
        if (ranges[i].device && mprotect(ranges[i].begin, ranges[i].mapped_bytes - PAGE,
                                         open ? PROT_READ | PROT_WRITE : PROT_NONE) != 0)
            emulated_die("mprotect failed");
    open_now = open;
}

struct emulated_range *emulated_range_of(const void *memory)
{
    for (size_t i = 0; i < n_ranges; i++)
        if ((const char *)memory >= ranges[i].begin &&
            (const char *)memory < ranges[i].begin + ranges[i].size_bytes)
            return &ranges[i];
    return NULL;
}

bool emulated_is_device(const void *memory)
{
    const struct emulated_range *range = emulated_range_of(memory);

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
        (device && used_bytes + size_bytes > emulated_setting("FSDP_EMULATED_MEMORY", SIZE_MAX)))
        return cudaErrorMemoryAllocation;
    memory = mmap(NULL, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        return cudaErrorMemoryAllocation;
    if ((!device || open_now) && mprotect(memory, whole - PAGE, PROT_READ | PROT_WRITE) != 0)
        emulated_die("mprotect failed");
    ASAN_POISON_MEMORY_REGION(memory + size_bytes, whole - PAGE - size_bytes);
    used_bytes += device ? size_bytes : 0;
    if (device)
        emulated_trace("alloc %zu\n", size_bytes);
    ranges[n_ranges++] = (struct emulated_range){ memory, size_bytes, whole, device };
    *out = memory;
    return cudaSuccess;
}

static cudaError_t unmap(void *memory, bool device)
{
    struct emulated_range *range = emulated_range_of(memory);

    if (memory == NULL)
        return cudaSuccess;
    if (range == NULL || range->begin != memory || range->device != device)
        return cudaErrorInvalidValue;
    emulated_drain(); /* as CUDA's, freeing waits for everything */
    used_bytes -= device ? range->size_bytes : 0;
    if (device)
        emulated_trace("free %zu\n", range->size_bytes);
    ASAN_UNPOISON_MEMORY_REGION(range->begin, range->mapped_bytes);
    (void)munmap(range->begin, range->mapped_bytes);
    *range = ranges[--n_ranges];
    return cudaSuccess;
}

cudaError_t emulated_alloc(void **out, size_t size_bytes)
{
    return map(out, size_bytes, true);
}

cudaError_t emulated_free(void *memory)
{
    return unmap(memory, true);
}

/*
 * A call that is told to fail frees all the same: its failure is that of work before it. On a device that is
 * lost nothing is freed.
 */
static cudaError_t free_told(const char *call, void *memory, bool device)
{
    const cudaError_t told = emulated_call(call), error = emulated_is_lost() ? told : unmap(memory, device);

    return told != cudaSuccess ? told : error;
}

cudaError_t cudaMalloc(void **out, size_t size_bytes)
{
    EMULATED_CALL();
    return map(out, size_bytes, true);
}

cudaError_t cudaFree(void *memory)
{
    return free_told(__func__, memory, true);
}

cudaError_t cudaHostAlloc(void **out, size_t size_bytes, unsigned flags)
{
    (void)flags;
    EMULATED_CALL();
    return map(out, size_bytes, false);
}

cudaError_t cudaFreeHost(void *memory)
{
    return free_told(__func__, memory, false);
}

cudaError_t cudaMemset(void *to, int value, size_t size_bytes)
{
    EMULATED_CALL();
    if (!emulated_is_device(to))
        return cudaErrorInvalidValue;
    emulated_open(true);
    memset(to, value, size_bytes);
    emulated_open(false);
    return cudaSuccess;
}

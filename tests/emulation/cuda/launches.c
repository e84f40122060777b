/* Kernels of the emulated plug-in wait for their turn in the runtime's queues. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tests/emulation/cuda/faults.h"
#include "tests/emulation/cuda/runtime.h"
#include "tests/emulation/emulate.h"

enum { MAX_CALL_BYTES = EMULATE_MAX_ARGUMENT_BYTES + 1024 };

enum { MAX_NAME_BYTES = 96 };

struct launch {
    const char *kernel;
    int (*launch)(const void *call);
    _Alignas(16) unsigned char call[MAX_CALL_BYTES];
};

/* PREFIX, the name within "(name<arguments>)", SUFFIX. */
static void name_kernel(char name[MAX_NAME_BYTES], const char *prefix, const char *kernel, const char *suffix)
{
    const char *plain = kernel + (kernel[0] == '(');

    snprintf(name, MAX_NAME_BYTES, "%s%.*s%s", prefix, (int)strcspn(plain, "<()"), plain, suffix);
}

static bool run_launch(void *closure)
{
    const struct launch *launch = closure;
    const struct emulate_traffic before = emulate_moved();
    struct emulate_traffic after;
    char name[MAX_NAME_BYTES];

    (void)launch->launch(launch->call); /* it ends the program where a GPU would fail */
    after = emulate_moved();
    name_kernel(name, "", launch->kernel, " read");
    emulated_tally_add(name, after.read_bytes - before.read_bytes);
    name_kernel(name, "", launch->kernel, " written");
    emulated_tally_add(name, after.written_bytes - before.written_bytes);
    return true;
}

/* Each kernel's launches are calls of a name of their own. */
static cudaError_t told_by(const char *kernel)
{
    char name[MAX_NAME_BYTES];

    name_kernel(name, "cudaLaunchKernel:", kernel, "");
    return emulated_call(name);
}

static int queue(const char *kernel, struct CUstream_st *stream, int (*launch)(const void *call),
                 const void *call, size_t size_bytes)
{
    struct launch kept;
    cudaError_t told;

    if (size_bytes > sizeof kept.call)
        return cudaErrorInvalidValue;
    kept.kernel = kernel;
    kept.launch = launch;
    memcpy(kept.call, call, size_bytes);
    told = told_by(kernel);
    if (told != cudaSuccess)
        return told;
    emulated_tally(kernel);
    return emulated_queue(stream, run_launch, &kept, offsetof(struct launch, call) + size_bytes);
}

__attribute__((constructor)) static void take_launches(void)
{
    emulate_queue = queue;
}

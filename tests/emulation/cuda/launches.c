/* Kernels of the emulated plug-in wait for their turn in the runtime's queues. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tests/emulation/cuda/faults.h"
#include "tests/emulation/cuda/runtime.h"
#include "tests/emulation/emulate.h"

enum { MAX_CALL_BYTES = EMULATE_MAX_ARGUMENT_BYTES + 1024 };

struct launch {
    int (*launch)(const void *call);
    _Alignas(16) unsigned char call[MAX_CALL_BYTES];
};

static bool run_launch(void *closure)
{
    const struct launch *launch = closure;

    (void)launch->launch(launch->call); /* it ends the program where a GPU would fail */
    return true;
}

/* Each kernel's launches are calls of a name of their own. */
static cudaError_t told_by(const char *kernel)
{
    const char *plain = kernel + (kernel[0] == '(');
    char name[96];

    snprintf(name, sizeof name, "cudaLaunchKernel:%.*s", (int)strcspn(plain, "<()"), plain);
    return emulated_call(name);
}

static int queue(const char *kernel, struct CUstream_st *stream, int (*launch)(const void *call),
                 const void *call, size_t size_bytes)
{
    struct launch kept;
    cudaError_t told;

    if (size_bytes > sizeof kept.call)
        return cudaErrorInvalidValue;
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

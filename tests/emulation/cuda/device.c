/* What the emulated device is, and the words of its errors. */
#include <stdio.h>
#include <stdlib.h>

#include "runtime_impl.h"

static const struct error {
    cudaError_t error;
    const char *name, *words; /* words NULL: its name */
} errors[] = {
    { cudaErrorUnknown, "cudaErrorUnknown", NULL },
    { cudaSuccess, "cudaSuccess", NULL },
    { cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
    { cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
    { cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
    { cudaErrorInvalidDevice, "cudaErrorInvalidDevice", NULL },
    { cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", NULL },
    { cudaErrorNotReady, "cudaErrorNotReady", NULL },
    { cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", NULL },
    { cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered" },
    { cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure" },
};

static const struct error *find_error(cudaError_t error)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == error)
            return &errors[i];
    return &errors[0];
}

const char *cudaGetErrorName(cudaError_t error)
{
    return find_error(error)->name;
}

const char *cudaGetErrorString(cudaError_t error)
{
    const struct error *found = find_error(error);

    return found->words != NULL ? found->words : found->name;
}

/* A mistake in how the device is used: as a fault on a GPU, it is the end. */
void emulated_die(const char *what)
{
    fprintf(stderr, "emulated device: %s\n", what);
    abort();
}

uint64_t emulated_setting(const char *name, uint64_t fallback)
{
    const char *text = getenv(name);

    return text != NULL && text[0] != '\0' ? strtoull(text, NULL, 10) : fallback;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    EMULATED_CALL();
    *count = (int)emulated_setting("FSDP_EMULATED_DEVICES", 1);
    return *count > 0 ? cudaSuccess : cudaErrorNoDevice;
}

static int current_device;

int emulated_device(void)
{
    return current_device;
}

cudaError_t cudaSetDevice(int device)
{
    EMULATED_CALL();
    if (device < 0 || device >= (int)emulated_setting("FSDP_EMULATED_DEVICES", 1))
        return cudaErrorInvalidDevice;
    current_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device)
{
    EMULATED_CALL();
    const int capability = (int)emulated_setting("FSDP_EMULATED_CAPABILITY", 80); /* ten times it */

    (void)device;
    *properties = (struct cudaDeviceProp){
        .name = "emulated",
        .major = capability / 10,
        .minor = capability % 10,
        .multiProcessorCount = 4,
        .sharedMemPerBlockOptin = 163 * 1024 /* as sm_80 */
    };
    return cudaSuccess;
}

/* Memory of 64 GB/s. */
cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device)
{
    EMULATED_CALL();
    (void)device;
    *value = which == cudaDevAttrMemoryClockRate ? 500 * 1000 : 512;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device)
{
    EMULATED_CALL();
    snprintf(id, (size_t)size, "0000:%02x:00.0", device);
    return cudaSuccess;
}

/* A call that answers with a number. */
#define ANSWERS(call, answer)                                                                                \
    cudaError_t call(int *number)                                                                            \
    {                                                                                                        \
        EMULATED_CALL();                                                                                     \
        *number = answer;                                                                                    \
        return cudaSuccess;                                                                                  \
    }
ANSWERS(cudaRuntimeGetVersion, 13000)
ANSWERS(cudaDriverGetVersion, 13000)

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    EMULATED_CALL();
    *least = 0;
    *greatest = -1;
    return cudaSuccess;
}

/* What the emulated device is, and the words of its errors. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>

#include "runtime_impl.h"

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
    case cudaErrorECCUncorrectable:
        return "cudaErrorECCUncorrectable";
    case cudaErrorIllegalAddress:
        return "cudaErrorIllegalAddress";
    case cudaErrorLaunchFailure:
        return "cudaErrorLaunchFailure";
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
           : error == cudaErrorIllegalAddress ? "an illegal memory access was encountered"
           : error == cudaErrorLaunchFailure  ? "unspecified launch failure"
                                              : cudaGetErrorName(error);
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
        .name = "emulated", .major = capability / 10, .minor = capability % 10, .multiProcessorCount = 4
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

cudaError_t cudaRuntimeGetVersion(int *version)
{
    EMULATED_CALL();
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    EMULATED_CALL();
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    EMULATED_CALL();
    *least = 0;
    *greatest = -1;
    return cudaSuccess;
}

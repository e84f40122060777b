/*
 * As much of the CUDA runtime as the plug-in calls, for a host without it. Names and meanings are CUDA's;
 * what stands behind them is in tests/emulation/cuda. No result may go unused. Not for programs that run
 * beside a real runtime.
 */
#ifndef EMULATED_CUDA_RUNTIME_API_H
#define EMULATED_CUDA_RUNTIME_API_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CUDART_CB
#define CUDA_CHECKED __attribute__((warn_unused_result))

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidDevice = 101,
    cudaErrorECCUncorrectable = 214,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorNotReady = 600,
    cudaErrorIllegalAddress = 700,
    cudaErrorLaunchFailure = 719,
    cudaErrorUnknown = 999,
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost,
    cudaMemcpyHostToDevice,
    cudaMemcpyDeviceToHost,
    cudaMemcpyDeviceToDevice,
};

typedef enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_16BF = 14 } cudaDataType_t;

typedef struct CUstream_st *cudaStream_t;
typedef struct CUevent_st *cudaEvent_t;
typedef void (*cudaHostFn_t)(void *user);

struct cudaDeviceProp {
    char name[256];
    int major, minor, multiProcessorCount;
    size_t sharedMemPerBlockOptin;
};

enum { cudaHostAllocDefault = 0, cudaStreamNonBlocking = 1 };
enum { cudaEventDefault = 0, cudaEventDisableTiming = 2 };

enum cudaDeviceAttr { cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37 };

const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);
CUDA_CHECKED cudaError_t cudaGetDeviceCount(int *count);
CUDA_CHECKED cudaError_t cudaSetDevice(int device);
CUDA_CHECKED cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *properties, int device);
CUDA_CHECKED cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr which, int device);
CUDA_CHECKED cudaError_t cudaDeviceGetPCIBusId(char *id, int size, int device);
CUDA_CHECKED cudaError_t cudaRuntimeGetVersion(int *version);
CUDA_CHECKED cudaError_t cudaDriverGetVersion(int *version);
CUDA_CHECKED cudaError_t cudaDeviceSynchronize(void);
CUDA_CHECKED cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest);

CUDA_CHECKED cudaError_t cudaMalloc(void **out, size_t size_bytes);
CUDA_CHECKED cudaError_t cudaFree(void *memory);
CUDA_CHECKED cudaError_t cudaHostAlloc(void **out, size_t size_bytes, unsigned flags);
CUDA_CHECKED cudaError_t cudaFreeHost(void *memory);
CUDA_CHECKED cudaError_t cudaMemset(void *to, int value, size_t size_bytes);

CUDA_CHECKED cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned flags, int priority);
CUDA_CHECKED cudaError_t cudaStreamDestroy(cudaStream_t stream);
CUDA_CHECKED cudaError_t cudaStreamQuery(cudaStream_t stream);
CUDA_CHECKED cudaError_t cudaStreamSynchronize(cudaStream_t stream);
CUDA_CHECKED cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
CUDA_CHECKED cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags);
CUDA_CHECKED cudaError_t cudaEventDestroy(cudaEvent_t event);
CUDA_CHECKED cudaError_t cudaEventQuery(cudaEvent_t event);
CUDA_CHECKED cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to);
CUDA_CHECKED cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);

CUDA_CHECKED cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t size_bytes,
                                         enum cudaMemcpyKind kind, cudaStream_t stream);
CUDA_CHECKED cudaError_t cudaMemsetAsync(void *to, int value, size_t size_bytes, cudaStream_t stream);
CUDA_CHECKED cudaError_t cudaMemset2DAsync(void *to, size_t pitch_bytes, int value, size_t width_bytes,
                                           size_t height, cudaStream_t stream);
CUDA_CHECKED cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *user);

#ifdef __cplusplus
}
#endif

#endif

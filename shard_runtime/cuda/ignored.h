/*
 * The calls whose failure is told nobody, each with its reason. There are no others: what is ignored is written
 * IGNORED(name, call), and a name that is not in this list does not compile there. tests/unit/test_cuda_calls.c reads the sources for
 * calls without a check, tests/system/test_cuda_faults.sh fails every call of a run and holds this list against what came of it.
 */
#ifndef CUDA_IGNORED_H
#define CUDA_IGNORED_H

/* Never told, whenever it is. */
#define CUDA_NEVER_TOLD(X)                                                                                   \
    X(cudaRuntimeGetVersion, "a number in a description: 0.0 stands there")                                  \
    X(cudaDriverGetVersion, "the same")                                                                      \
    X(cublasLtMatrixLayoutDestroy, "frees host memory; the device is not asked")                             \
    X(cublasLtMatmulDescDestroy, "the same")                                                                 \
    X(cublasLtMatmulPreferenceDestroy, "the same")                                                           \
    X(cublasLtDestroy, "all that it made is gone: there is nothing left to lose")                            \
    X(cudnnDestroy, "the same")                                                                              \
    X(cudnnBackendDestroyDescriptor, "frees host memory; the device is not asked")                           \
    X(cudnnBackendGetAttribute, "a number in a description")                                                 \
    X(ncclMemAlloc, "memory by cudaMalloc stands in, and tells its own failure")                             \
    X(ncclCommRegister, "collectives work without, slower; a communicator that is broken tells it itself")   \
    X(ncclCommDeregister, "the communicator or the memory is given up next; the same")                       \
    X(ncclCommFinalize, "at the end of a communicator; it is aborted instead")                               \
    X(ncclCommDestroy, "of one that is finalized: everything of it is done")                                 \
    X(ncclCommAbort, "of one whose failure has been told")

/* Kept for the next wait, as every call without a status: at the end of a process none comes. What a run leaves is saved by then. */
#define CUDA_UNTOLD_AT_THE_END(X)                                                                            \
    X(cudaFree, "the process's memory goes with it")                                                         \
    X(cudaFreeHost, "the same")                                                                              \
    X(cudaStreamDestroy, "the same")                                                                         \
    X(cudaEventDestroy, "the same")                                                                          \
    X(cudaStreamQuery, "waited for before memory is given back; what failed does not keep it from that")     \
    X(cudaStreamSynchronize, "the same")                                                                     \
    X(cudaDeviceSynchronize, "the same")                                                                     \
    X(cudaEventQuery, "of the recorder of collectives: has a call ended, when nobody asks any more")         \
    X(ncclMemFree, "the process's memory goes with it")                                                      \
    X(ncclCommGetAsyncError, "asked while a communicator is finalized: it is aborted instead")

#define CUDA_IGNORED_NAME(name, reason) IGNORED_##name,
enum { CUDA_NEVER_TOLD(CUDA_IGNORED_NAME) CUDA_UNTOLD_AT_THE_END(CUDA_IGNORED_NAME) CUDA_N_IGNORED };

/** Do `call`, one of `name`, whatever comes of it. (A cast to void does not silence gcc where a result must be used.) */
#define IGNORED(name, call)                                                                                  \
    do {                                                                                                     \
        enum { ignored_is_listed = IGNORED_##name };                                                         \
        if ((call) != 0) {                                                                                   \
        }                                                                                                    \
    } while (0)

#endif

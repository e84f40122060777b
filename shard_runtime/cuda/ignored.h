/*
 * The calls whose failure is reported to no caller, each with its reason. There are no others: MUST_CHECK
 * makes the compiler warn of a result that is ignored. A call whose result is ignored is written
 * IGNORED(name, call). A name that is not in this list does not compile there. scripts/lint.sh compares the
 * name with the call. tests/system/test_cuda_faults.sh fails every call of a run and compares the outcome
 * with this list.
 */
#ifndef CUDA_IGNORED_H
#define CUDA_IGNORED_H

/* Failures that are never reported. */
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

/*
 * Failures that are kept for the next wait, as those of every call without a status. At the end of a process
 * there is no next wait; what a run produces is saved by then.
 */
#define CUDA_UNTOLD_AT_THE_END(X)                                                                            \
    X(cudaFree, "the process's memory goes with it")                                                         \
    X(cudaFreeHost, "the same")                                                                              \
    X(cudaStreamDestroy, "the same")                                                                         \
    X(cudaEventDestroy, "the same")                                                                          \
    X(cudaStreamQuery, "waited for before memory is given back; what failed does not keep it from that")     \
    X(cudaStreamSynchronize, "the same")                                                                     \
    X(cudaDeviceSynchronize, "the same")                                                                     \
    X(cudaEventQuery, "of the recorder of collectives: has a call ended, when no caller asks any more")      \
    X(ncclMemFree, "the process's memory goes with it")                                                      \
    X(ncclCommGetAsyncError, "asked while a communicator is finalized: it is aborted instead")

#define CUDA_IGNORED_NAME(name, reason) IGNORED_##name,
enum { CUDA_NEVER_TOLD(CUDA_IGNORED_NAME) CUDA_UNTOLD_AT_THE_END(CUDA_IGNORED_NAME) CUDA_N_IGNORED };

/**
 * Make the call `call` of function `name`, and ignore its result. (A cast to void does not silence gcc if a
 * result must be used.)
 */
#define IGNORED(name, call)                                                                                  \
    do {                                                                                                     \
        enum { ignored_is_listed = IGNORED_##name };                                                         \
        if ((call) != 0) {                                                                                   \
        }                                                                                                    \
    } while (0)

#endif

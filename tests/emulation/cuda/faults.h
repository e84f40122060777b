/*
 * Calls of the emulated device, and of the libraries that go with it, that fail as they are told to.
 *
 * FSDP_EMULATED_CALLS  names a file, to which the rank is added: the name of each call, in their order, a
 * line each; with
 *                      " fails" behind that which was told to
 * FSDP_EMULATED_FAULT  [RANK:]WHICH[!KIND]: on that rank (of all, where none is given) call number WHICH,
 * counted from 1, or
 *                      NAME#N, the N-th of that name, does nothing and fails. With !illegal or !ecc that is a
 *                        fault of the device. It and every later call that asks the device gives the same
 *                        error, nothing that is queued runs any more, and what is freed stays. With !kill the
 *                        process kills itself in the call. Not in a process that
 *                      was restarted (TORCHELASTIC_RESTART_COUNT)
 *
 * Names are CUDA's, cuBLASLt's and NCCL's own; a kernel's launch is "cudaLaunchKernel:NAME".
 */
#ifndef EMULATED_FAULTS_H
#define EMULATED_FAULTS_H

#include <stdbool.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Count a call; what it is to fail with, cudaSuccess to go on. */
cudaError_t emulated_call(const char *name);
/** The same for one that does not ask the device, and works when that is lost. */
cudaError_t emulated_host_call(const char *name);
/** Has the device had a fault? */
bool emulated_is_lost(void);

/* First in each call of CUDA's. */
#define EMULATED_CALL()                                                                                      \
    do {                                                                                                     \
        const cudaError_t told_ = emulated_call(__func__);                                                   \
        if (told_ != cudaSuccess)                                                                            \
            return told_;                                                                                    \
    } while (0)

#ifdef __cplusplus
}
#endif

#endif

/* What the files of the emulated runtime share. */
#ifndef EMULATED_RUNTIME_IMPL_H
#define EMULATED_RUNTIME_IMPL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "faults.h"
#include "runtime.h"
#include "trace.h"

/* Memory of the device, or page-locked. */
struct emulated_range {
    char *begin;
    size_t size_bytes, mapped_bytes;
    bool device;
};

/** A mistake in how the device is used: as a fault on a GPU, it is the end. */
void emulated_die(const char *what);
/** A number of the environment. */
uint64_t emulated_setting(const char *name, uint64_t fallback);

/** Where `memory` lies; NULL: in none that was allocated here. */
struct emulated_range *emulated_range_of(const void *memory);
/** While queued work runs the device's pages may be touched, and at no other time. */
void emulated_open(bool open);

/* Queues: work as emulated_queue(), and what is no work. */
cudaError_t emulated_queue_host(cudaStream_t stream, cudaHostFn_t function, void *user);
/** Do all that is queued. Not a call of the caller's. */
void emulated_drain(void);
int emulated_number_of(cudaStream_t stream);
/** Whoever queues is counted in the trace as work, unless it is a copy. */
cudaError_t emulated_queue_copy(cudaStream_t stream, emulated_work_fn work, const void *closure,
                                size_t size_bytes);

#endif

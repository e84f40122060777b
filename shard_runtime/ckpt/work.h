/* Divides work that consists of independent pieces among threads. */
#ifndef CKPT_WORK_H
#define CKPT_WORK_H

#include <stddef.h>

#include <fsdp/status.h>

enum { WORK_MOST_THREADS = 16 };

/** Returns how many threads are useful here: the CPUs of this process, at most WORK_MOST_THREADS. */
int work_threads(void);

/**
 * Calls piece(arg, i, err) once for each i in 0 .. n - 1, on up to `n_threads` threads. The calls begin in
 * ascending order of i. After a failure no further call begins. Returns the failure of the lowest i.
 */
enum fsdp_status work_run(size_t n, enum fsdp_status (*piece)(void *arg, size_t i, struct fsdp_err *err),
                          void *arg, int n_threads, struct fsdp_err *err);

#endif

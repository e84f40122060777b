/*
 * Reads error files (agent/record/error_file.h) for the loop of a run on several nodes, which must not wait
 * for a disk. A thread of its own reads them, because the one of agent/os/disk.h may stand still in a write.
 * It starts with the first file. A file that the disk does not give in time is not waited for.
 *
 * Thread: the loop's.
 */
#ifndef AGENT_ERROR_READER_H
#define AGENT_ERROR_READER_H

#include <stdbool.h>
#include <uv.h>

#include <fsdp/status.h>

#include "agent/record/errors.h"

enum { ERROR_READER_MS = 2000 }; /* how long a file is waited for */

struct error_reader;

/**
 * Make a reader.
 *   read  error_file_read(), or what a test has in its place. Thread: the reader's
 *   FSDP_ERR_NOMEM  *out is NULL
 */
enum fsdp_status error_reader_create(struct error_reader **out, uv_loop_t *loop,
                                     bool (*read)(struct errors_detail *detail, const char *path),
                                     struct fsdp_err *err);

/**
 * Read the file at `path`. `done` is called once, from the loop. Its `detail` is valid during the call, and
 * has what the file says: all zero, if there is none. NULL: the disk did not answer in time.
 *
 * Returns false if the system has no thread or no memory: `done` is not called.
 */
bool error_reader_ask(struct error_reader *reader, const char *path,
                      void (*done)(void *arg, struct errors_detail *detail), void *arg);

/** Wait for no file any more: calls each `done` that has not been called, with NULL. */
void error_reader_give_up(struct error_reader *reader);

/**
 * End the thread. No call of `done` may be due. Close callbacks free the memory. NULL is a no-op.
 *
 * Returns false if the thread waits for the disk. Then nothing is freed, the loop must not run again, and
 * only the end of the process ends the thread.
 */
bool error_reader_close(struct error_reader *reader);

#endif

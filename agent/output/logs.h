/*
 * Captured output: a pipe for each stream of each rank, read on the loop, written to its file first (log_file.h).
 * The file is the buffer: the console copies lines from there (console.h), so that a slow terminal delays nobody and
 * memory stays at one read buffer whatever is written. A console that keeps up takes them out of that buffer.
 *
 * One wake-up of one stream is one read of at most 256 KiB: ranks share the loop fairly. When a file cannot be
 * written (disk full) this is said once on the console; the pipe is drained all the same, so that the worker lives,
 * and when the file takes bytes again a line in it says how many were lost.
 *
 * Where files are rotated, what the console has not shown yet stays open without a name. So may be held a quarter of
 * the descriptors that the process may have; then the oldest goes, and a line on the console says how much it was.
 *
 * Lines with any of a stream's filters in them are also appended, with the prefix, to filtered_stdout.log or
 * filtered_stderr.log of the generation.
 *
 * Life: logs_create(); per generation and rank logs_open() for stdout and stderr, the returned descriptor goes to
 * the child and is closed by the caller; when a rank died, logs_tell(); when the world of a generation is
 * reaped, logs_end_generation(); at the end logs_drain(), then logs_destroy().
 * Thread: the loop's. logs_create() makes the process ignore SIGXFSZ (a log may meet the file size limit).
 */
#ifndef AGENT_LOGS_H
#define AGENT_LOGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

#include "agent/output/console.h"
#include "agent/record/errors.h"
#include "agent/record/rundir.h"

struct logs;

/** Where one stream of one rank goes. */
enum logs_mode {
    LOGS_INHERIT = 0, /* the terminal, as the agent has it: nothing is captured */
    LOGS_FILE,        /* its file only (torchrun's -r; a rank that --local-ranks-filter hides) */
    LOGS_TEE,         /* its file and, line by line, the console (torchrun's -t; a job's output) */
    LOGS_NULL, /* nowhere (torchrun's --local-ranks-filter, of what is inherited): not for logs_open() */
};

struct logs_spec {
    int generation, rank, local_rank;
    enum rundir_stream stream;
    enum logs_mode mode;
    const char
        *prefix; /* TEE, filters: before every line, as logs_prefix() makes it; NULL for none; copied */
    char *const *filters; /* lines with any of these in them are also kept filtered; borrowed; NULL: none */
};

/** When log files are rotated; zeroed: never (struct agent_output has the meaning of both). */
struct logs_rotation {
    uint64_t limit_bytes;
    int n_rotated;
};

/**
 * Both are borrowed until logs_destroy(). `rundir` NULL: no logs are kept, each stream is buffered in a file without
 * a name, and nothing is filtered or rotated. `console` may be NULL when no stream is LOGS_TEE.
 */
enum fsdp_status logs_create(struct logs **out, uv_loop_t *loop, struct rundir *rundir,
                             struct console *console, const struct logs_rotation *rotation,
                             struct fsdp_err *err);

/**
 * Close every pipe and file. Memory is freed by close callbacks: run the loop to its end before closing it.
 * The console must outlive it. NULL is a no-op.
 */
void logs_destroy(struct logs *logs);

/**
 * Open one stream. *fd: the write end of its pipe, close-on-exec, the caller's to hand to the child and close;
 * -1 for LOGS_INHERIT. FSDP_ERR_IO: the pipe or the log file cannot be made; nothing was opened.
 */
enum fsdp_status logs_open(struct logs *logs, const struct logs_spec *spec, int *fd, struct fsdp_err *err);

/**
 * What the last of `rank`'s captured stderr in its newest generation tells (last_words_tell()). What its pipe still holds
 * is read first: an exit is often seen before the last words. detail->log is its file's path, where one is kept. False, and nothing is told, when it is not captured.
 */
bool logs_tell(struct logs *logs, int rank, bool uncaught, struct errors_detail *detail);

/**
 * Every process of the generation is gone: read what is left in its pipes and close them, whoever else may
 * still hold one. The console goes on showing what the files have.
 */
void logs_end_generation(struct logs *logs);

/**
 * After the last logs_end_generation(): wait for the console (console_drain() with 5 s without progress, 10 s in
 * all on a terminal), say how much was not shown and where it is, then call `done` from the loop. At once when
 * nothing is left.
 */
void logs_drain(struct logs *logs, void (*done)(void *data), void *data);

uint64_t logs_captured(const struct logs *logs); /* bytes read from workers so far */
uint64_t logs_lost(const struct logs *logs);     /* of them, bytes that no file took */

/**
 * A prefix from its template: ${rank}, ${local_rank}, ${role_name}, ${hostname} (or ${host}), ${generation},
 * ${stream}; as in Python's string.Template, $rank is ${rank}, $$ is $, and what is no such name stays as it is.
 * NULL template: "[rank ${rank}]: ". Cut to `size`; returns `out`.
 */
struct logs_names {
    int rank, local_rank, generation;
    const char *role_name, *host;
    enum rundir_stream stream;
};
const char *logs_prefix(char *out, size_t size, const char *template, const struct logs_names *names);

#endif

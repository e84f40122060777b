/*
 * What the workers print. Each stdout or stderr of a worker that passes through this process is one stream.
 * It has a channel that the loop reads, and one of two sinks that take its bytes.
 *
 * Captured streams go to a log (logs.c). The log file is the buffer:
 *   - The bytes are appended to the file first (log_file.h). The console copies complete lines from there by
 *     offset (console.h). So a slow terminal delays no worker, and memory stays at one read buffer.
 *   - With a disk (agent/os/disk.h), its thread appends. Of each stream it has one read at a time; the reads
 *     after that wait in memory. Beyond about 1 MiB the channel is not read until the disk has taken some.
 *   - If the file takes no bytes (disk full), the console says so once. The channel is still read, so the
 *     worker lives. When the file takes bytes again, a line in it says how many were lost.
 *   - A rotated file that the console has not shown completely stays open without a name. At most a quarter
 *     of the file descriptors (RLIMIT_NOFILE) are used for this. Beyond that the oldest file is closed, and a
 *     line on the console says how many bytes were never shown.
 *   - Lines that contain one of the stream's filter words are also appended, with the prefix, to
 *     filtered_stdout.log or filtered_stderr.log of the generation.
 *
 * Inherited streams go to fsdprun's own stderr, byte for byte (relay.c). Nothing is cut into lines, prefixed
 * or kept in a file. Only the last bytes are kept, for the report of a failure (last_words.h):
 *   - The channel is a pipe. If fsdprun's stderr is a terminal, it is a pseudo-terminal of the same size
 *     (pty.h). So the worker's isatty() returns the same as without us.
 *   - If stdout and stderr of fsdprun are the same terminal, pipe, socket or file, the worker gets one
 *     channel for both. So the order of its writes is kept. Otherwise the worker writes to fsdprun's stdout
 *     directly.
 *   - While fsdprun's stderr takes nothing, no inherited stream is read, so the workers wait as they would
 *     without us.
 *   - When the reader of fsdprun's stderr is gone, the channels are closed, and the workers' writes fail with
 *     EPIPE.
 *   - Bytes that cannot be written for another reason (disk full) are skipped and counted.
 *   - If no channel can be made, the worker gets fsdprun's stderr itself. output_tell() then reports that.
 *
 * Life:
 *   1. output_create()
 *   2. output_open_files() and output_open() for each stream of each worker of a generation
 *   3. output_tell() when a worker has died
 *   4. output_end_generation() when all processes of the generation are gone; then 2 to 4 for the next
 *      generation
 *   5. output_drain(), then output_destroy()
 *
 * Thread: the loop's. If streams are captured, output_create() makes the process ignore SIGXFSZ, because a
 * log may reach the file size limit.
 */
#ifndef AGENT_OUTPUT_H
#define AGENT_OUTPUT_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include <fsdp/status.h>

#include "agent/os/disk.h"
#include "agent/output/console.h"
#include "agent/record/errors.h"
#include "agent/record/rundir.h"

struct output;

/** Where one stream of one rank goes. */
enum output_mode {
    OUTPUT_INHERIT = 0, /* to where fsdprun's own goes */
    OUTPUT_FILE, /* to its log file only (torchrun's -r; a captured rank that --local-ranks-filter hides) */
    OUTPUT_TEE,  /* to its log file and, line by line, to the console (torchrun's -t; a job's output) */
    /* nowhere (torchrun's --local-ranks-filter): /dev/null; only the last words of a stderr are kept */
    OUTPUT_NULL,
};

struct output_spec {
    struct disk *disk;       /* writes the files; borrowed; NULL: the loop does */
    struct rundir *rundir;   /* borrowed; NULL: no log is kept, and nothing is filtered or rotated */
    struct console *console; /* borrowed; outlives the output */
    uint64_t limit_bytes;    /* a log file that has reached this is rotated; 0: never */
    int n_rotated;           /* rotated files that are kept in addition to the one in use */
    int out_fd, err_fd;      /* fsdprun's own stdout and stderr; borrowed */
    bool captures;           /* some stream of some rank is OUTPUT_FILE or OUTPUT_TEE */
    bool relays;             /* the stderr of some rank is OUTPUT_INHERIT or OUTPUT_NULL */
    bool direct;             /* an inherited stream never gets a channel */
};

/**
 * Create the output of a run in *out. Without a run directory each captured stream is buffered in a temporary
 * file without a name.
 *   FSDP_ERR_NOMEM  *out is NULL
 */
enum fsdp_status output_create(struct output **out, uv_loop_t *loop, const struct output_spec *spec,
                               struct fsdp_err *err);

/**
 * Close every channel and file. Inherited bytes that were not written yet are lost. Close callbacks free the
 * memory: run the loop to its end before closing it. NULL is a no-op.
 */
void output_destroy(struct output *output);

struct stream_spec {
    int generation, rank, local_rank;
    enum rundir_stream which;
    enum output_mode mode;
    /* the text before captured lines, on the console and in filtered files; NULL: none; copied */
    const char *prefix;
    /* captured lines with any of these words are also kept filtered; borrowed; NULL: none */
    char *const *filters;
};

/** The files of one stream, before it has a channel. */
struct stream_files {
    struct log_file *log;      /* NULL: the stream is not captured */
    struct filtered *filtered; /* the file that gets the lines with a filter word; NULL: none */
    char path[RUNDIR_PATH_BYTES];
};

/**
 * Open the files of one stream. `files` goes to output_open(), or to output_close_files().
 *   FSDP_ERR_IO, FSDP_ERR_NOMEM  a file cannot be opened; `files` is empty
 * Thread: the loop's or the disk's, but always the same one.
 */
enum fsdp_status output_open_files(struct output *output, const struct stream_spec *spec,
                                   struct stream_files *files, struct fsdp_err *err);
void output_close_files(struct stream_files *files);

/**
 * Open one stream with these files, which it takes, also after an error. *fd receives the worker's end:
 * close-on-exec, owned by the caller, who hands it to the child and closes it. -1: the worker keeps fsdprun's
 * own descriptor.
 *   FSDP_ERR_IO     the channel or /dev/null cannot be opened; nothing was opened
 *   FSDP_ERR_NOMEM  the same
 */
enum fsdp_status output_open(struct output *output, const struct stream_spec *spec,
                             struct stream_files *files, int *fd, struct fsdp_err *err);

/**
 * Returns whether fsdprun's stdout and stderr are one place, so that a worker writes both into one channel.
 */
bool output_joins(const struct output *output);

/** Returns whether captured streams are kept in files of the run directory. */
bool output_keeps_files(const struct output *output);

/**
 * Fill `detail` with the end of the newest stderr of `rank` (last_words_tell()); detail->log receives the
 * path of its log file, if one is kept. An exit is often seen before the last bytes, so what the channel
 * still holds is read first. Nothing is filled in for a rank whose stderr was never opened. If its stderr has
 * no channel, the last line says where the output went, and detail->shown becomes false.
 *   uncaught  the worker ended as Python does after an exception that was not caught
 */
void output_tell(struct output *output, int rank, bool uncaught, struct errors_detail *detail);

/**
 * All workers of the generation have ended: read what is left in their channels, then close them. Do not wait
 * for the end of a channel, because a process that could not be killed may still hold it. Later the console
 * still shows lines of the files that it has not shown yet.
 */
void output_end_generation(struct output *output);

/**
 * After the last output_end_generation(): wait until everything has been written out, report on the console
 * what was not, then call `done` from the loop. If the disk is not idle, it has been given up: what it has
 * not taken counts as lost. Two waits, one after the other:
 *   1. For the console, if streams are captured: until it has taken nothing for 5 s; on a terminal at most 10
 *     s in all.
 *   2. For the reader of inherited output: without a limit, as the workers would wait. After output_hurry()
 *      until nothing was taken for 5 s.
 */
void output_drain(struct output *output, void (*done)(void *data), void *data);

/** Limit the second wait of output_drain(), now or when it begins. A second call changes nothing. */
void output_hurry(struct output *output);

/**
 * Give every pseudo-terminal the size that fsdprun's terminal has now (SIGWINCH). Every read does so, too.
 */
void output_resized(struct output *output);

/** Returns whether the last inherited byte that was written out did not end a line. */
bool output_within_line(const struct output *output);

/** Returns the number of bytes read so far from workers, without inherited streams that are not shown. */
uint64_t output_taken(const struct output *output);

/** Returns the number of bytes read so far from workers, of all streams that have a channel. */
uint64_t output_read(const struct output *output);

#endif

/*
 * What the files of the logs share: logs.c is the life of streams, from the pipe into the file; logs_filtered.c what is
 * kept a second time; logs_prefix.c (which needs none of this) the words before a line.
 */
#ifndef AGENT_LOGS_IMPL_H
#define AGENT_LOGS_IMPL_H

#include "agent/output/log_file.h"
#include "agent/output/log_filter.h"
#include "agent/output/logs.h"

enum { LOGS_READ_BYTES = 256 * 1024, LOGS_PREFIX_BYTES = 256 };

struct stream {
    struct logs *logs;
    struct stream *next;
    int generation, rank;
    enum rundir_stream which;
    uv_poll_t poll;
    int pipe_fd;                   /* read end; -1 once closed */
    struct log_file *file;         /* kept for the tail and the console */
    struct log_filter *filter;     /* NULL: nothing is kept twice; NULL too once the pipe is closed */
    struct console_source *source; /* NULL: not shown, or all of it is */
    bool handle_open, said_unrotated;
    char prefix[LOGS_PREFIX_BYTES];
    char path[RUNDIR_PATH_BYTES];
};

/* filtered_stdout.log or filtered_stderr.log of the newest generation. */
struct filtered {
    int fd, generation; /* fd -1: none is open */
    bool said;          /* that it takes nothing */
    char path[RUNDIR_PATH_BYTES];
};

struct logs {
    uv_loop_t *loop;
    struct rundir *rundir;
    struct fsdp_io *io; /* of the run directory; NULL without one */
    struct console *console;
    struct stream *streams;
    struct filtered filtered[2]; /* by enum rundir_stream */
    struct logs_rotation rotation;
    size_t n_held_most; /* rotated files that may stay open, over all streams */
    uint64_t captured, lost;
    bool said_full; /* that a file takes nothing, since all last did */
    bool destroyed;
    int n_open_handles;
    void (*drained)(void *data);
    void *drained_data;
    uv_timer_t timer; /* calls `drained` from the loop where there is no console */
    char buffer[LOGS_READ_BYTES];
};

/** Have `stream` filtered: opens its generation's file and makes stream->filter. */
enum fsdp_status filtered_begin(struct stream *stream, char *const *words, struct fsdp_err *err);
/** Its pipe is at its end: a last line counts too. */
void filtered_end(struct stream *stream);
void filtered_close(struct logs *logs);

#endif

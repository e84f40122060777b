/*
 * Shared by the files of the output. Each file owns one part of struct output:
 *   output.c         the life of the whole, and `n_open_handles`
 *   stream.c         struct stream: the channel of one stream, how it is read, and when it is closed and
 *                    freed
 *   logs.c           struct captured and struct logs: the sink of captured streams
 *   logs_write.c     struct piece: the way of captured bytes to their files
 *   logs_filtered.c  struct filtered: the lines that are kept a second time
 *   relay.c          struct relay: the sink of inherited streams
 */
#ifndef AGENT_OUTPUT_IMPL_H
#define AGENT_OUTPUT_IMPL_H

#include <stdatomic.h>

#include "agent/os/sink.h"
#include "agent/output/log_file.h"
#include "agent/output/log_filter.h"
#include "agent/output/log_times.h"
#include "agent/output/output.h"
#include "agent/output/pty.h"
#include "agent/record/last_words.h"

enum { OUTPUT_READ_BYTES = 256 * 1024, OUTPUT_PREFIX_BYTES = 256 };

struct stream;
struct piece;

/** What is done with the bytes of a stream. There are two instances: logs_sink and relay_sink. */
struct stream_sink {
    size_t read_bytes; /* the most bytes that one read takes, up to OUTPUT_READ_BYTES */
    size_t held_bytes; /* about how many bytes stream_read_held() reads at most */
    int n_reads;       /* the most reads in a row from one stream that is in the middle of a line */
    /* whether streams are not read while the sink is full; false: the sink takes everything */
    bool waits;
    /* Take bytes[0..n), which are borrowed for the call. */
    void (*take)(struct stream *stream, const char *bytes, size_t n);
    /*
     * Copy the last bytes of the stream and return their number. *cut: older bytes are missing before them.
     */
    size_t (*tail)(struct stream *stream, char bytes[LAST_WORDS_BYTES], bool *cut,
                   struct errors_detail *detail);
};

struct stream {
    const struct stream_sink *sink;
    struct output *output;
    struct stream *next; /* opened after this one */
    int generation, rank;
    enum rundir_stream which;
    int fd;         /* our end of the channel; -1: closed, or there never was one */
    uv_poll_t poll; /* of `fd` */
    bool handle_open;
    bool ended; /* the generation is over: the channel is closed as soon as it is empty */
    bool is_pty;
    struct pty pty;
    struct last_words words;

    /* For a captured stream (logs.c); unused if the stream is inherited. */
    struct log_file *file;         /* also read for the console */
    struct log_times times;        /* of `file` */
    struct log_filter *filter;     /* NULL: no line is kept a second time, or the channel is closed */
    struct filtered *filtered;     /* takes the lines of `filter`; NULL without it */
    struct console_source *source; /* NULL: the stream is not shown, or all of it has been shown */
    bool said_unrotated;
    char prefix[OUTPUT_PREFIX_BYTES];
    char path[RUNDIR_PATH_BYTES];

    /*
     * For bytes on their way to the files (logs_write.c). While `writing`, the disk's thread uses file,
     * filter and the members below.
     */
    struct disk_job job; /* writes `oldest` or, if that is NULL, ends the filter */
    bool writing, ending, paused;
    struct piece *oldest, **newest;
    size_t n_waiting; /* bytes */
    struct log_file_result result;
    /* why lines are missing in the filtered file; empty: none are missing */
    char unfiltered[RUNDIR_PATH_BYTES + 128];

    /* For an inherited stream (relay.c); unused if the stream is captured. */
    bool shown; /* false: only its last words are kept */
    int error;  /* errno, if no channel could be made for the stream; else 0 */
    /*
     * (n_held) bytes that were read from the channel; the agent must write them before it reads more from it
     */
    char *held;
    size_t n_held;
};

/**
 * filtered_stdout.log or filtered_stderr.log of one generation. Each stream that writes to it is a user. If
 * the disk is slow, lines of one generation may be written after the next one has begun.
 */
struct filtered {
    /* streams that write to the file; the last one closes the file and frees this struct */
    atomic_int n_users;
    int fd, generation;
    bool said; /* the console was told that the file takes no bytes; used by the writing thread */
    char path[RUNDIR_PATH_BYTES];
};

/** What all captured streams share. */
struct logs {
    struct rundir *rundir;
    struct fsdp_io *io; /* files of the run directory; NULL before the first log is opened */
    struct disk *disk;  /* NULL: files are written on the loop */
    struct console *console;
    uint64_t limit_bytes;
    int n_rotated;
    bool captures;
    size_t n_held_most; /* rotated files that may stay open, over all streams */
    /* the files of the newest generation, by enum rundir_stream; NULL: no filter */
    struct filtered *filtered[2];
    uint64_t lost;  /* bytes that no file took */
    bool said_full; /* the console was told that a log file takes no bytes; reset when one takes some */
};

/** What all inherited streams share. */
struct relay {
    int err_fd;
    struct sink sink; /* err_fd */
    bool joins, direct, terminal;
    bool blocked;     /* the sink takes no bytes, so no inherited stream is read */
    bool gone;        /* the sink has no reader any more */
    bool within_line; /* the last byte written was not a newline */
    uv_poll_t ready;  /* of the sink; unused unless ready_open */
    bool ready_open;
    uv_timer_t
        /* runs every RETRY_MS if the sink cannot be watched, and every OUTPUT_STALL_MS in a hurried drain */
        timer;
    bool hurried, draining;
    uint64_t moved, moved_before; /* bytes written in all: now, and at the timer's last look */
    uint64_t lost;                /* bytes that the sink did not take, or that were given up at the end */
};

struct output {
    uv_loop_t *loop;
    struct stream *streams; /* oldest first */
    struct logs logs;
    struct relay relay;
    uint64_t taken, n_read;
    bool destroyed; /* output_destroy() was called: the memory is freed when no handle is open */
    int n_open_handles;
    void (*drained)(void *data);
    void *drained_data;
    char buffer[OUTPUT_READ_BYTES]; /* of the read in progress */
};

/* stream.c */

/** Allocate a stream. It is not in the output's list yet and has no channel. NULL: no memory. */
struct stream *stream_create(const struct stream_sink *sink, struct output *output,
                             const struct stream_spec *spec);
void stream_free(struct stream *stream); /* the stream must be in no list and have no channel */
/**
 * Add the stream to the output's list, which owns it from now on. Frees streams that are no longer needed.
 */
void stream_add(struct stream *stream);
/**
 * Make the channel: a pipe of at least `size_bytes` (0: the system's size), or a pseudo-terminal in front of
 * `terminal` (-1: a pipe). *theirs receives the worker's end. Reading begins with stream_resume(). Returns 0,
 * or an errno; then nothing is open and *theirs is -1.
 */
int stream_connect(struct stream *stream, int terminal, int size_bytes, int *theirs);
void stream_resume(struct stream *stream); /* read the channel whenever it has bytes; it must be open */
/**
 * Read what the channel holds now, about sink->held_bytes at most: a writer that never stops must not keep us
 * here.
 */
void stream_read_held(struct stream *stream);
/**
 * Close the channel: no more bytes will come, and the console ends when it has shown the rest. A no-op
 * without one.
 */
void stream_close(struct stream *stream);
/** Forget the bytes of the stream that wait to be shown or written. */
void stream_drop(struct stream *stream);
/* like stream_drop(), but forgets only inherited bytes that wait to be written */
void stream_drop_held(struct stream *stream);
/** Free every stream that has no channel and no bytes left, and whose last words are not needed any more. */
void stream_sweep(struct output *output);

/* logs.c */
extern const struct stream_sink logs_sink;
void logs_init(struct output *output, const struct output_spec *spec);
void logs_fini(struct logs *logs);
/** What output_open_files() and output_open() do for OUTPUT_FILE and OUTPUT_TEE. */
enum fsdp_status logs_open_files(struct output *output, const struct stream_spec *spec,
                                 struct stream_files *files, struct fsdp_err *err);
enum fsdp_status logs_open(struct output *output, const struct stream_spec *spec, struct stream_files *files,
                           int *fd, struct fsdp_err *err);
/** Bytes were appended to the log: show them on the console, and report what was lost. */
void logs_written(struct stream *stream, const char *bytes, size_t n);
/**
 * Call it when no bytes of the stream are on their way to the files, and none will come: tells the console
 * that the log has ended.
 */
void logs_ended(struct stream *stream);
/** Print a line that bytes were lost, unless there is one already. */
void logs_say_lost(struct stream *stream, const struct log_file_result *result);
/**
 * Do not wait any longer for bytes that are on their way to the files: the console ends where the files end
 * now.
 */
void logs_give_up(const struct output *output);
/** Print how many bytes the console did not show (`left`), and how many no file took. */
void logs_report(const struct output *output, uint64_t left);

/* logs_write.c */

/** Bring the bytes of a read to the files. The bytes are borrowed for the call. */
void logs_take(struct stream *stream, const char *bytes, size_t n);
/** The channel is closed: when all bytes are written, a last line without newline is filtered too. */
void logs_end(struct stream *stream);

/* logs_filtered.c */

/**
 * Set *out to the filtered file of the stream's generation, and become one of its users. The first call in a
 * generation opens the file. Thread: that of output_open_files().
 */
enum fsdp_status filtered_open(struct logs *logs, const struct stream_spec *spec, struct filtered **out,
                               struct fsdp_err *err);
/** Stop being a user of the file. NULL is a no-op. Thread: any. */
void filtered_release(struct filtered *filtered);
/** Make stream->filter. The thread that writes the stream's log passes the bytes to it. */
enum fsdp_status filtered_begin(struct stream *stream, char *const *words, struct fsdp_err *err);

/* relay.c */
extern const struct stream_sink relay_sink;
void relay_init(struct output *output, const struct output_spec *spec);
void relay_close(struct output *output); /* close the handles; the sink stays open until relay_fini() */
void relay_fini(struct relay *relay);
/** What output_open() does for a stderr of OUTPUT_INHERIT or OUTPUT_NULL. *fd -1: there is no channel. */
enum fsdp_status relay_open(struct output *output, const struct stream_spec *spec, int *fd,
                            struct fsdp_err *err);
/**
 * A generation has ended: limit the memory of its bytes that wait to be written, so that many restarts do not
 * use more and more memory.
 */
void relay_bound(struct output *output);
/**
 * Wait until inherited output has been written, report what was not, then call output->drained from the loop.
 */
void relay_drain(struct output *output);
/** Call it when a stream was read or closed, because the drain may be over then. */
void relay_check_drained(struct output *output);

/* output.c */
/* a handle of the output was closed; after the last one the output is freed */
void output_handle_closed(struct output *output);

#endif

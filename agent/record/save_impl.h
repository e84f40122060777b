/*
 * Shared by the files of save.h. save.c runs on the loop: it collects the reports of the ranks, and starts
 * and ends the work of a thread. save_work.c is what the thread does: it publishes a collection, removes what
 * is then too old to keep, or prepares a generation.
 */
#ifndef AGENT_SAVE_IMPL_H
#define AGENT_SAVE_IMPL_H

#include "agent/record/save.h"
#include "agent/record/save_own.h"
#include "agent/record/search_watch.h"
#include "shard_runtime/shardfile/directory_lock.h"

enum { SAVE_LINES_BYTES = 8192 };

/** What one rank reported. */
struct part {
    bool reported;
    uint64_t size_bytes, checksum[2]; /* size 0: the rank owns no rows, and there is no file */
    char file[FSDP_LINK_NAME_BYTES];
};

/** One step that is collected on the loop, then published by the thread. */
struct collection {
    struct collection *next; /* in a list of struct save */
    int64_t step;
    uint32_t generation;
    int world_size, n_reported;
    int64_t loaded_step; /* which retention must keep; -1: none */
    uint32_t keep;
    int64_t started_ns;         /* when rank 0 began, CLOCK_MONOTONIC */
    int64_t stalled_ns;         /* how long it kept rank 0 from training, if the agent wrote the file; 0 */
    const struct save_own *own; /* the program's directory; NULL: the run's */
    bool refused;               /* every rank was told; after the last report the files are removed */
    int head_fd;                /* the head of the manifest, from rank 0; -1: not yet */
    char temporary[FSDP_LINK_NAME_BYTES]; /* where the ranks wrote; empty until the first report */
    struct part parts[];                  /* (world_size) */
};

enum work_kind { WORK_PREPARE, WORK_PUBLISH, WORK_RETAIN, WORK_CLEAN };

/**
 * The work of a thread, with all that it needs: the thread touches nothing else of the loop's, except the
 * locks. The loop creates and frees it.
 */
struct work {
    uv_work_t request;
    struct save *save;
    struct fsdp_io *io;
    char directory[IO_PATH_BYTES];
    enum work_kind kind;
    struct collection *collection; /* to publish, or just published; NULL: prepare a generation, or clean */
    uint32_t generation;           /* when the work began */
    const struct save_own *own;    /* all directories of the program's; the list only grows */
    struct fsdp_err err;

    /* Preparing: signs of life for the loop. */
    struct counting_io files; /* the run's files */
    _Atomic uint64_t n_done;  /* operations that came to their end, in all directories */
    const char *_Atomic at;   /* the directory whose disk is being asked */
    bool given_up;            /* set by the loop: the disk does not answer, and the result counts no more */

    /* Results. */
    int64_t step; /* found by preparing; -1: none */
    uint64_t size_bytes;
    double seconds;
    char lines[SAVE_LINES_BYTES]; /* for people, each ended by a newline; the loop hands them on */
    size_t lines_bytes;
};

struct save {
    uv_loop_t *loop;
    struct fsdp_io *io;
    char directory[IO_PATH_BYTES]; /* RUN/checkpoints; empty: none */
    struct save_handlers handlers;
    uint32_t generation;
    int world_size;
    int64_t loaded_step;
    /* Of this generation, newest first. All but the newest were refused, and wait for the last reports. */
    struct collection *collecting;
    struct collection *ready;     /* complete, waiting for the thread, in their order */
    int64_t lost_step;            /* the step of the reports for which there was no memory */
    int n_lost;                   /* their number; 0: none */
    struct directory_lock *locks; /* the thread's while `working`; held until the end */
    struct save_own *own;
    bool working;
    void (*idle)(void *arg); /* NULL: no caller waits for that */
    void *idle_arg;
    save_prepared *prepared; /* the caller who asked for a step; NULL: none, or it was answered */
    void *prepared_arg;
    bool settles;               /* that caller wants no search */
    bool unclean;               /* what generations before this one left unfinished was not removed */
    int64_t known_step;         /* save_known_step() */
    struct search_watch *watch; /* over what is being prepared; NULL: nothing is, or it may take any time */
};

/** The thread's function: the struct work of the request. Never fails; what went wrong is in its `err`. */
void save_do_work(uv_work_t *request);

#endif

/*
 * Shared by the files of save.h. save.c runs on the loop: it collects the reports of the ranks, and starts
 * and ends the work of a thread. save_work.c is what the thread does: it publishes a collection, removes what
 * is then too old to keep, or prepares a generation.
 */
#ifndef AGENT_SAVE_IMPL_H
#define AGENT_SAVE_IMPL_H

#include "agent/save/save.h"
#include "agent/save/save_own.h"
#include "agent/save/search_watch.h"
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
    int64_t started_ns; /* when rank 0 began, CLOCK_MONOTONIC */
    /* how long the save kept rank 0 from training, if an agent wrote its file; else 0 */
    int64_t stalled_ns;
    const struct save_own *own; /* the program's directory; NULL: the run's */
    /* every rank was told that this save failed; the files are removed after the last rank has reported */
    bool refused;
    int head_fd; /* the head of the manifest, from rank 0; -1: not yet */
    /* the directory to which the ranks wrote; empty until the first report */
    char temporary[FSDP_LINK_NAME_BYTES];
    struct part parts[]; /* (world_size) */
};

enum work_kind { WORK_PREPARE, WORK_PUBLISH, WORK_RETAIN, WORK_CLEAN, WORK_CLEAN_ALL };

/**
 * The work of a thread, with all data that it needs. The thread uses nothing else that belongs to the loop,
 * except the locks. The loop creates and frees it.
 */
struct work {
    uv_work_t request;
    struct save *save;
    struct fsdp_io *io;
    char directory[IO_PATH_BYTES];
    enum work_kind kind;
    /* what to publish, or what was just published; NULL: the work is to prepare a generation, or to clean */
    struct collection *collection;
    uint32_t generation;        /* when the work began */
    const struct save_own *own; /* all directories that the program has named; the list only grows */
    struct fsdp_err err;

    /* Preparing: signs of life for the loop. */
    struct counting_io files; /* the run's files */
    _Atomic uint64_t n_done;  /* file operations that have ended, in all directories */
    const char *_Atomic at;   /* the directory whose disk is being asked */
    /* set by the loop: the disk does not answer, so the result does not count any more */
    bool given_up;

    /* Results. */
    int64_t step; /* found by preparing; -1: none */
    uint64_t size_bytes;
    double seconds;
    char lines[SAVE_LINES_BYTES]; /* lines for people, each with its newline; the loop prints them */
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
    /*
     * saves of this generation, newest first; all but the newest were refused, and wait for their last
     * reports
     */
    struct collection *collecting;
    struct collection *ready;     /* complete, waiting for the thread, in their order */
    int64_t lost_step;            /* the step whose reports were lost for lack of memory */
    int n_lost;                   /* their number; 0: none */
    struct directory_lock *locks; /* used by the thread while `working`; the locks are held until the end */
    struct save_own *own;
    bool working;
    void (*idle)(void *arg); /* NULL: no caller waits for that */
    void *idle_arg;
    /* the function that is called when the step is known; NULL: none waits for it */
    save_prepared *prepared;
    void *prepared_arg;
    bool settles;       /* that caller wants no search */
    bool unclean;       /* files that earlier generations left unfinished may still be there */
    bool is_over;       /* save_end() was called */
    int64_t known_step; /* save_known_step() */
    /* watches the disk while a generation is prepared; NULL: nothing is watched */
    struct search_watch *watch;
};

/**
 * Runs on the thread: does the work of the request's struct work. It always completes; a failure is in the
 * work's `err`.
 */
void save_do_work(uv_work_t *request);

#endif

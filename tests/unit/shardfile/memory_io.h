/*
 * Files in memory behind struct fsdp_io, for two questions that a real disk does not answer on demand. What
 * if the nth call fails, and what is left after a power cut before the nth call?
 *
 * Every file keeps what was written and what was synced; every directory keeps its entries, those that were
 * synced, and the changes since, in order. memory_io_crash() throws away what was not synced: all of it, none
 * of it, or a random part. The random part is one that a file system might have written on its own. It has
 * any blocks of any file, and any beginning of the changes of each directory.
 */
#ifndef TESTS_SHARDFILE_MEMORY_IO_H
#define TESTS_SHARDFILE_MEMORY_IO_H

#include <stdbool.h>
#include <stdint.h>

#include "shard_runtime/shardfile/io.h"

struct memory_node;

struct memory_io {
    struct fsdp_io base;
    struct memory_node *root, *nodes; /* all nodes ever made, for release */
    struct memory_file {
        struct memory_node *node;
        bool direct;
        bool syncs; /* O_DSYNC: a write is synced when it returns */
    } open_files[64];
    int n_open;
    int calls;   /* made so far */
    int fail_at; /* this call fails with fail_errno, without effect; 0: none */
    int fail_errno;
    bool has_failed;   /* call fail_at was reached */
    int stop_at;       /* from this call on all fail with EIO: the process is dead; 0: never */
    bool takes_direct; /* O_DIRECT works, and asks for whole blocks; else EINVAL at open */
    bool short_calls;  /* reads and writes move half of what is asked, every third call is EINTR */
    bool cannot_exchange;
    const char *last; /* name of the last call made */
};

void memory_io_init(struct memory_io *io);
void memory_io_fini(struct memory_io *io);

enum memory_crash { CRASH_KEEP_SYNCED, CRASH_KEEP_ALL, CRASH_KEEP_NAMES, CRASH_KEEP_RANDOM };

/** The machine comes up again: all descriptors are gone, unsynced state as `kind` says, no failures armed. */
void memory_io_crash(struct memory_io *io, enum memory_crash kind, uint64_t seed);

/**
 * Calls `body` with a new disk for n = 1, 2, ... until a run has no nth call. The body saves what it needs,
 * sets calls to 0 and fail_at to n, does what is tested, sets fail_at to 0 and looks. No descriptor may be
 * left open. Returns how many calls were made to fail.
 */
int memory_io_fail_each(int error, void (*body)(struct memory_io *io, int n));

/** A deep copy of what is there, synced and not, to crash it more than once. */
void memory_io_copy(struct memory_io *to, const struct memory_io *from);

#endif

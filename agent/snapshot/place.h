/*
 * The place in memory where programs keep snapshots: a directory of one run in /dev/shm, which survives the
 * workers. If the system lets us mount one, the directory is a file system of its own, and its size is the
 * limit.
 *
 * The guard makes it before the agent begins, and removes it at the end. If both are killed, the next run of
 * this user removes it: a lock tells which runs live.
 */
#ifndef AGENT_PLACE_H
#define AGENT_PLACE_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { PLACE_PATH_BYTES = 128 };

struct place {
    char path[PLACE_PATH_BYTES]; /* empty: there is none */
    /* the lock is held by every process that has this descriptor; no worker has it */
    int lock_fd;
    bool is_mounted; /* the place is a file system of its own, whose size is the limit */
    uint64_t limit_bytes;
};

/**
 * Make the place, and remove those of runs that are gone.
 *   limit_bytes  -1: half of what /dev/shm may hold; without a usable /dev/shm there is no place, which is no
 *                error. 0: no place is made
 *   FSDP_ERR_CONFIG  the system does not give so much memory at this place
 *   FSDP_ERR_IO      it cannot be made there
 * After an error there is none.
 */
enum fsdp_status place_make(struct place *place, int64_t limit_bytes, struct fsdp_err *err);

/**
 * Remove the place with all that is in it. Does nothing if there is no place, or if it was removed before.
 */
void place_remove(struct place *place);

/**
 * place_make() in the folder `shm` instead of /dev/shm, for tests. `mounts`: try to mount a file system for
 * the place.
 */
enum fsdp_status place_make_in(struct place *place, const char *shm, int64_t limit_bytes, bool mounts,
                               struct fsdp_err *err);

#endif

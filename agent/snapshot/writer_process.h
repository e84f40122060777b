/*
 * The process that writes slots of snapshot segments to the disk, so that neither the agent's loop nor a step
 * waits for a disk. It is this program, executed again (core/self_process.h). Its stdin is a SOCK_SEQPACKET:
 * requests come in, each with the descriptor of a segment, and an answer goes out for each. It ends when the
 * other end is closed, or with its parent. What it was writing then is left as a killed rank leaves it.
 *
 * Each request is handled by a thread of its own, as each rank has at most one. The first thread, which waits
 * for no disk, says from time to time what the others have written, if they take long.
 */
#ifndef AGENT_WRITER_PROCESS_H
#define AGENT_WRITER_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

#include "shard_runtime/shardfile/commit.h"

/*
 * Write the shard file in a slot to <directory>/<temporary>/<the rank's name>. The process keeps a lock
 * on that directory until the next request of the same worker.
 */
struct writer_request {
    uint64_t id;     /* comes back in the answer; not 0 */
    uint32_t worker; /* local rank */
    uint32_t rank;
    int32_t slot;
    /* while a file is being written, a report on it comes whenever so much time has passed; 0: no reports */
    uint32_t word_ms;
    uint64_t number; /* of the slot's filling */
    char temporary[COMMIT_NAME_BYTES];
    char run_dir[4096];   /* absolute */
    char directory[4096]; /* of the checkpoints, absolute; empty: RUN/checkpoints */
};

struct writer_answer {
    uint64_t id;
    uint32_t status; /* enum fsdp_status; other than FSDP_OK: there is no file, and `words` says why */
    /*
     * 0: this is the answer to request `id`. Else a word on so many files that are being written: their sizes
     * together, what of that is written, and the step and the time of the oldest one
     */
    uint32_t n_files;
    uint64_t size_bytes; /* 0: the slot's rank has no rows, and no file was written */
    uint64_t written_bytes;
    uint64_t checksum[2];
    int64_t step, took_ns;
    char words[FSDP_LINK_WORDS_BYTES];
};

/**
 * Start the process. *socket is our end, close-on-exec and not blocking. The caller reaps the process.
 *   FSDP_ERR_IO  it could not be started
 */
enum fsdp_status writer_process_start(pid_t *pid, int *socket, struct fsdp_err *err);

/** If argv[0] is the name of such a process, do its work and exit. Otherwise return at once. */
void writer_process_main(int argc, char **argv);

#endif

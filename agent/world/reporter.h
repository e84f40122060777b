/*
 * How a node reports to its coordinator. There are two instances:
 *   - local: the coordinator runs in this process (coordinator_reporter() of
 *     agent/cluster/coordinator.h);
 *   - remote: it runs on another node, and a report becomes a message (uplink_reporter() of
 *     agent/rendezvous/uplink.h).
 * The agent of the coordinator's node turns these messages into calls of the local instance again.
 *
 * Thread: the loop's. The coordinator may answer from within a report, by a call into the world.
 */
#ifndef AGENT_REPORTER_H
#define AGENT_REPORTER_H

#include <stddef.h>

#include <fsdp/link.h>

#include "agent/record/errors.h"
#include "agent/record/events.h"
#include "agent/record/first_cause.h"
#include "agent/record/hang_rank.h"
#include "agent/snapshot/entries.h"
#include "agent/snapshot/restore.h"
#include "agent/watch/pace.h"

/* What a signal to fsdprun asks for. */
enum reporter_ask {
    REPORTER_STOP,     /* stop the run within the grace */
    REPORTER_STOP_NOW, /* stop it without the grace */
    REPORTER_SAVE,     /* save a checkpoint, then stop */
    REPORTER_FORWARD,  /* pass the signal on to every worker of the job; nothing ends */
    REPORTER_ASK_COUNT
};

/* What becomes of the store of a generation (agent/cluster/store_host.h). */
enum reporter_store_kind {
    REPORTER_STORE_OPEN = 1, /* it listens: `port`, and in `words` the address for programs */
    REPORTER_STORE_FAILED,   /* it cannot be opened: `words` */
    REPORTER_STORE_CAME,     /* `pid`, a worker of `node`, has come to it; 0: all workers of that node have */
    REPORTER_STORE_CHANGED,  /* a client changed a key `ago_ns` ago */
    REPORTER_STORE_KINDS
};

enum { REPORTER_STORE_WORDS_BYTES = 512 };

struct reporter_store {
    uint64_t question; /* the number of the order to open it */
    enum reporter_store_kind kind;
    int port, node, pid;
    int64_t ago_ns;
    char words[REPORTER_STORE_WORDS_BYTES];
};

/* Pointers are borrowed for the call. `generation` is the one that the report is about. */
struct reporter {
    void *to; /* the first argument of every function */

    /* A worker ended (death->kind DEATH_NONE: well), could not be started, or hangs. `detail` may be NULL. */
    void (*exited)(void *to, int generation, const struct death *death, const struct errors_detail *detail);
    /*
     * What the ranks of this node showed when one was found to hang, here or on another node. `json` (length
     * bytes) is a report of agent/watch/hang_report.h. It comes before `exited` for that rank.
     */
    void (*explained)(void *to, int generation, const char *json, size_t length);
    /* The steps that this node has in memory. It comes before `stopped`, if there are any. */
    void (*held)(void *to, int generation, const struct restore_steps *held);
    /* This node has a snapshot of the program (agent/snapshot/entries.h), or small files of it. */
    void (*entry)(void *to, int generation, const struct snapshot_entry *entry);
    /*
     * On this node no worker of the generation is alive, and no process that a worker left, unless it cannot
     * be killed.
     */
    void (*stopped)(void *to, int generation);
    /*
     * So many processes that workers left are still here although KILL was sent to them: they sleep inside
     * the kernel. Comes before `stopped` when there are some, and again when none is left (0).
     */
    void (*unkilled)(void *to, int n);
    /* A worker's event: `json` (length bytes) is a JSON object for events.jsonl. */
    void (*event)(void *to, int generation, int rank, const char *json, size_t length);
    /* An event of the agent itself, with its fields, for events.jsonl. */
    void (*record)(void *to, int generation, const char *event, const struct events_field *fields);
    /*
     * A rank's part of a checkpoint is on disk, or failed. The callee closes `manifest_fd`; -1: there is
     * none.
     */
    void (*saved)(void *to, int generation, int rank, const struct fsdp_link_saved *saved, int manifest_fd);
    /* A rank was silent for too long. It is reported again while that holds. */
    void (*suspects)(void *to, int generation);
    /* What a rank is doing, as an answer to that question of the coordinator; without `node`. */
    void (*rank)(void *to, int generation, uint64_t question, const struct hang_rank *rank);
    /* What a rank spent in a window of steps. */
    void (*pace)(void *to, int generation, const struct pace *pace);
    /* A worker put a value without a descriptor, which the ranks of the other nodes may ask for. */
    void (*put)(void *to, int generation, const char *key, const void *value, size_t size_bytes);
    /* A worker asked for a key that no worker of this node has put. Each key is asked for once. */
    void (*want)(void *to, int generation, const char *key);
    /* The store that this node has for the generation. */
    void (*store)(void *to, int generation, const struct reporter_store *store);
    /* The user sent `signal` to fsdprun on this node. */
    void (*asked)(void *to, int signal, enum reporter_ask how);
};

#endif

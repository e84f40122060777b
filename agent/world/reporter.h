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

/* What has happened to the store of a generation (agent/cluster/store_host.h). */
enum reporter_store_kind {
    REPORTER_STORE_OPEN = 1, /* the store listens at `port`; `words` is the address for programs */
    REPORTER_STORE_FAILED,   /* it cannot be opened: `words` */
    /* the worker `pid` of `node` has connected to the store; pid 0: all workers of that node have */
    REPORTER_STORE_CAME,
    REPORTER_STORE_CHANGED, /* a client changed a key `ago_ns` ago */
    REPORTER_STORE_KINDS
};

enum { REPORTER_STORE_WORDS_BYTES = 512 };

struct reporter_store {
    uint64_t question; /* the number of the order to open the store */
    enum reporter_store_kind kind;
    int port, node, pid;
    int64_t ago_ns;
    char words[REPORTER_STORE_WORDS_BYTES];
};

/* Pointers are borrowed for the call. `generation` is the one that the report is about. */
struct reporter {
    void *to; /* the first argument of every function */

    /*
     * A worker has ended, could not be started, or hangs. death->kind is DEATH_NONE if it ended well.
     * `detail` may be NULL.
     */
    void (*exited)(void *to, int generation, const struct death *death, const struct errors_detail *detail);
    /*
     * What the ranks of this node showed when a rank was found to hang, here or on another node. `json`
     * (length bytes) is a report of agent/watch/hang_report.h. If the hung rank is this node's, its `exited`
     * comes after this.
     */
    void (*explained)(void *to, int generation, const char *json, size_t length);
    /* The steps that this node has in memory. It is called before `stopped`, unless there are none. */
    void (*held)(void *to, int generation, const struct restore_steps *held);
    /* This node has a snapshot of the program (agent/snapshot/entries.h), or small files of it. */
    void (*entry)(void *to, int generation, const struct snapshot_entry *entry);
    /*
     * No worker of the generation is alive on this node, and no process that a worker left, except those that
     * cannot be killed.
     */
    void (*stopped)(void *to, int generation);
    /*
     * `n` processes that workers left are still here although KILL was sent to them, because they sleep
     * inside the kernel. Called before `stopped` if there are some, and with 0 when none is left.
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
    /* A rank was silent for too long. This is reported again as long as it is. */
    void (*suspects)(void *to, int generation);
    /*
     * What a rank is doing, as the answer to the coordinator's question number `question`. `node` is not
     * filled in.
     */
    void (*rank)(void *to, int generation, uint64_t question, const struct hang_rank *rank);
    /* What a rank spent in a window of steps. */
    void (*pace)(void *to, int generation, const struct pace *pace);
    /* A worker put a value without a descriptor. Ranks of other nodes may ask for it. */
    void (*put)(void *to, int generation, const char *key, const void *value, size_t size_bytes);
    /* A worker asked for a key that no worker of this node has put. Each key is asked for once. */
    void (*want)(void *to, int generation, const char *key);
    /* What has happened to the store that this node has for the generation. */
    void (*store)(void *to, int generation, const struct reporter_store *store);
    /* The user sent `signal` to fsdprun on this node. */
    void (*asked)(void *to, int signal, enum reporter_ask how);
};

#endif

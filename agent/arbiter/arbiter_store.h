/*
 * Where an arbiter keeps its record: in a directory that all nodes share (directory_store.h), or in etcd. The
 * store decides one thing only: which agent gets a term. lead.h decides everything else, from the store's
 * answers.
 *
 * The calls may block. They are made one after another, all on one thread, which is not the loop's. A call
 * that says ARBITER_FAILED may have taken effect or not, and may take effect later: a claim at any time, a
 * renewal within a fifth of a lease, so that it undoes no later one. `err` then has words for a person, which
 * name the store.
 *
 * Because of caches, a read may return a record that was overwritten up to a tenth of a lease before the read
 * began. It never returns an older one. lead.h allows for that much.
 */
#ifndef AGENT_ARBITER_STORE_H
#define AGENT_ARBITER_STORE_H

#include <fsdp/status.h>

#include "agent/arbiter/leader_record.h"

enum arbiter_answer {
    ARBITER_DONE = 1,
    ARBITER_NONE,    /* of read: there is no record yet */
    ARBITER_TAKEN,   /* claim(): another agent has taken this term, or an earlier call of this agent has */
    ARBITER_DEPOSED, /* renew(): the store has a record of a higher term, or of this term by another agent */
    ARBITER_FAILED   /* the store did not answer, or refused */
};

struct arbiter_store;

struct arbiter_store_ops {
    const char *name; /* as --arbiter has it: "directory", "etcd" */
    /**
     * Read the newest record or claim: of the highest term, and of that the highest sequence. A claim is
     * found at the latest when its owner has written a record; if it never does, after some time. Bytes that
     * are not a complete record do not count. ARBITER_DONE: `out` has it. Else ARBITER_NONE or
     * ARBITER_FAILED.
     */
    enum arbiter_answer (*read)(struct arbiter_store *store, struct leader_record *out, struct fsdp_err *err);
    /**
     * Take the term of `claim` (its sequence is 0). Of all that ever claim a term, exactly one gets it, and
     * it is never given back.
     *   ARBITER_DONE    this agent has the term
     *   ARBITER_TAKEN   `holder` receives the newest record, which has this term or a higher one. If the
     *                   holder's claim cannot be read, it has the term and an identity of zeros
     *   ARBITER_FAILED
     */
    enum arbiter_answer (*claim)(struct arbiter_store *store, const struct leader_record *claim,
                                 struct leader_record *holder, struct fsdp_err *err);
    /**
     * Overwrite the record. The call looks first: if there is one of a higher term, or of this term and
     * another identity, it writes nothing. If it looked in time and writes late, it does not hide a higher
     * term.
     *   ARBITER_DONE     `record` is stored, and who reads from now on sees it
     *   ARBITER_DEPOSED  `newer` receives what is there
     *   ARBITER_FAILED
     */
    enum arbiter_answer (*renew)(struct arbiter_store *store, const struct leader_record *record,
                                 struct leader_record *newer, struct fsdp_err *err);
    /** Frees the store. No call may be in progress. The record stays. Thread: the loop's. */
    void (*destroy)(struct arbiter_store *store);
};

/* The struct of each kind of store has this as its first member. */
struct arbiter_store {
    const struct arbiter_store_ops *ops;
};

#endif

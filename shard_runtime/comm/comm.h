/*
 * How a process group is opened, and what a back end implements. The calls of <fsdp/comm.h> check their
 * arguments once and then make one indirect call. There are two back ends:
 *   cpu     host memory; shared memory inside a node, TCP between nodes (cpu.c)
 *   device  device memory; wraps a group of the cpu back end (device_comm.h)
 *
 * Unless a function says otherwise, only the thread that uses the group may call it.
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stdbool.h>

#include <fsdp/comm.h>

#include "shard_runtime/comm/call.h"

struct link;

struct comm_config {
    const char *name;   /* the group's name, unique in the generation: "world" */
    struct link *link;  /* brings segments and addresses to the members; outlives the communicator */
    const int *ranks;   /* (size) global ranks of the members, ascending; NULL: the whole world */
    int rank, size;     /* this process's number in the group; members */
    size_t chunk_bytes; /* shared memory that a rank fills at a time; 0: the back end chooses */
};

/* A back end. A slot must be filled unless its comment says that it is optional. */
struct comm_ops {
    const char *name;
    /* Closes the group and frees comm->state. */
    void (*close)(struct fsdp_comm *comm);
    /* Runs a collective. Its arguments have been checked, and its number is comm->sequence. */
    enum fsdp_status (*run)(struct fsdp_comm *comm, const struct comm_work *work, struct fsdp_err *err);
    /*
     * True if `run` takes COMM_SCALED_SUM: the sum of every rank's `send` times a factor, each product
     * rounded to the tensors' type.
     */
    bool scales;
    /*
     * Optional: fills in `part`, the group of those members of `comm` that `ranks` lists (part->size of
     * them). NULL: comm_split() opens the group over the link.
     */
    enum fsdp_status (*split)(struct fsdp_comm *comm, struct fsdp_comm *part, const int *ranks,
                              struct fsdp_err *err);
    /*
     * Optional: tells the other members, between two calls, that this rank calls no other collective, and
     * why. NULL: they find out when the process ends.
     */
    void (*fail)(struct fsdp_comm *comm, enum fsdp_status status, const char *words);
    /*
     * True if the back end wraps another group, which may be sound while this one is broken. comm_fail() then
     * calls `fail` for a broken group too.
     */
    bool wraps;
    /*
     * Optional: returns true if a member called `fail`, with its words in `err`. Called between two
     * collectives. Never waits.
     */
    bool (*hear)(struct fsdp_comm *comm, struct fsdp_err *err);
};

/**
 * Returns whether comm_reduce_scatter_scaled() works; if not, its caller multiplies before the sum. The
 * answer is the same on all ranks.
 */
bool comm_scales(const struct fsdp_comm *comm);

/**
 * As fsdp_reduce_scatter() with FSDP_SUM, of every rank's `send` times `factor`, which is equal on all ranks.
 * Returns FSDP_ERR_ARG unless comm_scales().
 */
enum fsdp_status comm_reduce_scatter_scaled(struct fsdp_comm *comm, const void *send, void *recv,
                                            size_t n_elems, enum fsdp_dtype dtype, float factor,
                                            struct device_stream *stream, struct fsdp_err *err);

/**
 * Returns the bytes of private buffers that a member of a group of `n_nodes` x `per_node` keeps once it was
 * used.
 */
size_t comm_staging_bytes(int n_nodes, int per_node);
/**
 * Returns the bytes of the segment that a group's `per_node` members on one node share. Each of them maps the
 * whole segment. 0 if the node has one member.
 */
size_t comm_shared_bytes(int per_node);

/**
 * Opens a group over host memory. Collective over the members.
 *
 *   config  read during the call only, except for `link`
 *
 * *out is the caller's to destroy; NULL after an error, which leaves nothing open.
 *   FSDP_ERR_ARG          a name, rank or list of members that cannot be
 *   FSDP_ERR_UNSUPPORTED  the members are not spread evenly over the nodes
 *   FSDP_ERR_PEER         another member is gone or cannot be reached
 */
enum fsdp_status comm_create(struct fsdp_comm **out, const struct comm_config *config, struct fsdp_err *err);

/**
 * From now on only the calling thread may call collectives of this group and of groups split from it. Other
 * threads get FSDP_ERR_ARG: two threads would call collectives in an order that differs from rank to rank.
 */
void comm_own(struct fsdp_comm *comm);
/**
 * Declares that the calling thread is one to which groups are lent: it may call collectives of every group.
 */
void comm_second_thread(void);
/**
 * Gives the group to such a second thread (`lent`), or takes it back. While it is lent, the owner, who calls
 * this function, gets FSDP_ERR_ARG from collectives. NULL is a no-op.
 */
void comm_lend(struct fsdp_comm *comm, bool lent);

/** Returns whether a call of this group has failed; then no later call can succeed. NULL returns false. */
bool comm_is_broken(const struct fsdp_comm *comm);

/**
 * Leaves the group for good, between two of its calls. Members that wait for this rank, now or later, get
 * FSDP_ERR_PEER with `words`. The group is broken with `status` and `words` on this rank.
 * NULL is a no-op. So is a group that is broken already, but a group that it wraps is still told.
 */
void comm_fail(struct fsdp_comm *comm, enum fsdp_status status, const char *words);

/**
 * Returns whether a member left by comm_fail(), with its words in `err`. Waits up to `wait_ms` for that, but
 * not after the agent is gone.
 */
bool comm_hear(struct fsdp_comm *comm, int wait_ms, struct fsdp_err *err);

/** Checks whether comm_split() can open a group of `ranks`, without communication.
 * Returns FSDP_ERR_UNSUPPORTED if the members are not spread evenly over the nodes. */
enum fsdp_status comm_can_split(const struct fsdp_comm *world, const char *name, const int *ranks, int size,
                                struct fsdp_err *err);

/**
 * Opens a group of some members of the world group `world`, with the same owner. Collective over those
 * members.
 *
 *   name   as in comm_config; the same on the members and used by no other group
 *   ranks  (size) ascending global ranks, this process's among them
 */
enum fsdp_status comm_split(struct fsdp_comm **out, struct fsdp_comm *world, const char *name,
                            const int *ranks, int size, struct fsdp_err *err);

#endif

/*
 * How a process group is opened, and what a back end implements. <fsdp/comm.h> checks arguments once and makes
 * one indirect call. Back ends: `self` (W = 1: copies, no communication), `shm` (all ranks on one host, one
 * memfd segment), `tcp` (one rank a host), `joined` (shared memory inside a host, TCP across).
 */
#ifndef COMM_COMM_H
#define COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include <fsdp/comm.h>

struct link;

struct comm_config {
    const char *name;   /* of the group, unique in the generation: "world" */
    struct link *link;  /* bootstrap: put/get of segments and addresses; outlives the communicator */
    const int *ranks;   /* (size) global ranks of the members in order; NULL: all of the world */
    int rank, size;     /* of this process in the group */
    size_t chunk_bytes; /* 0: the back end's own */
};

struct comm_ops {
    const char *name;
    enum fsdp_status (*open)(struct fsdp_comm *comm, const struct comm_config *config, struct fsdp_err *err);
    void (*close)(struct fsdp_comm *comm);
    enum fsdp_status (*all_gather)(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                   enum fsdp_dtype dtype, struct fsdp_err *err);
    enum fsdp_status (*reduce_scatter)(struct fsdp_comm *comm, const void *send, void *recv, size_t n_elems,
                                       enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err);
    enum fsdp_status (*all_reduce)(struct fsdp_comm *comm, void *buffer, size_t n_elems,
                                   enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err);
    enum fsdp_status (*broadcast)(struct fsdp_comm *comm, void *buffer, size_t size_bytes, int root,
                                  struct fsdp_err *err);
    enum fsdp_status (*barrier)(struct fsdp_comm *comm, struct fsdp_err *err);
    /* Optional: fill in `part`, the group of the members `ranks` (part->size) of `comm`. NULL: comm_create() opens it
     * over the link. */
    enum fsdp_status (*split)(struct fsdp_comm *comm, struct fsdp_comm *part, const int *ranks,
                              struct fsdp_err *err);
    /* Optional: tell the other members, between two calls, that this rank comes to none any more, and why. NULL: they see it
     * when its process ends. */
    void (*fail)(struct fsdp_comm *comm, enum fsdp_status status, const char *words);
    bool wraps; /* another group, which may be sound where this one is broken: `fail` tells it then, too */
    /* Optional, and never waits: true where a member said so between two calls, with its words in `err`. */
    bool (*hear)(struct fsdp_comm *comm, struct fsdp_err *err);
    /* Optional: the sum of what each rank gives times `factor`, the product rounded to `dtype`. NULL: it cannot. */
    enum fsdp_status (*reduce_scatter_scaled)(struct fsdp_comm *comm, const void *send, void *recv,
                                              size_t n_elems, enum fsdp_dtype dtype, float factor,
                                              struct fsdp_err *err);
};

/** Can the group multiply on its way to a sum? Where it cannot, who calls multiplies before. The same on all its ranks. */
bool comm_scales(const struct fsdp_comm *comm);

/** fsdp_reduce_scatter() with FSDP_SUM, of every rank's `send` times `factor`, the same on all. Only where comm_scales(). */
enum fsdp_status comm_reduce_scatter_scaled(struct fsdp_comm *comm, const void *send, void *recv,
                                            size_t n_elems, enum fsdp_dtype dtype, float factor,
                                            struct device_stream *stream, struct fsdp_err *err);

/** Bytes that a member of a group of `n_nodes` x `per_node` keeps for itself, to move data through, once it was used. */
size_t comm_staging_bytes(int n_nodes, int per_node);
/** Bytes of the segment that the group's `per_node` members on a node share; each of them maps all of it. 0 for one. */
size_t comm_shared_bytes(int per_node);

/** Open with the back end that fits where the members are. Collective over the members. */
enum fsdp_status comm_create(struct fsdp_comm **out, const struct comm_config *config, struct fsdp_err *err);

/** From here on the calling thread alone may call collectives of this group and of those split from it: another is refused
 * (FSDP_ERR_ARG), as two threads would call them in an order that differs from rank to rank. */
void comm_own(struct fsdp_comm *comm);
/** The calling thread is one to which groups are lent: it may call them all. */
void comm_second_thread(void);
/** Lend the group to such a thread, or take it back: meanwhile its owner, who calls this, is refused. NULL is a no-op. */
void comm_lend(struct fsdp_comm *comm, bool lent);

/** Did a call of this group fail? Then none can succeed any more. The thread that calls it. */
bool comm_is_broken(const struct fsdp_comm *comm);

/** Leave the group for good, between two of its calls: members that wait for this rank, now or later, end with FSDP_ERR_PEER
 * and these words. NULL, and a group that is broken anyway, are left alone, but for a sound one that it wraps. The thread that
 * calls it, which makes no call. */
void comm_fail(struct fsdp_comm *comm, enum fsdp_status status, const char *words);

/** Did a member leave by comm_fail(), and why? Waits for it a moment, wait_ms at most, and no longer than there is an agent. */
bool comm_hear(struct fsdp_comm *comm, int wait_ms, struct fsdp_err *err);

/** Can a group of `ranks` be opened by comm_split(): are the members spread over the nodes as its back ends need them? No
 * communication. FSDP_ERR_UNSUPPORTED: they are not. */
enum fsdp_status comm_can_split(const struct fsdp_comm *world, const char *name, const int *ranks, int size,
                                struct fsdp_err *err);

/** A group of some members of the world group `world`: `ranks` (size) ascend, this process's is among them. Collective
 * over them; `name` as in comm_config, the same on all of them and on nobody else. */
enum fsdp_status comm_split(struct fsdp_comm **out, struct fsdp_comm *world, const char *name,
                            const int *ranks, int size, struct fsdp_err *err);

#endif

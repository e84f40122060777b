/*
 * The process that copies snapshots between the memory of nodes, so that neither the agent's loop nor a step
 * waits for the network. It is this program, executed again (core/self_process.h), once for a generation. Its
 * stdin is a SOCK_SEQPACKET. It ends when the other end is closed, or with its parent.
 *
 *   1. The agent sends a SEGMENT for each segment that the process works with, then BEGIN.
 *   2. The process listens, and answers with LISTENS. From now on it serves other nodes.
 *   3. FETCH: each rank of this node gets a snapshot from another node. FETCHED says what came of it.
 *   4. PEER: each filling of this node's ranks is copied there. FAILED, once, says that this has ended.
 *
 * Between two of these processes (copy_stream.h), the one that connects says what it wants, by a struct
 * copy_request. PUSH: then it sends a struct copy_offer for each filling, gets a struct copy_reply, and sends
 * the bytes if the reply says so. A second reply says that they are there. FETCH: it gets a reply, and if
 * that says so an offer with its bytes. Every connection, and every rank, has a thread.
 */
#ifndef AGENT_COPIES_PROCESS_H
#define AGENT_COPIES_PROCESS_H

#include <stdint.h>
#include <sys/types.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

#include "shard_runtime/shardfile/snapshot.h"

enum copies_order_kind {
    COPIES_OWN = 1, /* descriptor: the segment of local rank `index` */
    /* a descriptor: the segment for the copy of the worker with local rank `index` of another node */
    COPIES_HELD,
    COPIES_BEGIN, /* `begin` */
    COPIES_FETCH, /* fetch the snapshot `begin.from` from the node at `address` and `port` */
    COPIES_PEER,  /* to `address` and `port` */
};

enum { COPIES_ADDRESS_BYTES = 256, COPIES_RANKS = 4096 };

struct copies_begin {
    uint32_t n;                      /* ranks of this node: as many as segments of each kind */
    uint32_t first_rank, world_size; /* of this node */
    struct snapshot_held from;       /* what the ranks go on from; every other snapshot is dropped */
    /* the token of the generation, from which the key of the connections is derived */
    unsigned char token[32];
};

struct copies_order {
    uint32_t kind, index;
    struct copies_begin begin;
    int32_t port;
    char address[COPIES_ADDRESS_BYTES];
};

enum copies_answer_kind {
    COPIES_LISTENS = 1, /* the process listens at `port`; port 0: it does not, and `words` has the reason */
    COPIES_FETCHED,     /* `status`, and `words` */
    COPIES_FAILED,      /* `words`: fillings are not copied any more */
};

struct copies_answer {
    uint32_t kind, status;
    int32_t port;
    char words[FSDP_LINK_WORDS_BYTES];
};

/** Start the process, as self_process_talk(). */
enum fsdp_status copies_process_start(pid_t *pid, int *socket, struct fsdp_err *err);

/** If argv[0] is the name of such a process, do its work and exit. Otherwise return at once. */
void copies_process_main(int argc, char **argv);

#endif

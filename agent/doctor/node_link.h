/*
 * The link of a rank of the doctor: keys by which the nodes exchange reports and addresses. Between nodes
 * they travel over the sessions of the agents, with their TLS. (include/fsdp/link.h; a worker of a training
 * job has more of the link, in shard_runtime/comm.)
 */
#ifndef AGENT_DOCTOR_NODE_LINK_H
#define AGENT_DOCTOR_NODE_LINK_H

#include <stddef.h>

#include <fsdp/link.h>
#include <fsdp/status.h>

struct node_link {
    int fd;
    uint32_t tag;
    struct fsdp_link_hello hello;
};

/**
 * Take the agent's HELLO from the socket `fd`, which stays the caller's. FSDP_ERR_FORMAT or FSDP_ERR_PEER:
 * the socket is no link.
 */
enum fsdp_status node_link_open(struct node_link *link, int fd, struct fsdp_err *err);

/** Put a value of at most FSDP_LINK_VALUE_BYTES at the key "doctor/NAME/RANK". */
enum fsdp_status node_link_put(struct node_link *link, const char *name, int rank, const void *value,
                               size_t n_bytes, struct fsdp_err *err);

/**
 * Wait until the key "doctor/NAME/RANK" has a value, and return it.
 *   value  (FSDP_LINK_VALUE_BYTES + 1) gets the value and a final zero
 *   FSDP_ERR_PEER    another node or the agent is gone
 *   FSDP_ERR_FORMAT  the agent sent something else
 */
enum fsdp_status node_link_get(struct node_link *link, const char *name, int rank, char *value,
                               size_t *n_bytes, struct fsdp_err *err);

#endif

/*
 * The agent's end of a link, played by a test. It has the other end of the socket pair, and sends packets
 * before they are read (tags count from 1). So every order of events is exact. One link a test: each runs in
 * a process of its own.
 */
#ifndef TEST_COMM_AGENT_END_H
#define TEST_COMM_AGENT_END_H

#include "shard_runtime/comm/link_client.h"

struct agent_end {
    int fd;         /* the test's */
    int workers_fd; /* the one named in the environment */
};
extern struct agent_end agent_end;

/** Make both ends and name the worker's in the environment. */
void agent_end_open(void);
/** The same, say hello, and let the worker open its end. */
struct link *agent_end_opened(void);

/** A file in memory that holds these bytes, and one that is a progress page; the caller closes them. */
int agent_end_file(const void *bytes, size_t size);
int agent_end_page(void);

/** Rank 1 of 2 on one node, in generation 3, to resume at step 7. */
struct fsdp_link_hello agent_end_two_ranks(void);

/** A packet with `fd` (-1: none), which is closed: it is the worker's now. */
void agent_end_say(int type, uint32_t tag, const void *payload, size_t size, int fd);
/** A packet whose header may be wrong; the descriptors stay the caller's. */
void agent_end_say_raw(const struct fsdp_link_header *header, const void *payload, size_t size,
                       const int *fds, int n_fds);
void agent_end_say_hello(void);

/**
 * What the worker sent: payload length; header and payload are filled in, and its descriptor (fd NULL: not
 * wanted) or -1.
 */
size_t agent_end_heard(struct fsdp_link_header *header, void *payload, size_t room, int *fd);

/** Of this process. */
int agent_end_n_open_descriptors(void);

#endif

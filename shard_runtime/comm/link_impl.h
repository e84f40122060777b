/*
 * Inside the link client only: its state, and the packets that the calls of link_client.h are made of.
 *   link_client.c  opens and closes the link; events, saves and verdicts
 *   link_packet.c  sends and receives packets, and puts away those that no call waits for; owns `packet`,
 *                  `broken`
 *   link_keys.c    put and get; owns `next_tag` and `entries`
 */
#ifndef COMM_LINK_IMPL_H
#define COMM_LINK_IMPL_H

#include <pthread.h>

#include "shard_runtime/comm/link_client.h"

/* The longest payload of any packet that an agent sends is a value. */
enum { PAYLOAD_MAX = FSDP_LINK_VALUE_BYTES };
_Static_assert(sizeof(struct fsdp_link_hello) <= PAYLOAD_MAX, "a hello fits the receive buffer");
_Static_assert(sizeof(struct fsdp_link_published) <= PAYLOAD_MAX, "a verdict fits the receive buffer");

/* A packet that came while no call waited for it. A list, oldest first. */
struct kept {
    struct kept *next;
    uint16_t type;
    union {
        struct fsdp_link_notice notice;
        struct fsdp_link_published published;
    };
};

/* A key that was put in a process without an agent. */
struct entry {
    struct entry *next;
    char key[FSDP_LINK_KEY_BYTES];
    size_t size;
    int fd;
    unsigned char value[];
};

struct packet {
    struct fsdp_link_header header;
    unsigned char payload[PAYLOAD_MAX];
    int fd; /* -1: none came along */
};

/*
 * Several threads may use a link at once: one waits in a collective and checks the link, another polls for
 * notices. Two locks:
 *   receiving  held by the thread that takes packets from the socket. link_get() holds it during its whole
 *              wait, as no other thread may take its answer. Only a second link_get() waits for this lock;
 *              other calls go on without. Guards `packet` and `next_tag`.
 *   state      held for moments. Taken after `receiving` if both are. Guards `broken`, `kept` and `entries`.
 */
struct link {
    pthread_mutex_t receiving, state;
    int fd; /* -1: alone */
    uint32_t next_tag;
    struct fsdp_err broken; /* status other than FSDP_OK: the first failure, sticky */
    struct fsdp_link_hello hello;
    struct fsdp_progress *progress;
    char *job;
    size_t job_length;
    struct kept *kept;
    struct entry *entries;
    struct packet *packet; /* the one last received */
};

/**
 * Removes the first kept packet of this type into *out; for FSDP_LINK_PUBLISHED, the first about `step`.
 * Returns false if there is none.
 */
bool link_take_kept(struct link *link, enum fsdp_link_type type, int64_t step, struct kept *out);

/**
 * Makes `status` and `words` the answer to every later call, unless there was a failure before. Returns the
 * status that sticks.
 */
enum fsdp_status link_break(struct link *link, enum fsdp_status status, const char *words,
                            struct fsdp_err *err);

/**
 * Receives one packet into link->packet, in place of the one before. Never waits: *got is false if none is
 * there. The caller holds `receiving`.
 */
enum fsdp_status link_receive(struct link *link, bool *got, struct fsdp_err *err);
/** Closes the descriptor that came with a packet, unless it was taken (-1). */
void link_drop_fd(struct packet *packet);

/**
 * Sends `head` and `body` (either may be empty) as one packet, with `fd` if it is >= 0. Waits while the
 * socket is full.
 */
enum fsdp_status link_send(struct link *link, enum fsdp_link_type type, uint32_t tag, const void *head,
                           size_t head_bytes, const void *body, size_t body_bytes, int fd,
                           struct fsdp_err *err);

/** Puts away link->packet, which no call waits for: keeps a notice or verdict, reads a job. The caller holds
 * `receiving`. */
enum fsdp_status link_absorb(struct link *link, struct fsdp_err *err);
/** Receives and puts away all packets that have arrived. The caller holds `receiving`. */
enum fsdp_status link_drain(struct link *link, struct fsdp_err *err);

/**
 * Shows on the progress page that this process waits for the agent. Returns the phase from before, which
 * link_end_wait() shows again. Both calls count as signs of life.
 */
uint32_t link_begin_wait(const struct link *link);
void link_end_wait(const struct link *link, uint32_t phase);

/** Returns FSDP_ERR_PEER, which sticks, if the agent has set the progress page's abort word. */
enum fsdp_status link_check_abort_word(struct link *link, struct fsdp_err *err);
/**
 * Waits until a packet may be there, 100 ms at most, so that the caller can check the abort word in between.
 */
void link_wait_briefly(const struct link *link);

#endif

/*
 * Inside the link client only: its state, and the packets below the calls of link_client.h. link_packet.c moves
 * them and puts away what comes by itself, link_keys.c does put and get, link_client.c opens and all else.
 */
#ifndef COMM_LINK_IMPL_H
#define COMM_LINK_IMPL_H

#include <pthread.h>

#include "shard_runtime/comm/link_client.h"

/* The longest payload of any packet that an agent sends is a value. */
enum { PAYLOAD_MAX = FSDP_LINK_VALUE_BYTES };
_Static_assert(sizeof(struct fsdp_link_hello) <= PAYLOAD_MAX, "a hello fits the receive buffer");
_Static_assert(sizeof(struct fsdp_link_published) <= PAYLOAD_MAX, "a verdict fits the receive buffer");

/* What came while something else was awaited, oldest first. */
struct kept {
    struct kept *next;
    uint16_t type;
    union {
        struct fsdp_link_notice notice;
        struct fsdp_link_published published;
    };
};

/* A key put by a process that is alone. */
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
 * Several threads may use a link at once: one that waits in a collective looks at it, while another polls for notices.
 *   receiving  held by the thread that takes packets from the socket, during the whole wait of a get: nobody else may take the
 *              answer. Others do not wait for it, but for a second get. It guards `packet` and `next_tag`.
 *   state      held for moments; taken after `receiving` where both are. It guards `broken`, `kept` and `entries`.
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

/** FSDP_OK, or the failure that stuck. */
enum fsdp_status link_say_broken(struct link *link, struct fsdp_err *err);

/** The first failure sticks: `words` become the answer to every later call. Returns the status that stuck. */
enum fsdp_status link_break(struct link *link, enum fsdp_status status, const char *words,
                            struct fsdp_err *err);

/** One packet into link->packet, without waiting; *got is false when none is there. What it held before is dropped. */
enum fsdp_status link_receive(struct link *link, bool *got, struct fsdp_err *err);
/** Close the descriptor that came with a packet, unless it was taken (-1). */
void link_drop_fd(struct packet *packet);

/** `head` and `body` as one packet; `fd` >= 0 goes along. Waits while the socket is full. */
enum fsdp_status link_send(struct link *link, enum fsdp_link_type type, uint32_t tag, const void *head,
                           size_t head_bytes, const void *body, size_t body_bytes, int fd,
                           struct fsdp_err *err);

/** Put away link->packet, which nobody waits for at this moment. */
enum fsdp_status link_absorb(struct link *link, struct fsdp_err *err);
/** Take in everything that has arrived. */
enum fsdp_status link_drain(struct link *link, struct fsdp_err *err);

/** Show on the progress page that this process waits, and again what it did before. Each is a sign of life. */
uint32_t link_begin_wait(const struct link *link);
void link_end_wait(const struct link *link, uint32_t phase);

enum fsdp_status link_check_abort_word(struct link *link, struct fsdp_err *err);
/** Wait until a packet may be there, a moment at most: the abort word is looked at between two of these. */
void link_wait_briefly(const struct link *link);

#endif

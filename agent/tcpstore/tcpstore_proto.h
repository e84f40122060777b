/*
 * A parser for the requests of PyTorch's TCPStore. It takes bytes as they come, however TCP cuts or joins the
 * requests. Pure.
 *
 * A request is an operation (one byte) and its fields; it has no length of its own.
 *   integer       in the byte order of the host, not padded
 *   key or value  a length (8 bytes) and that many bytes
 *   list          a count (8 bytes) and that many keys, or pairs of key and value
 * A length is compared with its limit as soon as it has come. Memory is allocated for bytes that have
 * arrived, never for a length that was only announced.
 */
#ifndef AGENT_TCPSTORE_PROTO_H
#define AGENT_TCPSTORE_PROTO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum tcpstore_op {
    TCPSTORE_VALIDATE = 0, /* magic; nothing is answered                               */
    TCPSTORE_SET,          /* key value; nothing is answered                           */
    TCPSTORE_COMPARE_SET,  /* key expected desired -> value                            */
    TCPSTORE_GET,          /* key -> value, empty when there is none                   */
    TCPSTORE_ADD,          /* key i64 -> i64                                           */
    TCPSTORE_CHECK,        /* keys -> one byte: 0 all are there, 1 not                 */
    TCPSTORE_WAIT,         /* keys -> one byte 0, when all are there                   */
    TCPSTORE_GETNUMKEYS,   /* -> i64                                                   */
    TCPSTORE_DELETE_KEY,   /* key -> i64: how many were deleted                        */
    TCPSTORE_APPEND,       /* key value; nothing is answered                           */
    TCPSTORE_MULTI_GET,    /* keys -> values                                           */
    TCPSTORE_MULTI_SET,    /* keys and values; nothing is answered                     */
    TCPSTORE_CANCEL_WAIT,  /* -> one byte 1; the waits of this client end without an answer */
    TCPSTORE_PING,         /* u32 -> the same                                          */
    TCPSTORE_QUEUE_PUSH,   /* key value; nothing is answered                           */
    /* key -> i64: the queue's length before; and, if that is not 0, the value that was popped */
    TCPSTORE_QUEUE_POP,
    TCPSTORE_QUEUE_LEN, /* key -> i64                                               */
    TCPSTORE_LIST_KEYS, /* -> i64, and so many keys                                 */
    TCPSTORE_BARRIER,   /* key i64 -> one byte 0, when as many clients as the integer says have come */
    TCPSTORE_OP_COUNT
};

enum {
    TCPSTORE_MAGIC = 0x3C85F7CE,
    TCPSTORE_MAX_KEY = 8 << 10,
    TCPSTORE_MAX_VALUE = 8 << 20,
    TCPSTORE_MAX_KEYS = 128 << 10,  /* of one list */
    TCPSTORE_MAX_REQUEST = 64 << 20 /* all of one request */
};

/* Bytes of a request. They belong to the function that returned them. */
struct tcpstore_text {
    const unsigned char *bytes;
    size_t size;
};

struct tcpstore_request {
    enum tcpstore_op op;
    struct tcpstore_text key, value, desired; /* COMPARE_SET's expected value is `value` */
    uint32_t number;                          /* VALIDATE, PING */
    int64_t delta;                            /* ADD, and the world size of BARRIER */
    size_t n_items;                           /* of the list */
    /* the items that tcpstore_request_item() has not returned yet */
    struct tcpstore_text list;
};

/** The next key of the list, and its value if the operation has values. Call it at most n_items times. */
void tcpstore_request_item(struct tcpstore_request *request, struct tcpstore_text *key,
                           struct tcpstore_text *value);

/* The bytes of one client. Zero it to initialise it. */
struct tcpstore_parser {
    unsigned char *bytes; /* bytes of the unfinished request; NULL: there is none */
    size_t used, capacity;
    bool begun, done; /* begun: a request has begun; done: it was returned, and the next call drops it */
    enum tcpstore_op op;
    int field; /* index of the next field of the operation */
    size_t at; /* offset of that field */
    size_t n_items, n_items_left, list_at;
};

/** Free what the parser holds. */
void tcpstore_parser_fini(struct tcpstore_parser *parser);

/* Result of tcpstore_parser_next(). */
enum tcpstore_parsed { TCPSTORE_MORE, TCPSTORE_REQUEST, TCPSTORE_BAD };

/**
 * Take bytes from *data (*n bytes), up to the end of one request. Advances both.
 *
 *   TCPSTORE_MORE     all bytes were taken, and the request has not ended
 *   TCPSTORE_REQUEST  *request is complete; it points into *data or the parser, and is valid until the next
 *                     call
 *   TCPSTORE_BAD      an unknown operation, or a limit exceeded, or out of memory; `err` says which. The rest
 *                     of the stream cannot be parsed.
 */
enum tcpstore_parsed tcpstore_parser_next(struct tcpstore_parser *parser, const unsigned char **data,
                                          size_t *n, struct tcpstore_request *request, struct fsdp_err *err);

const char *tcpstore_op_name(unsigned op); /* "SET"; "?" for none of ours */

#endif

/*
 * The requests of PyTorch's TCPStore as bytes, taken apart as they come: however they are cut on their way, and
 * however many stand behind one another. Pure.
 *
 * A request is an operation (one byte) and its fields, without a length of its own. Integers are in the byte order of
 * the host and nothing is padded; a key or a value is a length (8 bytes) and so many bytes; a list is a count (8
 * bytes) and so many keys, or keys each with a value. Every limit is held against a length when the length has come:
 * what is announced is never allocated, only what has arrived.
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
    TCPSTORE_CANCEL_WAIT,  /* -> one byte 1; nothing that was waited for is answered   */
    TCPSTORE_PING,         /* u32 -> the same                                          */
    TCPSTORE_QUEUE_PUSH,   /* key value; nothing is answered                           */
    TCPSTORE_QUEUE_POP,    /* key -> i64: the length before, and a value if it is not 0 */
    TCPSTORE_QUEUE_LEN,    /* key -> i64                                               */
    TCPSTORE_LIST_KEYS,    /* -> i64, and so many keys                                 */
    TCPSTORE_BARRIER,      /* key i64 -> one byte 0, when so many have come            */
    TCPSTORE_OP_COUNT
};

enum {
    TCPSTORE_MAGIC = 0x3C85F7CE,
    TCPSTORE_MAX_KEY = 8 << 10,
    TCPSTORE_MAX_VALUE = 8 << 20,
    TCPSTORE_MAX_KEYS = 128 << 10,  /* of one list */
    TCPSTORE_MAX_REQUEST = 64 << 20 /* all of one request */
};

/* Bytes of a request; they belong to whoever gave it. */
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
    struct tcpstore_text list;                /* what of it tcpstore_request_item() has not given yet */
};

/** The next key of the list, with its value where the operation has values. At most n_items times. */
void tcpstore_request_item(struct tcpstore_request *request, struct tcpstore_text *key,
                           struct tcpstore_text *value);

/* The bytes of one client. Zeroed is empty. */
struct tcpstore_parser {
    unsigned char *bytes; /* of the request that has begun; NULL between two */
    size_t used, capacity;
    bool begun, done; /* done: it was given, and goes with the next call */
    enum tcpstore_op op;
    int field; /* the field that comes next, in the operation's shape */
    size_t at; /* where it begins */
    size_t n_items, n_items_left, list_at;
};

void tcpstore_parser_fini(struct tcpstore_parser *parser);

/* What tcpstore_parser_next() came to. */
enum tcpstore_parsed { TCPSTORE_MORE, TCPSTORE_REQUEST, TCPSTORE_BAD };

/**
 * Take bytes from *data, of which there are *n, up to the end of one request.
 *
 *   TCPSTORE_MORE     all were taken, and the request has not ended
 *   TCPSTORE_REQUEST  *request is whole; it points into *data or the parser, and is good until the next call
 *   TCPSTORE_BAD      no operation of ours, or past a limit, or memory ran out; `err` says which. Nothing that
 *                     follows can be understood.
 */
enum tcpstore_parsed tcpstore_parser_next(struct tcpstore_parser *parser, const unsigned char **data,
                                          size_t *n, struct tcpstore_request *request, struct fsdp_err *err);

const char *tcpstore_op_name(unsigned op); /* "SET"; "?" for none of ours */

#endif

/*
 * Requests of the store's protocol as bytes, for its tests: each is put behind what is in the buffer already.
 */
#ifndef TESTS_SUPPORT_TCPSTORE_WIRE_H
#define TESTS_SUPPORT_TCPSTORE_WIRE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/tcpstore/tcpstore_proto.h"

struct wire {
    unsigned char *bytes;
    size_t n, capacity;
    int n_ops; /* requests so far */
};

static inline void wire_raw(struct wire *wire, const void *bytes, size_t n)
{
    if (wire->n + n > wire->capacity) {
        wire->capacity = 2 * (wire->n + n);
        wire->bytes = realloc(wire->bytes, wire->capacity);
    }
    if (n > 0)
        memcpy(wire->bytes + wire->n, bytes, n);
    wire->n += n;
}

static inline void wire_byte(struct wire *wire, unsigned char byte)
{
    wire_raw(wire, &byte, 1);
}

static inline void wire_op(struct wire *wire, enum tcpstore_op op)
{
    wire_byte(wire, (unsigned char)op);
    wire->n_ops++;
}

static inline void wire_u32(struct wire *wire, uint32_t number)
{
    wire_raw(wire, &number, sizeof number);
}

static inline void wire_i64(struct wire *wire, int64_t number)
{
    wire_raw(wire, &number, sizeof number);
}

static inline void wire_text(struct wire *wire, const char *text)
{
    wire_i64(wire, (int64_t)strlen(text));
    wire_raw(wire, text, strlen(text));
}

static inline void wire_validate(struct wire *wire)
{
    wire_op(wire, TCPSTORE_VALIDATE);
    wire_u32(wire, TCPSTORE_MAGIC);
}

/* An operation on one key; `value` NULL: it has none. */
static inline void wire_key(struct wire *wire, enum tcpstore_op op, const char *key, const char *value)
{
    wire_op(wire, op);
    wire_text(wire, key);
    if (value != NULL)
        wire_text(wire, value);
}

/* An operation on a list that ends with NULL; for MULTI_SET keys and values in turn. */
static inline void wire_list(struct wire *wire, enum tcpstore_op op, const char *const *texts)
{
    int64_t n = 0;

    while (texts[n] != NULL)
        n++;
    wire_op(wire, op);
    wire_i64(wire, op == TCPSTORE_MULTI_SET ? n / 2 : n);
    for (int64_t i = 0; i < n; i++)
        wire_text(wire, texts[i]);
}

/*
 * A conversation with every operation, and what PyTorch 2.15's own server answers to it, byte for byte. It
 * begins with a store that holds nothing, and leaves it so.
 */
static inline void wire_conversation(struct wire *asked, struct wire *answered)
{
    wire_validate(asked);
    wire_op(asked, TCPSTORE_PING);
    wire_u32(asked, 7);
    wire_u32(answered, 7);
    wire_key(asked, TCPSTORE_SET, "/k", "v");
    wire_key(asked, TCPSTORE_GET, "/k", NULL);
    wire_text(answered, "v");
    wire_key(asked, TCPSTORE_GET, "/none", NULL);
    wire_text(answered, "");
    wire_key(asked, TCPSTORE_APPEND, "/k", "w");
    wire_key(asked, TCPSTORE_COMPARE_SET, "/k", "vw");
    wire_text(asked, "x");
    wire_text(answered, "x");
    wire_key(asked, TCPSTORE_COMPARE_SET, "/none", "expected");
    wire_text(asked, "x");
    wire_text(answered, "expected");
    wire_key(asked, TCPSTORE_ADD, "/n", NULL);
    wire_i64(asked, 5);
    wire_i64(answered, 5);
    wire_list(asked, TCPSTORE_MULTI_SET, (const char *[]){ "/a", "1", "/b", "", NULL });
    wire_list(asked, TCPSTORE_MULTI_GET, (const char *[]){ "/b", "/none", "/n", "/a", NULL });
    wire_text(answered, "");
    wire_text(answered, "");
    wire_text(answered, "5");
    wire_text(answered, "1");
    wire_list(asked, TCPSTORE_CHECK, (const char *[]){ "/a", "/b", NULL });
    wire_byte(answered, 0);
    wire_list(asked, TCPSTORE_CHECK, (const char *[]){ "/a", "/none", NULL });
    wire_byte(answered, 1);
    wire_list(asked, TCPSTORE_WAIT, (const char *[]){ "/a", "/k", NULL });
    wire_byte(answered, 0);
    wire_list(asked, TCPSTORE_WAIT, (const char *[]){ NULL });
    wire_byte(answered, 0);
    wire_op(asked, TCPSTORE_GETNUMKEYS);
    wire_i64(answered, 4);
    wire_key(asked, TCPSTORE_DELETE_KEY, "/a", NULL);
    wire_i64(answered, 1);
    wire_key(asked, TCPSTORE_DELETE_KEY, "/a", NULL);
    wire_i64(answered, 0);
    wire_key(asked, TCPSTORE_QUEUE_POP, "/q", NULL);
    wire_i64(answered, 0);
    wire_key(asked, TCPSTORE_QUEUE_PUSH, "/q", "first");
    wire_key(asked, TCPSTORE_QUEUE_PUSH, "/q", "");
    wire_key(asked, TCPSTORE_QUEUE_LEN, "/q", NULL);
    wire_i64(answered, 2);
    wire_key(asked, TCPSTORE_QUEUE_POP, "/q", NULL);
    wire_i64(answered, 2);
    wire_text(answered, "first");
    wire_list(asked, TCPSTORE_CHECK, (const char *[]){ "/q", NULL });
    wire_byte(answered, 0);
    wire_key(asked, TCPSTORE_DELETE_KEY, "/q", NULL);
    wire_i64(answered, 0);
    wire_key(asked, TCPSTORE_QUEUE_POP, "/q", NULL);
    wire_i64(answered, 1);
    wire_text(answered, "");
    wire_key(asked, TCPSTORE_DELETE_KEY, "/b", NULL);
    wire_i64(answered, 1);
    wire_key(asked, TCPSTORE_DELETE_KEY, "/n", NULL);
    wire_i64(answered, 1);
    wire_op(asked, TCPSTORE_LIST_KEYS);
    wire_i64(answered, 1);
    wire_text(answered, "/k");
    wire_key(asked, TCPSTORE_BARRIER, "/barrier", NULL);
    wire_i64(asked, 1);
    wire_byte(answered, 0);
    wire_key(asked, TCPSTORE_DELETE_KEY, "/barrier", NULL);
    wire_i64(answered, 1);
    wire_list(asked, TCPSTORE_WAIT, (const char *[]){ "/never", NULL });
    wire_key(asked, TCPSTORE_GET, "/k", NULL); /* what stands behind a wait is done all the same */
    wire_text(answered, "x");
    wire_op(asked, TCPSTORE_CANCEL_WAIT);
    wire_byte(answered, 1);
    wire_op(asked, TCPSTORE_CANCEL_WAIT);
    wire_byte(answered, 1);
    wire_key(asked, TCPSTORE_DELETE_KEY, "/k", NULL);
    wire_i64(answered, 1);
    wire_op(asked, TCPSTORE_GETNUMKEYS);
    wire_i64(answered, 0);
}

#endif

#include "agent/tcpstore/tcpstore_session.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_OUT = 64, STOP_WAITING = 0, WAIT_CANCELED = 1, READY = 0, NOT_READY = 1 };

/* Answers */

static bool reserve(struct tcpstore_session *session, size_t size)
{
    size_t capacity = session->out_capacity == 0 ? FIRST_OUT : session->out_capacity;
    unsigned char *out;

    if (session->out_capacity - session->out_n >= size)
        return true;
    if (session->out_n + size > TCPSTORE_SESSION_HIGH + (size_t)TCPSTORE_MAX_REPLY)
        return false;
    while (capacity < session->out_n + size)
        capacity *= 2;
    out = realloc(session->out, capacity);
    if (out == NULL)
        return false;
    session->out = out;
    session->out_capacity = capacity;
    return true;
}

static void answer_bytes(struct tcpstore_session *session, const void *bytes, size_t size)
{
    if (session->out_of_memory || !reserve(session, size)) {
        session->out_of_memory = true;
        return;
    }
    memcpy(session->out + session->out_n, bytes, size);
    session->out_n += size;
}

static void answer_byte(struct tcpstore_session *session, unsigned char byte)
{
    answer_bytes(session, &byte, sizeof byte);
}

static void answer_number(struct tcpstore_session *session, int64_t number)
{
    answer_bytes(session, &number, sizeof number);
}

static void answer_text(struct tcpstore_session *session, struct tcpstore_text text)
{
    answer_number(session, (int64_t)text.size);
    if (text.size > 0)
        answer_bytes(session, text.bytes, text.size);
}

void tcpstore_session_woken(struct tcpstore_session *session)
{
    answer_byte(session, STOP_WAITING);
}

unsigned char *tcpstore_session_take(struct tcpstore_session *session, size_t *n)
{
    unsigned char *out = session->out;

    *n = session->out_n;
    session->out = NULL;
    session->out_n = session->out_capacity = 0;
    return out;
}

/* Requests */

/*
 * Answers a request for a value. An absent value is answered as an empty one: clients wait for a key before
 * they get it.
 */
static void get(struct tcpstore_session *session, struct tcpstore_text key)
{
    struct tcpstore_text value = { 0 };

    tcpstore_keys_get(session->keys, key, &value);
    answer_text(session, value);
}

static void pop(struct tcpstore_session *session, struct tcpstore_text key)
{
    struct tcpstore_text value;

    answer_number(session, (int64_t)tcpstore_keys_queue_length(session->keys, key));
    if (!tcpstore_keys_front(session->keys, key, &value))
        return;
    answer_text(session, value);
    /*
     * without memory for the answer the element stays in the queue for another client, and this client is
     * closed
     */
    if (!session->out_of_memory)
        tcpstore_keys_pop(session->keys, key);
}

static void answer_key(void *arg, struct tcpstore_text key)
{
    answer_text(arg, key);
}

static enum fsdp_status set_all(struct tcpstore_session *session, struct tcpstore_request *request,
                                struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    for (size_t i = 0; status == FSDP_OK && i < request->n_items; i++) {
        struct tcpstore_text key, value;

        tcpstore_request_item(request, &key, &value);
        status = tcpstore_keys_set(session->keys, key, value, err);
    }
    return status;
}

static void get_all(struct tcpstore_session *session, struct tcpstore_request *request)
{
    for (size_t i = 0; i < request->n_items && !session->out_of_memory; i++) {
        struct tcpstore_text key, value;

        tcpstore_request_item(request, &key, &value);
        get(session, key);
    }
}

/*
 * Does the request always change a key? A client that waits in vain may repeat for ever the requests that
 * change nothing: get, check, add 0, pop an empty queue, or a compare_set that does not fit.
 */
static bool is_change(const struct tcpstore_request *request)
{
    switch (request->op) {
    case TCPSTORE_SET:
    case TCPSTORE_APPEND:
    case TCPSTORE_MULTI_SET:
    case TCPSTORE_QUEUE_PUSH:
    case TCPSTORE_BARRIER:
        return true;
    case TCPSTORE_ADD:
        return request->delta != 0;
    default:
        return false;
    }
}

static bool is_same_text(struct tcpstore_text a, struct tcpstore_text b)
{
    return a.size == b.size && (a.size == 0 || memcmp(a.bytes, b.bytes, a.size) == 0);
}

static enum fsdp_status perform(struct tcpstore_session *session, struct tcpstore_request *request,
                                struct fsdp_err *err)
{
    struct tcpstore_keys *keys = session->keys;
    struct tcpstore_text result;
    enum fsdp_status status = FSDP_OK;
    bool waiting = false;
    int64_t sum = 0;

    session->changed = session->changed || is_change(request);
    switch (request->op) {
    case TCPSTORE_VALIDATE:
    case TCPSTORE_OP_COUNT:
        return fsdp_fail(err, FSDP_ERR_FORMAT, "VALIDATE: again");
    case TCPSTORE_SET:
        return tcpstore_keys_set(keys, request->key, request->value, err);
    case TCPSTORE_APPEND:
        return tcpstore_keys_append(keys, request->key, request->value, err);
    case TCPSTORE_MULTI_SET:
        return set_all(session, request, err);
    case TCPSTORE_QUEUE_PUSH:
        return tcpstore_keys_push(keys, request->key, request->value, err);
    case TCPSTORE_COMPARE_SET:
        status =
            tcpstore_keys_compare_set(keys, request->key, request->value, request->desired, &result, err);
        if (status != FSDP_OK)
            return status;
        answer_text(session, result);
        session->changed = session->changed || is_same_text(result, request->desired);
        return FSDP_OK;
    case TCPSTORE_ADD:
        status = tcpstore_keys_add(keys, request->key, request->delta, &sum, err);
        if (status == FSDP_OK)
            answer_number(session, sum);
        return status;
    case TCPSTORE_WAIT:
    case TCPSTORE_BARRIER:
        status =
            request->op == TCPSTORE_WAIT
                ? tcpstore_keys_wait(keys, request, &session->waits, &waiting, err)
                : tcpstore_keys_barrier(keys, request->key, request->delta, &session->waits, &waiting, err);
        if (status == FSDP_OK && !waiting)
            answer_byte(session, STOP_WAITING);
        return status;
    case TCPSTORE_CANCEL_WAIT:
        tcpstore_keys_forget(keys, &session->waits);
        answer_byte(session, WAIT_CANCELED);
        return FSDP_OK;
    case TCPSTORE_GET:
        get(session, request->key);
        return FSDP_OK;
    case TCPSTORE_MULTI_GET:
        get_all(session, request);
        return FSDP_OK;
    case TCPSTORE_CHECK:
        answer_byte(session, tcpstore_keys_check(keys, request) ? READY : NOT_READY);
        return FSDP_OK;
    case TCPSTORE_GETNUMKEYS:
        answer_number(session, (int64_t)tcpstore_keys_count(keys));
        return FSDP_OK;
    case TCPSTORE_DELETE_KEY:
        answer_number(session, tcpstore_keys_delete(keys, request->key));
        return FSDP_OK;
    case TCPSTORE_PING:
        answer_bytes(session, &request->number, sizeof request->number);
        return FSDP_OK;
    case TCPSTORE_QUEUE_POP:
        pop(session, request->key);
        return FSDP_OK;
    case TCPSTORE_QUEUE_LEN:
        answer_number(session, (int64_t)tcpstore_keys_queue_length(keys, request->key));
        return FSDP_OK;
    case TCPSTORE_LIST_KEYS:
        answer_number(session, (int64_t)tcpstore_keys_count(keys));
        tcpstore_keys_each(keys, answer_key, session);
        return FSDP_OK;
    }
    return FSDP_OK;
}

/* The first request must be VALIDATE. Until then not even the memory for a key is allocated. */
static enum fsdp_status check_first(const unsigned char *data, size_t n,
                                    const struct tcpstore_session *session, struct fsdp_err *err)
{
    if (session->validated || session->parser.begun || n == 0 || data[0] == TCPSTORE_VALIDATE)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_FORMAT, "%s before VALIDATE", tcpstore_op_name(data[0]));
}

static enum fsdp_status validate(struct tcpstore_session *session, const struct tcpstore_request *request,
                                 struct fsdp_err *err)
{
    if (request->number != TCPSTORE_MAGIC)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "VALIDATE: 0x%08x is not the magic number", request->number);
    session->validated = true;
    return FSDP_OK;
}

enum fsdp_status tcpstore_session_feed(struct tcpstore_session *session, const unsigned char **data,
                                       size_t *n, struct fsdp_err *err)
{
    while (*n > 0 && session->out_n < TCPSTORE_SESSION_HIGH) {
        struct tcpstore_request request;
        enum fsdp_status status = check_first(*data, *n, session, err);

        if (status != FSDP_OK)
            return status;
        switch (tcpstore_parser_next(&session->parser, data, n, &request, err)) {
        case TCPSTORE_MORE:
            return FSDP_OK;
        case TCPSTORE_BAD:
            return FSDP_ERR_FORMAT;
        case TCPSTORE_REQUEST:
            status = session->validated ? perform(session, &request, err) : validate(session, &request, err);
            break;
        }
        tcpstore_parser_fini(&session->parser); /* an idle client holds no memory */
        if (status != FSDP_OK)
            return status;
        if (session->out_of_memory)
            return fsdp_fail(err, FSDP_ERR_NOMEM, "%s: no room for the answer", tcpstore_op_name(request.op));
    }
    return FSDP_OK;
}

/* Opening and closing a session */

void tcpstore_session_init(struct tcpstore_session *session, struct tcpstore_keys *keys, void *owner)
{
    memset(session, 0, sizeof *session);
    session->keys = keys;
    session->waits.owner = owner;
}

void tcpstore_session_fini(struct tcpstore_session *session)
{
    tcpstore_keys_forget(session->keys, &session->waits);
    tcpstore_parser_fini(&session->parser);
    free(session->out);
    memset(session, 0, sizeof *session);
}

size_t tcpstore_session_held_bytes(const struct tcpstore_session *session)
{
    return session->parser.capacity + session->out_capacity;
}

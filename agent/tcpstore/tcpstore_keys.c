#include "agent/tcpstore/tcpstore_keys.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/tcpstore/tcpstore_keys_impl.h"

enum { NUMBER_BYTES = 24 };

/* Values */

bool tcpstore_keys_get(const struct tcpstore_keys *keys, struct tcpstore_text key,
                       struct tcpstore_text *value)
{
    const struct tcpstore_entry *entry = tcpstore_entry_find(keys, key);

    if (entry == NULL || entry->value == NULL)
        return false;
    *value = tcpstore_blob_text(entry->value);
    return true;
}

/*
 * Set the value of `key`, with room for `capacity` bytes. `value` may point into the old value. Ends no wait.
 */
static struct tcpstore_entry *put(struct tcpstore_keys *keys, struct tcpstore_text key,
                                  struct tcpstore_text value, size_t capacity, struct fsdp_err *err)
{
    struct tcpstore_entry *entry = tcpstore_entry_add(keys, key, err);
    struct tcpstore_blob *blob = entry == NULL ? NULL : tcpstore_blob_take(keys, value, capacity, err);

    if (blob == NULL) {
        if (entry != NULL)
            tcpstore_entry_drop_if_empty(keys, entry);
        return NULL;
    }
    keys->n_values += entry->value == NULL;
    tcpstore_blob_give(keys, entry->value);
    entry->value = blob;
    return entry;
}

enum fsdp_status tcpstore_keys_set(struct tcpstore_keys *keys, struct tcpstore_text key,
                                   struct tcpstore_text value, struct fsdp_err *err)
{
    struct tcpstore_entry *entry = put(keys, key, value, value.size, err);

    if (entry == NULL)
        return FSDP_ERR_NOMEM;
    tcpstore_wake_all(keys, entry);
    return FSDP_OK;
}

/* The room doubles whenever it is full, so that many small pieces cost linear time. */
enum fsdp_status tcpstore_keys_append(struct tcpstore_keys *keys, struct tcpstore_text key,
                                      struct tcpstore_text value, struct fsdp_err *err)
{
    struct tcpstore_entry *entry = tcpstore_entry_find(keys, key);
    struct tcpstore_blob *blob = entry == NULL ? NULL : entry->value;

    if (blob == NULL)
        return tcpstore_keys_set(keys, key, value, err);
    if (blob->size + value.size > TCPSTORE_MAX_REQUEST)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "APPEND: a value of more than %d bytes", TCPSTORE_MAX_REQUEST);
    if (blob->capacity - blob->size < value.size) {
        const size_t twice = 2 * (blob->size + value.size);

        if (put(keys, key, tcpstore_blob_text(blob),
                twice < TCPSTORE_MAX_REQUEST ? twice : TCPSTORE_MAX_REQUEST, err) == NULL)
            return FSDP_ERR_NOMEM;
        blob = entry->value;
    }
    memcpy(blob->bytes + blob->size, value.bytes, value.size);
    blob->size += value.size;
    /* not only for new keys: at a barrier, clients wait for a key that has a value already */
    tcpstore_wake_all(keys, entry);
    return FSDP_OK;
}

/* Like PyTorch's store, ignore what follows the number. */
static bool read_number(struct tcpstore_text text, int64_t *number)
{
    char digits[NUMBER_BYTES * 2];
    const size_t n = text.size < sizeof digits - 1 ? text.size : sizeof digits - 1;
    char *end;

    memcpy(digits, text.bytes, n);
    digits[n] = '\0';
    errno = 0;
    *number = strtoll(digits, &end, 10);
    return end != digits && errno == 0;
}

/* Add to the number in the value of `key`. Ends no wait. NULL, with `err`: as tcpstore_keys_add(). */
static struct tcpstore_entry *add(struct tcpstore_keys *keys, struct tcpstore_text key, int64_t delta,
                                  int64_t *sum, struct fsdp_err *err)
{
    struct tcpstore_text before;
    char digits[NUMBER_BYTES];
    int64_t number = 0;
    int n;

    if (tcpstore_keys_get(keys, key, &before) && !read_number(before, &number)) {
        fsdp_fail(err, FSDP_ERR_FORMAT, "there is no number to add to");
        return NULL;
    }
    if (__builtin_add_overflow(number, delta, sum)) {
        fsdp_fail(err, FSDP_ERR_FORMAT, "%" PRId64 " and %" PRId64 " are more than a number holds", number,
                  delta);
        return NULL;
    }
    n = snprintf(digits, sizeof digits, "%" PRId64, *sum);
    return put(keys, key, (struct tcpstore_text){ (const unsigned char *)digits, (size_t)n }, (size_t)n, err);
}

enum fsdp_status tcpstore_keys_add(struct tcpstore_keys *keys, struct tcpstore_text key, int64_t delta,
                                   int64_t *sum, struct fsdp_err *err)
{
    struct fsdp_err why = { 0 };
    struct tcpstore_entry *entry = add(keys, key, delta, sum, &why);

    if (entry == NULL)
        return fsdp_fail(err, why.status, "%s", why.message);
    tcpstore_wake_all(keys, entry);
    return FSDP_OK;
}

enum fsdp_status tcpstore_keys_barrier(struct tcpstore_keys *keys, struct tcpstore_text key,
                                       int64_t world_size, struct tcpstore_waits *waits, bool *waiting,
                                       struct fsdp_err *err)
{
    struct fsdp_err why = { 0 };
    struct tcpstore_wait *wait = tcpstore_wait_begin(keys, waits, 1, err);
    struct tcpstore_entry *entry;
    int64_t n_come;

    if (wait == NULL)
        return FSDP_ERR_NOMEM;
    entry = add(keys, key, 1, &n_come, &why);
    *waiting = entry != NULL && n_come < world_size;
    if (*waiting) {
        tcpstore_wait_for(entry, wait);
        return FSDP_OK;
    }
    wait->missed[wait->n++].entry = NULL;
    tcpstore_wait_cancel(keys, wait); /* the caller answers this client */
    if (entry == NULL)
        return fsdp_fail(err, why.status, "%s", why.message);
    tcpstore_wake_all(keys, entry);
    return FSDP_OK;
}

static bool equal(struct tcpstore_text a, struct tcpstore_text b)
{
    return a.size == b.size && memcmp(a.bytes, b.bytes, a.size) == 0;
}

enum fsdp_status tcpstore_keys_compare_set(struct tcpstore_keys *keys, struct tcpstore_text key,
                                           struct tcpstore_text expected, struct tcpstore_text desired,
                                           struct tcpstore_text *result, struct fsdp_err *err)
{
    const bool there = tcpstore_keys_get(keys, key, result);
    enum fsdp_status status;

    if (!there && expected.size > 0) {
        *result = expected;
        return FSDP_OK;
    }
    if (there && !equal(*result, expected))
        return FSDP_OK;
    status = tcpstore_keys_set(keys, key, desired, err);
    if (status == FSDP_OK)
        tcpstore_keys_get(keys, key, result);
    return status;
}

bool tcpstore_keys_delete(struct tcpstore_keys *keys, struct tcpstore_text key)
{
    struct tcpstore_entry *entry = tcpstore_entry_find(keys, key);

    if (entry == NULL || entry->value == NULL)
        return false;
    tcpstore_blob_give(keys, entry->value);
    entry->value = NULL;
    keys->n_values--;
    tcpstore_entry_drop_if_empty(keys, entry);
    return true;
}

/* Queues */

enum fsdp_status tcpstore_keys_push(struct tcpstore_keys *keys, struct tcpstore_text key,
                                    struct tcpstore_text value, struct fsdp_err *err)
{
    struct tcpstore_entry *entry = tcpstore_entry_add(keys, key, err);
    struct tcpstore_blob *blob = entry == NULL ? NULL : tcpstore_blob_take(keys, value, value.size, err);

    if (blob == NULL) {
        if (entry != NULL)
            tcpstore_entry_drop_if_empty(keys, entry);
        return FSDP_ERR_NOMEM;
    }
    *(entry->back == NULL ? &entry->front : &entry->back->next) = blob;
    entry->back = blob;
    entry->n_queued++;
    tcpstore_wake_one(keys, entry);
    return FSDP_OK;
}

size_t tcpstore_keys_queue_length(const struct tcpstore_keys *keys, struct tcpstore_text key)
{
    const struct tcpstore_entry *entry = tcpstore_entry_find(keys, key);

    return entry == NULL ? 0 : entry->n_queued;
}

bool tcpstore_keys_front(const struct tcpstore_keys *keys, struct tcpstore_text key,
                         struct tcpstore_text *value)
{
    const struct tcpstore_entry *entry = tcpstore_entry_find(keys, key);

    if (entry == NULL || entry->front == NULL)
        return false;
    *value = tcpstore_blob_text(entry->front);
    return true;
}

void tcpstore_keys_pop(struct tcpstore_keys *keys, struct tcpstore_text key)
{
    struct tcpstore_entry *entry = tcpstore_entry_find(keys, key);
    struct tcpstore_blob *blob = entry == NULL ? NULL : entry->front;

    if (blob == NULL)
        return;
    entry->front = blob->next;
    if (entry->front == NULL)
        entry->back = NULL;
    entry->n_queued--;
    tcpstore_blob_give(keys, blob);
    tcpstore_entry_drop_if_empty(keys, entry);
}

/* All keys */

size_t tcpstore_keys_count(const struct tcpstore_keys *keys)
{
    return keys->n_values;
}

size_t tcpstore_keys_used_bytes(const struct tcpstore_keys *keys)
{
    return keys->used_bytes;
}

size_t tcpstore_keys_n_waits(const struct tcpstore_keys *keys)
{
    return keys->n_waits;
}

void tcpstore_keys_each(const struct tcpstore_keys *keys, void (*visit)(void *arg, struct tcpstore_text key),
                        void *arg)
{
    for (size_t i = 0; i < keys->table.n_slots; i++)
        for (struct table_entry *at = keys->table.slots[i]; at != NULL; at = at->next) {
            const struct tcpstore_entry *entry = TABLE_OWNER(at, struct tcpstore_entry, link);

            if (entry->value != NULL)
                visit(arg, (struct tcpstore_text){ entry->key, entry->key_size });
        }
}

struct tcpstore_keys *tcpstore_keys_create(size_t max_bytes, tcpstore_wake *wake, void *arg)
{
    struct tcpstore_keys *keys = calloc(1, sizeof *keys);

    if (keys == NULL)
        return NULL;
    keys->max_bytes = max_bytes;
    keys->wake = wake;
    keys->arg = arg;
    return keys;
}

void tcpstore_keys_destroy(struct tcpstore_keys *keys)
{
    if (keys == NULL)
        return;
    for (struct table_entry *at = table_empty(&keys->table), *next; at != NULL; at = next) {
        struct tcpstore_entry *entry = TABLE_OWNER(at, struct tcpstore_entry, link);

        next = at->next;
        tcpstore_blob_give(keys, entry->value);
        for (struct tcpstore_blob *blob = entry->front, *behind; blob != NULL; blob = behind) {
            behind = blob->next;
            tcpstore_blob_give(keys, blob);
        }
        tcpstore_give(keys, entry, sizeof *entry + entry->key_size);
    }
    free(keys);
}

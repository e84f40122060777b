#include "agent/tcpstore_keys.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

enum { FIRST_SLOTS = 64, NUMBER_BYTES = 24 };

/* Bytes that something here owns: a value, or an element of a queue. */
struct blob {
    struct blob *next; /* in a queue */
    size_t size, capacity;
    unsigned char bytes[];
};

/* One key that one wait still misses, in the list of that key. */
struct missed {
    struct tcpstore_wait *wait;
    struct entry *entry; /* NULL: it has come */
    struct missed *prev, *next;
};

struct tcpstore_wait {
    struct tcpstore_waits *waits;
    struct tcpstore_wait *prev, *next; /* of the same client */
    size_t n_missing, n;
    struct missed missed[];
};

/* A name that has a value, a queue with something in it, or somebody who waits for it. */
struct entry {
    struct entry *next; /* in its slot */
    uint64_t hash;
    struct blob *value; /* NULL: none */
    struct blob *front, *back;
    size_t n_queued;
    struct missed *first, *last; /* who waits, in the order in which they asked */
    size_t key_size;
    unsigned char key[];
};

struct tcpstore_keys {
    struct entry **slots;
    size_t n_slots, n_entries, n_values, n_waits;
    size_t used_bytes, max_bytes;
    tcpstore_wake *wake;
    void *arg;
};

/* --- memory ------------------------------------------------------------------------------------------------------- */

static void *take(struct tcpstore_keys *keys, size_t size, struct fsdp_err *err)
{
    void *memory = keys->max_bytes - keys->used_bytes < size ? NULL : malloc(size);

    if (memory == NULL) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "the store holds %zu bytes, and may hold %zu: no room for %zu more",
                  keys->used_bytes, keys->max_bytes, size);
        return NULL;
    }
    keys->used_bytes += size;
    return memory;
}

static void give(struct tcpstore_keys *keys, void *memory, size_t size)
{
    if (memory == NULL)
        return;
    keys->used_bytes -= size;
    free(memory);
}

static struct blob *take_blob(struct tcpstore_keys *keys, struct tcpstore_text text, size_t capacity,
                              struct fsdp_err *err)
{
    struct blob *blob = take(keys, sizeof *blob + capacity, err);

    if (blob == NULL)
        return NULL;
    blob->next = NULL;
    blob->size = text.size;
    blob->capacity = capacity;
    memcpy(blob->bytes, text.bytes, text.size);
    return blob;
}

static void give_blob(struct tcpstore_keys *keys, struct blob *blob)
{
    if (blob != NULL)
        give(keys, blob, sizeof *blob + blob->capacity);
}

static struct tcpstore_text text_of(const struct blob *blob)
{
    return (struct tcpstore_text){ blob->bytes, blob->size };
}

/* --- entries ------------------------------------------------------------------------------------------------------ */

static struct entry **place_of(const struct tcpstore_keys *keys, struct tcpstore_text key, uint64_t hash)
{
    struct entry **at = &keys->slots[hash & (keys->n_slots - 1)];

    while (*at != NULL && ((*at)->hash != hash || (*at)->key_size != key.size ||
                           memcmp((*at)->key, key.bytes, key.size) != 0))
        at = &(*at)->next;
    return at;
}

static struct entry *find(const struct tcpstore_keys *keys, struct tcpstore_text key)
{
    return *place_of(keys, key, XXH3_64bits(key.bytes, key.size));
}

/* More slots when there are as many entries; without memory for them it goes on with longer chains. */
static void grow(struct tcpstore_keys *keys)
{
    const size_t n_slots = keys->n_slots * 2;
    struct entry **slots;

    if (keys->n_entries < keys->n_slots || (slots = calloc(n_slots, sizeof *slots)) == NULL)
        return;
    for (size_t i = 0; i < keys->n_slots; i++)
        for (struct entry *entry = keys->slots[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            entry->next = slots[entry->hash & (n_slots - 1)];
            slots[entry->hash & (n_slots - 1)] = entry;
        }
    free(keys->slots);
    keys->slots = slots;
    keys->n_slots = n_slots;
}

static struct entry *find_or_add(struct tcpstore_keys *keys, struct tcpstore_text key, struct fsdp_err *err)
{
    const uint64_t hash = XXH3_64bits(key.bytes, key.size);
    struct entry **at = place_of(keys, key, hash), *entry = *at;

    if (entry != NULL)
        return entry;
    entry = take(keys, sizeof *entry + key.size, err);
    if (entry == NULL)
        return NULL;
    memset(entry, 0, sizeof *entry);
    entry->hash = hash;
    entry->key_size = key.size;
    if (key.size > 0)
        memcpy(entry->key, key.bytes, key.size);
    *at = entry;
    keys->n_entries++;
    grow(keys);
    return entry;
}

static bool is_there(const struct entry *entry)
{
    return entry != NULL && (entry->value != NULL || entry->n_queued > 0);
}

/* What is nothing to anybody goes. */
static void drop_if_empty(struct tcpstore_keys *keys, struct entry *entry)
{
    struct entry **at = &keys->slots[entry->hash & (keys->n_slots - 1)];

    if (is_there(entry) || entry->first != NULL)
        return;
    while (*at != entry)
        at = &(*at)->next;
    *at = entry->next;
    keys->n_entries--;
    give(keys, entry, sizeof *entry + entry->key_size);
}

/* --- who waits ---------------------------------------------------------------------------------------------------- */

static void unlink_missed(struct missed *missed)
{
    struct entry *entry = missed->entry;

    *(missed->prev == NULL ? &entry->first : &missed->prev->next) = missed->next;
    *(missed->next == NULL ? &entry->last : &missed->next->prev) = missed->prev;
    missed->entry = NULL;
}

static void link_missed(struct entry *entry, struct tcpstore_wait *wait)
{
    struct missed *missed = &wait->missed[wait->n++];

    *missed = (struct missed){ .wait = wait, .entry = entry, .prev = entry->last };
    *(entry->last == NULL ? &entry->first : &entry->last->next) = missed;
    entry->last = missed;
    wait->n_missing++;
}

static size_t wait_bytes(size_t n_keys)
{
    return sizeof(struct tcpstore_wait) + n_keys * sizeof(struct missed);
}

/* Its places in the lists of keys are gone already. */
static void end_wait(struct tcpstore_keys *keys, struct tcpstore_wait *wait)
{
    *(wait->prev == NULL ? &wait->waits->first : &wait->prev->next) = wait->next;
    if (wait->next != NULL)
        wait->next->prev = wait->prev;
    keys->n_waits--;
    give(keys, wait, wait_bytes(wait->n));
}

/* Take the first who waits off the key. True when that was the last it waited for: it has been answered. */
static bool satisfy(struct tcpstore_keys *keys, struct missed *missed)
{
    struct tcpstore_wait *wait = missed->wait;

    unlink_missed(missed);
    if (--wait->n_missing > 0)
        return false;
    keys->wake(keys->arg, wait->waits->owner);
    end_wait(keys, wait);
    return true;
}

static void wake_all(struct tcpstore_keys *keys, struct entry *entry)
{
    while (entry->first != NULL)
        satisfy(keys, entry->first);
}

static void wake_one(struct tcpstore_keys *keys, struct entry *entry)
{
    while (entry->first != NULL && !satisfy(keys, entry->first))
        ;
}

/* A wait for up to n_keys keys; it takes them by link_missed(), and is counted for no more in the end. */
static struct tcpstore_wait *begin_wait(struct tcpstore_keys *keys, struct tcpstore_waits *waits,
                                        size_t n_keys, struct fsdp_err *err)
{
    struct tcpstore_wait *wait = take(keys, wait_bytes(n_keys), err);

    if (wait == NULL)
        return NULL;
    *wait = (struct tcpstore_wait){ .waits = waits, .next = waits->first };
    if (wait->next != NULL)
        wait->next->prev = wait;
    waits->first = wait;
    keys->n_waits++;
    return wait;
}

static void cancel_wait(struct tcpstore_keys *keys, struct tcpstore_wait *wait)
{
    for (size_t i = 0; i < wait->n; i++) {
        struct entry *entry = wait->missed[i].entry;

        if (entry == NULL)
            continue;
        unlink_missed(&wait->missed[i]);
        drop_if_empty(keys, entry);
    }
    end_wait(keys, wait);
}

void tcpstore_keys_forget(struct tcpstore_keys *keys, struct tcpstore_waits *waits)
{
    while (waits->first != NULL)
        cancel_wait(keys, waits->first);
}

static size_t count_missing(const struct tcpstore_keys *keys, struct tcpstore_request request)
{
    struct tcpstore_text key, value;
    size_t n = 0;

    for (size_t i = 0; i < request.n_items; i++) {
        tcpstore_request_item(&request, &key, &value);
        n += !is_there(find(keys, key));
    }
    return n;
}

bool tcpstore_keys_check(const struct tcpstore_keys *keys, struct tcpstore_request *request)
{
    return count_missing(keys, *request) == 0;
}

enum fsdp_status tcpstore_keys_wait(struct tcpstore_keys *keys, struct tcpstore_request *request,
                                    struct tcpstore_waits *waits, bool *waiting, struct fsdp_err *err)
{
    const size_t n_missing = count_missing(keys, *request);
    struct tcpstore_wait *wait;

    *waiting = n_missing > 0;
    if (n_missing == 0)
        return FSDP_OK;
    wait = begin_wait(keys, waits, n_missing, err);
    if (wait == NULL)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < request->n_items; i++) {
        struct tcpstore_text key, value;
        struct entry *entry;

        tcpstore_request_item(request, &key, &value);
        entry = find_or_add(keys, key, err);
        if (entry == NULL) {
            /* end_wait() gives back what it was taken as. */
            for (; wait->n < n_missing; wait->n++)
                wait->missed[wait->n].entry = NULL;
            cancel_wait(keys, wait);
            return FSDP_ERR_NOMEM;
        }
        if (!is_there(entry))
            link_missed(entry, wait);
    }
    assert(wait->n == n_missing);
    return FSDP_OK;
}

/* --- values ------------------------------------------------------------------------------------------------------- */

bool tcpstore_keys_get(const struct tcpstore_keys *keys, struct tcpstore_text key,
                       struct tcpstore_text *value)
{
    const struct entry *entry = find(keys, key);

    if (entry == NULL || entry->value == NULL)
        return false;
    *value = text_of(entry->value);
    return true;
}

/* With room for `capacity` bytes. `value` may be the one that is replaced. Nobody is woken here. */
static struct entry *put(struct tcpstore_keys *keys, struct tcpstore_text key, struct tcpstore_text value,
                         size_t capacity, struct fsdp_err *err)
{
    struct entry *entry = find_or_add(keys, key, err);
    struct blob *blob = entry == NULL ? NULL : take_blob(keys, value, capacity, err);

    if (blob == NULL) {
        if (entry != NULL)
            drop_if_empty(keys, entry);
        return NULL;
    }
    keys->n_values += entry->value == NULL;
    give_blob(keys, entry->value);
    entry->value = blob;
    return entry;
}

enum fsdp_status tcpstore_keys_set(struct tcpstore_keys *keys, struct tcpstore_text key,
                                   struct tcpstore_text value, struct fsdp_err *err)
{
    struct entry *entry = put(keys, key, value, value.size, err);

    if (entry == NULL)
        return FSDP_ERR_NOMEM;
    wake_all(keys, entry);
    return FSDP_OK;
}

/* Twice the room each time it is full, so that many small pieces are not copied over and over. */
enum fsdp_status tcpstore_keys_append(struct tcpstore_keys *keys, struct tcpstore_text key,
                                      struct tcpstore_text value, struct fsdp_err *err)
{
    struct entry *entry = find(keys, key);
    struct blob *blob = entry == NULL ? NULL : entry->value;

    if (blob == NULL)
        return tcpstore_keys_set(keys, key, value, err);
    if (blob->size + value.size > TCPSTORE_MAX_REQUEST)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "APPEND: a value of more than %d bytes", TCPSTORE_MAX_REQUEST);
    if (blob->capacity - blob->size < value.size) {
        const size_t twice = 2 * (blob->size + value.size);

        if (put(keys, key, text_of(blob), twice < TCPSTORE_MAX_REQUEST ? twice : TCPSTORE_MAX_REQUEST, err) ==
            NULL)
            return FSDP_ERR_NOMEM;
        blob = entry->value;
    }
    memcpy(blob->bytes + blob->size, value.bytes, value.size);
    blob->size += value.size;
    wake_all(keys, entry); /* only at a barrier does one wait for a key that is there */
    return FSDP_OK;
}

/* As PyTorch's reads it: what follows the number does not matter. */
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

/* Count without waking anyone. */
static struct entry *add(struct tcpstore_keys *keys, struct tcpstore_text key, int64_t delta, int64_t *sum,
                         struct fsdp_err *err)
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
    struct entry *entry = add(keys, key, delta, sum, &why);

    if (entry == NULL)
        return fsdp_fail(err, why.status, "%s", why.message);
    wake_all(keys, entry);
    return FSDP_OK;
}

enum fsdp_status tcpstore_keys_barrier(struct tcpstore_keys *keys, struct tcpstore_text key,
                                       int64_t world_size, struct tcpstore_waits *waits, bool *waiting,
                                       struct fsdp_err *err)
{
    struct fsdp_err why = { 0 };
    struct tcpstore_wait *wait = begin_wait(keys, waits, 1, err);
    struct entry *entry;
    int64_t n_come;

    if (wait == NULL)
        return FSDP_ERR_NOMEM;
    entry = add(keys, key, 1, &n_come, &why);
    *waiting = entry != NULL && n_come < world_size;
    if (*waiting) {
        link_missed(entry, wait);
        return FSDP_OK;
    }
    wait->missed[wait->n++].entry = NULL;
    cancel_wait(keys, wait); /* this one is answered by its caller */
    if (entry == NULL)
        return fsdp_fail(err, why.status, "%s", why.message);
    wake_all(keys, entry);
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
    struct entry *entry = find(keys, key);

    if (entry == NULL || entry->value == NULL)
        return false;
    give_blob(keys, entry->value);
    entry->value = NULL;
    keys->n_values--;
    drop_if_empty(keys, entry);
    return true;
}

/* --- queues ------------------------------------------------------------------------------------------------------- */

enum fsdp_status tcpstore_keys_push(struct tcpstore_keys *keys, struct tcpstore_text key,
                                    struct tcpstore_text value, struct fsdp_err *err)
{
    struct entry *entry = find_or_add(keys, key, err);
    struct blob *blob = entry == NULL ? NULL : take_blob(keys, value, value.size, err);

    if (blob == NULL) {
        if (entry != NULL)
            drop_if_empty(keys, entry);
        return FSDP_ERR_NOMEM;
    }
    *(entry->back == NULL ? &entry->front : &entry->back->next) = blob;
    entry->back = blob;
    entry->n_queued++;
    wake_one(keys, entry);
    return FSDP_OK;
}

size_t tcpstore_keys_queue_length(const struct tcpstore_keys *keys, struct tcpstore_text key)
{
    const struct entry *entry = find(keys, key);

    return entry == NULL ? 0 : entry->n_queued;
}

bool tcpstore_keys_front(const struct tcpstore_keys *keys, struct tcpstore_text key,
                         struct tcpstore_text *value)
{
    const struct entry *entry = find(keys, key);

    if (entry == NULL || entry->front == NULL)
        return false;
    *value = text_of(entry->front);
    return true;
}

void tcpstore_keys_pop(struct tcpstore_keys *keys, struct tcpstore_text key)
{
    struct entry *entry = find(keys, key);
    struct blob *blob = entry == NULL ? NULL : entry->front;

    if (blob == NULL)
        return;
    entry->front = blob->next;
    if (entry->front == NULL)
        entry->back = NULL;
    entry->n_queued--;
    give_blob(keys, blob);
    drop_if_empty(keys, entry);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

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
    for (size_t i = 0; i < keys->n_slots; i++)
        for (const struct entry *entry = keys->slots[i]; entry != NULL; entry = entry->next)
            if (entry->value != NULL)
                visit(arg, (struct tcpstore_text){ entry->key, entry->key_size });
}

struct tcpstore_keys *tcpstore_keys_create(size_t max_bytes, tcpstore_wake *wake, void *arg)
{
    struct tcpstore_keys *keys = calloc(1, sizeof *keys);

    if (keys == NULL)
        return NULL;
    keys->slots = calloc(FIRST_SLOTS, sizeof *keys->slots);
    if (keys->slots == NULL) {
        free(keys);
        return NULL;
    }
    keys->n_slots = FIRST_SLOTS;
    keys->max_bytes = max_bytes;
    keys->wake = wake;
    keys->arg = arg;
    return keys;
}

void tcpstore_keys_destroy(struct tcpstore_keys *keys)
{
    if (keys == NULL)
        return;
    for (size_t i = 0; i < keys->n_slots; i++)
        for (struct entry *entry = keys->slots[i], *next; entry != NULL; entry = next) {
            next = entry->next;
            give_blob(keys, entry->value);
            for (struct blob *blob = entry->front, *behind; blob != NULL; blob = behind) {
                behind = blob->next;
                give_blob(keys, blob);
            }
            give(keys, entry, sizeof *entry + entry->key_size);
        }
    free(keys->slots);
    free(keys);
}

/*
 * Waits for keys of a TCPStore. Each wait is in the list of its client, and in the list of every key that it
 * misses. A key's list is in the order in which waits began.
 */
#include <assert.h>

#include "agent/tcpstore/tcpstore_keys_impl.h"

static void unlink_missed(struct tcpstore_missed *missed)
{
    struct tcpstore_entry *entry = missed->entry;

    assert(entry != NULL); /* the wait is in the list of a key */
    *(missed->prev == NULL ? &entry->first : &missed->prev->next) = missed->next;
    *(missed->next == NULL ? &entry->last : &missed->next->prev) = missed->prev;
    missed->entry = NULL;
}

void tcpstore_wait_for(struct tcpstore_entry *entry, struct tcpstore_wait *wait)
{
    struct tcpstore_missed *missed = &wait->missed[wait->n++];

    *missed = (struct tcpstore_missed){ .wait = wait, .entry = entry, .prev = entry->last };
    *(entry->last == NULL ? &entry->first : &entry->last->next) = missed;
    entry->last = missed;
    wait->n_missing++;
}

static size_t wait_bytes(size_t n_keys)
{
    return sizeof(struct tcpstore_wait) + n_keys * sizeof(struct tcpstore_missed);
}

/* Remove a wait from its client's list and free it. It must not be in the list of any key. */
static void end_wait(struct tcpstore_keys *keys, struct tcpstore_wait *wait)
{
    *(wait->prev == NULL ? &wait->waits->first : &wait->prev->next) = wait->next;
    if (wait->next != NULL)
        wait->next->prev = wait->prev;
    keys->n_waits--;
    tcpstore_give(keys, wait, wait_bytes(wait->n));
}

/* The key of `missed` has come. Returns true if the wait missed no other key; its client was then woken. */
static bool satisfy(struct tcpstore_keys *keys, struct tcpstore_missed *missed)
{
    struct tcpstore_wait *wait = missed->wait;

    unlink_missed(missed);
    if (--wait->n_missing > 0)
        return false;
    keys->wake(keys->arg, wait->waits->owner);
    end_wait(keys, wait);
    return true;
}

void tcpstore_wake_all(struct tcpstore_keys *keys, struct tcpstore_entry *entry)
{
    while (entry->first != NULL)
        satisfy(keys, entry->first);
}

void tcpstore_wake_one(struct tcpstore_keys *keys, struct tcpstore_entry *entry)
{
    while (entry->first != NULL && !satisfy(keys, entry->first))
        ;
}

struct tcpstore_wait *tcpstore_wait_begin(struct tcpstore_keys *keys, struct tcpstore_waits *waits,
                                          size_t n_keys, struct fsdp_err *err)
{
    struct tcpstore_wait *wait = tcpstore_take(keys, wait_bytes(n_keys), err);

    if (wait == NULL)
        return NULL;
    *wait = (struct tcpstore_wait){ .waits = waits, .next = waits->first };
    if (wait->next != NULL)
        wait->next->prev = wait;
    waits->first = wait;
    keys->n_waits++;
    return wait;
}

void tcpstore_wait_cancel(struct tcpstore_keys *keys, struct tcpstore_wait *wait)
{
    for (size_t i = 0; i < wait->n; i++) {
        struct tcpstore_entry *entry = wait->missed[i].entry;

        if (entry == NULL)
            continue;
        unlink_missed(&wait->missed[i]);
        tcpstore_entry_drop_if_empty(keys, entry);
    }
    end_wait(keys, wait);
}

void tcpstore_keys_forget(struct tcpstore_keys *keys, struct tcpstore_waits *waits)
{
    while (waits->first != NULL)
        tcpstore_wait_cancel(keys, waits->first);
}

static size_t count_missing(const struct tcpstore_keys *keys, struct tcpstore_request request)
{
    struct tcpstore_text key, value;
    size_t n = 0;

    for (size_t i = 0; i < request.n_items; i++) {
        tcpstore_request_item(&request, &key, &value);
        n += !tcpstore_entry_is_there(tcpstore_entry_find(keys, key));
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
    wait = tcpstore_wait_begin(keys, waits, n_missing, err);
    if (wait == NULL)
        return FSDP_ERR_NOMEM;
    for (size_t i = 0; i < request->n_items; i++) {
        struct tcpstore_text key, value;
        struct tcpstore_entry *entry;

        tcpstore_request_item(request, &key, &value);
        entry = tcpstore_entry_add(keys, key, err);
        if (entry == NULL) {
            /*
             * The wait was begun for n_missing keys. The rest of them are marked as unused, because
             * tcpstore_wait_cancel() goes through all.
             */
            for (; wait->n < n_missing; wait->n++)
                wait->missed[wait->n].entry = NULL;
            tcpstore_wait_cancel(keys, wait);
            return FSDP_ERR_NOMEM;
        }
        if (!tcpstore_entry_is_there(entry))
            tcpstore_wait_for(entry, wait);
    }
    assert(wait->n == n_missing);
    return FSDP_OK;
}

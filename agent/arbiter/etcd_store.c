#include "agent/arbiter/etcd_store.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/arbiter/base64.h"
#include "agent/arbiter/etcd_client.h"
#include "agent/arbiter/etcd_message.h"
#include "shard_runtime/core/clock.h"

enum { CALLS_IN_A_LEASE = 3, KEEP_S = 3600, KEEP_LEASES = 20 };

struct etcd_store {
    struct arbiter_store base;
    struct etcd_client *client;
    char *key; /* base64 */
    int64_t keep_s;
    /* the id of etcd's lease, which keeps the key that this agent writes; 0: there is none */
    int64_t lease;
    int64_t lease_made_ns; /* clock_boot_ns() before that lease was asked for */
};

/* What the key was found to have: a complete record, or something that does not count. */
struct found {
    struct etcd_value value;
    bool whole;
    struct leader_record record;
};

static void decode(struct found *found)
{
    found->whole = leader_record_decode(&found->record, found->value.bytes, found->value.n_bytes);
}

/* Sends `body`, and frees it. */
static enum fsdp_status ask(struct etcd_store *store, const char *path, struct json_text *body,
                            int64_t deadline_ns, cJSON **answer, struct fsdp_err *err)
{
    const enum fsdp_status status =
        etcd_client_ask(store->client, path, body->failed ? NULL : body->bytes, deadline_ns, answer, err);

    json_text_free(body);
    return status;
}

static enum fsdp_status look(struct etcd_store *store, struct found *found, int64_t deadline_ns,
                             struct fsdp_err *err)
{
    struct json_text body = { 0 };
    cJSON *answer;
    enum fsdp_status status;

    etcd_message_range(&body, store->key);
    status = ask(store, ETCD_RANGE, &body, deadline_ns, &answer, err);
    if (status == FSDP_OK)
        status = etcd_message_take_range(answer, store->key, &found->value, err);
    if (status == FSDP_OK)
        decode(found);
    cJSON_Delete(answer);
    return status;
}

/*
 * Makes sure that there is a lease of etcd for the next write. When half of its time is over, a new one is
 * made. The old one then keeps no key, and ends by itself.
 */
static enum fsdp_status need_lease(struct etcd_store *store, int64_t deadline_ns, struct fsdp_err *err)
{
    const int64_t now_ns = clock_boot_ns(), half_ns = store->keep_s * 500 * 1000 * 1000;
    struct json_text body = { 0 };
    cJSON *answer;
    enum fsdp_status status;

    if (store->lease != 0 && now_ns - store->lease_made_ns < half_ns)
        return FSDP_OK;
    etcd_message_grant(&body, store->keep_s);
    status = ask(store, ETCD_GRANT, &body, deadline_ns, &answer, err);
    if (status == FSDP_OK)
        status = etcd_message_take_grant(answer, &store->lease, err);
    if (status == FSDP_OK)
        store->lease_made_ns = now_ns;
    cJSON_Delete(answer);
    return status;
}

/*
 * Puts `bytes` if the key has not changed since `found` was read. Otherwise `found` receives what it has now.
 */
static enum fsdp_status swap(struct etcd_store *store, const unsigned char *bytes, struct found *found,
                             bool *swapped, int64_t deadline_ns, struct fsdp_err *err)
{
    const int64_t revision = found->value.revision;
    struct json_text body = { 0 };
    cJSON *answer;
    enum fsdp_status status;

    etcd_message_swap(&body, store->key, revision, bytes, store->lease);
    status = ask(store, ETCD_TXN, &body, deadline_ns, &answer, err);
    if (status == FSDP_OK)
        status = etcd_message_take_swap(answer, store->key, swapped, &found->value, err);
    if (status == FSDP_OK && !*swapped)
        decode(found);
    cJSON_Delete(answer);
    return status;
}

static enum arbiter_answer etcd_read(struct arbiter_store *base, struct leader_record *out,
                                     struct fsdp_err *err)
{
    struct etcd_store *store = (struct etcd_store *)base;
    struct found found;

    if (look(store, &found, etcd_client_deadline(store->client), err) != FSDP_OK)
        return ARBITER_FAILED;
    if (!found.whole)
        return ARBITER_NONE;
    *out = found.record;
    return ARBITER_DONE;
}

/*
 * Must the write be given up because of what was found? A claim: if the found term is as high, or higher. A
 * record: if the found term is higher, or is the same and of another agent.
 */
static bool is_in_the_way(const struct found *found, const struct leader_record *record, bool claims)
{
    if (!found->whole || found->record.term != record->term)
        return found->whole && found->record.term > record->term;
    return claims || memcmp(found->record.identity, record->identity, sizeof record->identity) != 0;
}

/*
 * Writes a claim, or a leader's record. ARBITER_NONE: `other` has a record that is in the way. The call reads
 * the key first. If a later read finds the very record that it writes, an earlier try, whose answer was lost,
 * has written it.
 */
static enum arbiter_answer put(struct etcd_store *store, const struct leader_record *record,
                               struct leader_record *other, struct fsdp_err *err)
{
    const int64_t deadline_ns = etcd_client_deadline(store->client);
    const bool claims = record->sequence == 0;
    unsigned char bytes[LEADER_RECORD_BYTES];
    struct found found;
    bool swapped = false;
    enum fsdp_status status = look(store, &found, deadline_ns, err);

    leader_record_encode(record, bytes);
    while (status == FSDP_OK) {
        if (is_in_the_way(&found, record, claims)) {
            *other = found.record;
            return ARBITER_NONE;
        }
        status = need_lease(store, deadline_ns, err);
        if (status == FSDP_OK)
            status = swap(store, bytes, &found, &swapped, deadline_ns, err);
        if (status == FSDP_ERR_NOT_FOUND) {
            /*
             * the lease in etcd is over: this host was stopped for long, or etcd was restored from an earlier
             * state
             */
            store->lease = 0;
            status = FSDP_OK;
        } else if (status == FSDP_OK &&
                   (swapped || (found.whole && memcmp(found.value.bytes, bytes, sizeof bytes) == 0))) {
            return ARBITER_DONE;
        }
    }
    return ARBITER_FAILED;
}

static enum arbiter_answer etcd_claim(struct arbiter_store *base, const struct leader_record *claim,
                                      struct leader_record *holder, struct fsdp_err *err)
{
    const enum arbiter_answer answer = put((struct etcd_store *)base, claim, holder, err);

    return answer == ARBITER_NONE ? ARBITER_TAKEN : answer;
}

static enum arbiter_answer etcd_renew(struct arbiter_store *base, const struct leader_record *record,
                                      struct leader_record *newer, struct fsdp_err *err)
{
    const enum arbiter_answer answer = put((struct etcd_store *)base, record, newer, err);

    return answer == ARBITER_NONE ? ARBITER_DEPOSED : answer;
}

static void etcd_destroy(struct arbiter_store *base)
{
    struct etcd_store *store = (struct etcd_store *)base;

    etcd_client_destroy(store->client);
    free(store->key);
    free(store);
}

static const struct arbiter_store_ops etcd_ops = {
    .name = "etcd", .read = etcd_read, .claim = etcd_claim, .renew = etcd_renew, .destroy = etcd_destroy
};

/* The run's key in base64; NULL: no memory. */
static char *make_key(const char *run_id)
{
    struct json_text name = { 0 };
    char *key = NULL;

    json_add(&name, "fsdprun/%s/leader", run_id);
    if (!name.failed)
        key = malloc(BASE64_TEXT_BYTES(name.length));
    if (key != NULL)
        base64_encode(key, name.bytes, name.length);
    json_text_free(&name);
    return key;
}

enum fsdp_status etcd_store_create(struct arbiter_store **out, const struct etcd_endpoints *endpoints,
                                   const char *run_id, int64_t lease_ms, struct fsdp_err *err)
{
    struct etcd_store *store = calloc(1, sizeof *store);
    enum fsdp_status status;

    *out = NULL;
    if (store == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the store in etcd");
    store->base.ops = &etcd_ops;
    store->keep_s = KEEP_LEASES * lease_ms / 1000 > KEEP_S ? KEEP_LEASES * lease_ms / 1000 : KEEP_S;
    store->key = make_key(run_id);
    status = store->key == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the key in etcd") : FSDP_OK;
    if (status == FSDP_OK)
        status = etcd_client_create(&store->client, endpoints, lease_ms / CALLS_IN_A_LEASE, err);
    if (status != FSDP_OK) {
        etcd_destroy(&store->base);
        return status;
    }
    *out = &store->base;
    return FSDP_OK;
}

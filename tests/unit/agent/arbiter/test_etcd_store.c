/* The store over members that answer what a test gives them. test_etcd.c has a real etcd. */
#include "agent/arbiter/etcd_store.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>

#include "agent/arbiter/base64.h"
#include "tests/unit/agent/arbiter/fake_etcd.h"

enum { LEASE_MS = 6000, N_REPLIES = 8 };

#define GRANTED "{" FAKE_HEADER ",\"ID\":\"9\",\"TTL\":\"3600\"}"
#define NOTHING "{" FAKE_HEADER "}"
#define PUT     "{" FAKE_HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}"
#define NO_LEASE                                                                                             \
    "HTTP/1.1 404 Not Found\r\n\r\n{\"message\":\"etcdserver: requested lease not found\",\"code\":5}"

static const struct leader_record mine = { .term = 4,
                                           .sequence = 17,
                                           .identity = "mine",
                                           .host = "a",
                                           .port = 1,
                                           .lease_ms = 3000,
                                           .state = LEADER_LEADS };
static struct fake_reply replies[N_REPLIES];
static char texts[N_REPLIES][2048];
static int n_replies;
static struct arbiter_store *store;
static struct leader_record other;
static struct fsdp_err err;

static void reply(const char *json)
{
    replies[n_replies++] = (struct fake_reply){ .json = json };
}

/* The member says that the key has these bytes: to a look, or as why it did not put what was sent. */
static void reply_bytes(const void *bytes, size_t n, bool to_a_look)
{
    char value[BASE64_TEXT_BYTES(LEADER_RECORD_BYTES)], key[64], found[1024];

    base64_encode(value, bytes, n);
    base64_encode(key, "fsdprun/run 7/leader", 20);
    snprintf(found, sizeof found, "\"kvs\":[{\"key\":\"%s\",\"mod_revision\":\"%d\",\"value\":\"%s\"}]", key,
             20 + n_replies, value);
    if (to_a_look)
        snprintf(texts[n_replies], sizeof *texts, "{" FAKE_HEADER ",%s}", found);
    else
        snprintf(texts[n_replies], sizeof *texts,
                 "{" FAKE_HEADER ",\"responses\":[{\"response_range\":{%s}}]}", found);
    reply(texts[n_replies]);
}

static void reply_record(const struct leader_record *record, bool to_a_look)
{
    unsigned char bytes[LEADER_RECORD_BYTES];

    leader_record_encode(record, bytes);
    reply_bytes(bytes, sizeof bytes, to_a_look);
}

/* `mine`, but for these */
static struct leader_record record_of(const char *identity, uint64_t term, uint64_t sequence)
{
    struct leader_record record = mine;

    memset(record.identity, 0, sizeof record.identity);
    memcpy(record.identity, identity, strlen(identity));
    record.term = term;
    record.sequence = sequence;
    return record;
}

static void open_store(void)
{
    struct etcd_endpoints endpoints;
    char text[64];

    fake_start(0, replies, n_replies);
    snprintf(text, sizeof text, "etcd://127.0.0.1:%d", fakes[0].port);
    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, text, &err), FSDP_OK));
    cr_assert(eq(int, etcd_store_create(&store, &endpoints, "run 7", LEASE_MS, &err), FSDP_OK));
}

static enum arbiter_answer renew(const struct leader_record *record)
{
    open_store();
    return store->ops->renew(store, record, &other, &err);
}

static enum arbiter_answer claim(const struct leader_record *record)
{
    open_store();
    return store->ops->claim(store, record, &other, &err);
}

static void tear_down(void)
{
    if (store != NULL)
        store->ops->destroy(store);
}

TestSuite(etcd_store, .fini = tear_down, .timeout = 60);

Test(etcd_store, what_is_no_whole_record_does_not_count)
{
    static const char foreign[LEADER_RECORD_BYTES] = "foreign";
    unsigned char torn[LEADER_RECORD_BYTES];

    leader_record_encode(&mine, torn);
    torn[300] ^= 1;
    reply_bytes(foreign, sizeof foreign, true);
    reply_bytes(torn, sizeof torn, true);
    reply_bytes(torn, 100, true);
    reply_record(&mine, true);
    open_store();

    for (int i = 0; i < 3; i++)
        cr_assert(eq(int, store->ops->read(store, &other, &err), ARBITER_NONE));

    cr_assert(eq(int, store->ops->read(store, &other, &err), ARBITER_DONE), "%s", err.message);
    cr_assert(other.term == 4 && other.sequence == 17);
}

/* Its answer was lost, so the next try finds it: the call began before it was put. */
Test(etcd_store, a_try_of_this_call_that_took_effect_is_done)
{
    const struct leader_record old = record_of("old", 3, 99);

    reply_record(&old, true);
    reply(GRANTED);
    reply(NULL);
    reply_record(&mine, false);

    cr_assert(eq(int, renew(&mine), ARBITER_DONE), "%s", err.message);

    cr_assert(eq(int, fakes[0].n_requests, 4));
}

Test(etcd_store, a_claim_whose_answer_was_lost_is_done)
{
    const struct leader_record claimed = record_of("mine", 4, 0);

    reply(NOTHING);
    reply(GRANTED);
    reply(NULL);
    reply_record(&claimed, false);

    cr_assert(eq(int, claim(&claimed), ARBITER_DONE), "%s", err.message);
}

/* Others may have seen it long ago, so the hold must not count from this call. */
Test(etcd_store, a_claim_of_an_earlier_call_is_taken)
{
    const struct leader_record claimed = record_of("mine", 4, 0);

    reply_record(&claimed, true);

    cr_assert(eq(int, claim(&claimed), ARBITER_TAKEN));

    cr_assert(eq(int, fakes[0].n_requests, 1), "nothing was written");
    cr_assert(memcmp(other.identity, claimed.identity, sizeof other.identity) == 0 && other.term == 4);
}

Test(etcd_store, a_claim_between_look_and_write_deposes)
{
    const struct leader_record old = record_of("mine", 4, 16), claimed = record_of("other", 5, 0);

    reply_record(&old, true);
    reply(GRANTED);
    reply_record(&claimed, false);

    cr_assert(eq(int, renew(&mine), ARBITER_DEPOSED));

    cr_assert(other.term == 5 && other.sequence == 0);
}

Test(etcd_store, the_same_term_of_another_agent_deposes)
{
    const struct leader_record others = record_of("other", 4, 1);

    reply_record(&others, true);

    cr_assert(eq(int, renew(&mine), ARBITER_DEPOSED));

    cr_assert(eq(int, fakes[0].n_requests, 1), "nothing was written");
}

/*
 * The old leader wrote once more. The claim is for a higher term, and the store only decides who gets
 * that.
 */
Test(etcd_store, a_claim_is_tried_again_over_a_newer_record_of_a_lower_term)
{
    const struct leader_record old = record_of("old", 3, 99), newer = record_of("old", 3, 100),
                               claimed = record_of("mine", 4, 0);

    reply_record(&old, true);
    reply(GRANTED);
    reply_record(&newer, false);
    reply(PUT);

    cr_assert(eq(int, claim(&claimed), ARBITER_DONE), "%s", err.message);

    cr_assert_not_null(strstr(fakes[0].requests[2], "\"mod_revision\": \"20\""));
    cr_assert_not_null(strstr(fakes[0].requests[3], "\"mod_revision\": \"22\""));
}

Test(etcd_store, a_lease_of_etcd_that_is_over_is_replaced)
{
    reply(NOTHING);
    reply(GRANTED);
    replies[n_replies++] = (struct fake_reply){ .raw = NO_LEASE };
    reply("{" FAKE_HEADER ",\"ID\":\"10\",\"TTL\":\"3600\"}");
    reply(PUT);

    cr_assert(eq(int, renew(&mine), ARBITER_DONE), "%s", err.message);

    cr_assert_not_null(strstr(fakes[0].requests[2], "\"lease\": \"9\""));
    cr_assert_not_null(strstr(fakes[0].requests[4], "\"lease\": \"10\""));
}

Test(etcd_store, a_lease_of_etcd_is_used_again)
{
    reply(NOTHING);
    reply(GRANTED);
    reply(PUT);
    reply(NOTHING);
    reply(PUT);

    cr_assert(eq(int, renew(&mine), ARBITER_DONE), "%s", err.message);
    cr_assert(eq(int, store->ops->renew(store, &mine, &other, &err), ARBITER_DONE), "%s", err.message);

    cr_assert(eq(int, fakes[0].n_requests, 5));
}

Test(etcd_store, a_key_outlives_a_run_with_a_long_lease)
{
    struct etcd_endpoints endpoints;
    char text[64];

    reply(NOTHING);
    reply(GRANTED);
    reply(PUT);
    fake_start(0, replies, n_replies);
    snprintf(text, sizeof text, "etcd://127.0.0.1:%d", fakes[0].port);
    cr_assert(eq(int, etcd_endpoints_parse(&endpoints, text, &err), FSDP_OK));
    cr_assert(eq(int, etcd_store_create(&store, &endpoints, "x", 600 * 1000, &err), FSDP_OK));

    cr_assert(eq(int, store->ops->renew(store, &mine, &other, &err), ARBITER_DONE));

    cr_assert_not_null(strstr(fakes[0].requests[1], "\"TTL\": \"12000\""));
}

ParameterizedTestParameters(etcd_store, an_answer_that_makes_no_sense_fails_the_call)
{
    static int nths[] = { 0, 1, 2 };

    return cr_make_param_array(int, nths, 3);
}

ParameterizedTest(int *nth, etcd_store, an_answer_that_makes_no_sense_fails_the_call)
{
    static const char *const sense[] = { NOTHING, GRANTED, PUT };

    for (int i = 0; i < 3; i++)
        reply(i == *nth ? "{" FAKE_HEADER ",\"kvs\":7,\"responses\":7,\"ID\":7}" : sense[i]);

    cr_assert(eq(int, renew(&mine), ARBITER_FAILED));

    cr_assert_not_null(strstr(err.message, "not one of etcd's version 3"), "%s", err.message);
    cr_assert(eq(int, fakes[0].n_requests, *nth + 1));
}

Test(etcd_store, a_call_takes_a_third_of_the_lease_at_most)
{
    reply(NULL);

    cr_assert(eq(int, renew(&mine), ARBITER_FAILED));

    cr_assert_not_null(strstr(err.message, "etcd at http://127.0.0.1:"));
}

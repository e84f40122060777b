/* The store with a real etcd, whose members are killed. */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <pthread.h>

#include "agent/arbiter/etcd_store.h"
#include "shard_runtime/core/clock.h"
#include "tests/unit/agent/arbiter/etcd_server.h"

enum { LEASE_MS = 6000, CALL_MS = LEASE_MS / 3, RECOVERED_MS = 30000, AGENTS = 8 };

static struct arbiter_store *stores[AGENTS];
static struct leader_record out;
static struct fsdp_err err;

/* A store of all members, of which `first` is asked first. */
static struct arbiter_store *open_store(int nth, const char *scheme, int first)
{
    const struct etcd_endpoints endpoints = server_endpoints(scheme, first, n_servers);

    cr_assert(eq(int, etcd_store_create(&stores[nth], &endpoints, "run 7", LEASE_MS, &err), FSDP_OK), "%s",
              err.message);
    return stores[nth];
}

static enum arbiter_answer read_record(struct arbiter_store *store)
{
    return store->ops->read(store, &out, &err);
}

/* What agent `who` would write. */
static struct leader_record record_of(int who, uint64_t term, uint64_t sequence)
{
    return (struct leader_record){ .run = 7,
                                   .term = term,
                                   .sequence = sequence,
                                   .identity = { (unsigned char)(1 + who) },
                                   .host = "10.0.0.1",
                                   .port = 29400,
                                   .lease_ms = LEASE_MS,
                                   .state = LEADER_LEADS };
}

static enum arbiter_answer claim(int who, uint64_t term)
{
    const struct leader_record record = record_of(who, term, 0);

    return stores[who]->ops->claim(stores[who], &record, &out, &err);
}

static enum arbiter_answer renew(int who, uint64_t term, uint64_t sequence)
{
    const struct leader_record record = record_of(who, term, sequence);

    return stores[who]->ops->renew(stores[who], &record, &out, &err);
}

static bool is_of(const struct leader_record *record, int who, uint64_t term, uint64_t sequence)
{
    return record->identity[0] == 1 + who && record->term == term && record->sequence == sequence;
}

static void start(int n)
{
    servers_start(n, "http", NULL);
    server_wait_ready(open_store(0, "etcd", 0));
}

static void tear_down(void)
{
    for (int i = 0; i < AGENTS; i++)
        if (stores[i] != NULL)
            stores[i]->ops->destroy(stores[i]);
    servers_end();
}

TestSuite(etcd, .init = servers_begin, .fini = tear_down, .timeout = 180);

Test(etcd, a_record_goes_from_a_claim_to_its_end)
{
    struct leader_record end = record_of(0, 1, 2);

    end.state = LEADER_ENDED;
    start(1);
    open_store(1, "etcd", 0);

    cr_assert(eq(int, read_record(stores[1]), ARBITER_NONE));
    cr_assert(eq(int, claim(0, 1), ARBITER_DONE), "%s", err.message);
    cr_assert(eq(int, read_record(stores[1]), ARBITER_DONE));
    cr_assert(is_of(&out, 0, 1, 0), "a claim is a record");
    cr_assert(eq(int, renew(0, 1, 1), ARBITER_DONE), "%s", err.message);
    cr_assert(eq(int, read_record(stores[1]), ARBITER_DONE));
    cr_assert(is_of(&out, 0, 1, 1));
    cr_assert(eq(int, stores[0]->ops->renew(stores[0], &end, &out, &err), ARBITER_DONE));
    cr_assert(eq(int, read_record(stores[1]), ARBITER_DONE));
    cr_assert(is_of(&out, 0, 1, 2));
    cr_assert(eq(int, out.state, LEADER_ENDED));
}

static enum arbiter_answer answers[AGENTS];
static struct leader_record holders[AGENTS];

static void *claim_at_once(void *arg)
{
    const int who = (int)(intptr_t)arg;
    const struct leader_record record = record_of(who, 1, 0);
    struct fsdp_err own = { 0 };

    answers[who] = stores[who]->ops->claim(stores[who], &record, &holders[who], &own);
    return NULL;
}

Test(etcd, of_many_that_claim_a_term_at_once_one_has_it)
{
    pthread_t threads[AGENTS];
    int winner = -1;

    start(1);
    for (int i = 1; i < AGENTS; i++)
        open_store(i, "etcd", 0);

    for (int i = 0; i < AGENTS; i++)
        cr_assert(eq(int, pthread_create(&threads[i], NULL, claim_at_once, (void *)(intptr_t)i), 0));
    for (int i = 0; i < AGENTS; i++)
        pthread_join(threads[i], NULL);

    for (int i = 0; i < AGENTS; i++) {
        cr_assert(answers[i] == ARBITER_TAKEN || (answers[i] == ARBITER_DONE && winner < 0), "agent %d", i);
        if (answers[i] == ARBITER_DONE)
            winner = i;
    }
    cr_assert(ge(int, winner, 0));
    for (int i = 0; i < AGENTS; i++)
        cr_assert(i == winner || is_of(&holders[i], winner, 1, 0), "agent %d", i);
}

Test(etcd, a_deposed_leader_overwrites_nothing)
{
    start(1);
    open_store(1, "etcd", 0);
    cr_assert(eq(int, claim(0, 1), ARBITER_DONE));
    cr_assert(eq(int, renew(0, 1, 1), ARBITER_DONE));

    cr_assert(eq(int, claim(1, 2), ARBITER_DONE), "%s", err.message);
    cr_assert(eq(int, renew(0, 1, 2), ARBITER_DEPOSED));
    cr_assert(is_of(&out, 1, 2, 0), "the claim alone deposes");
    cr_assert(eq(int, renew(1, 2, 1), ARBITER_DONE));
    cr_assert(eq(int, renew(0, 1, 3), ARBITER_DEPOSED));
    cr_assert(is_of(&out, 1, 2, 1));
    cr_assert(eq(int, claim(0, 1), ARBITER_TAKEN));

    cr_assert(eq(int, read_record(stores[0]), ARBITER_DONE));
    cr_assert(is_of(&out, 1, 2, 1));
}

/* The leases of etcd that there are: the number of the first, and how many. */
static int leases(char first[32])
{
    cJSON *answer = server_ask(0, "/v3/lease/leases", "{}");
    const cJSON *const list = cJSON_GetObjectItem(answer, "leases");
    const char *const id = server_string(cJSON_GetArrayItem(list, 0), "ID");
    const int n = cJSON_GetArraySize(list);

    snprintf(first, 32, "%s", id == NULL ? "" : id);
    cJSON_Delete(answer);
    return n;
}

Test(etcd, nothing_stays_in_etcd_for_ever)
{
    char lease[32], body[128];
    cJSON *answer;
    const char *ttl;

    start(1);
    cr_assert(eq(int, claim(0, 1), ARBITER_DONE));
    cr_assert(eq(int, renew(0, 1, 1), ARBITER_DONE));

    cr_assert(eq(int, leases(lease), 1));
    snprintf(body, sizeof body, "{\"ID\": \"%s\", \"keys\": true}", lease);
    answer = server_ask(0, "/v3/lease/timetolive", body);
    ttl = server_string(answer, "grantedTTL");
    cr_assert(ttl != NULL && strcmp(ttl, "3600") == 0);
    cr_assert(eq(int, cJSON_GetArraySize(cJSON_GetObjectItem(answer, "keys")), 1), "the lease keeps the key");
    cJSON_Delete(answer);
    cJSON_Delete(server_ask(0, "/v3/lease/revoke", body));
    cr_assert(eq(int, read_record(stores[0]), ARBITER_NONE), "and nothing else does");
}

Test(etcd, a_leader_goes_on_after_its_record_has_expired)
{
    char lease[32], body[128];

    start(1);
    cr_assert(eq(int, claim(0, 1), ARBITER_DONE));
    cr_assert(eq(int, leases(lease), 1));
    snprintf(body, sizeof body, "{\"ID\": \"%s\"}", lease);
    cJSON_Delete(server_ask(0, "/v3/lease/revoke", body));

    cr_assert(eq(int, renew(0, 1, 1), ARBITER_DONE), "%s", err.message);

    cr_assert(eq(int, read_record(stores[0]), ARBITER_DONE));
    cr_assert(is_of(&out, 0, 1, 1));
}

/* How long one call takes. Twice the bound is a machine that has no time for this test. */
static enum arbiter_answer renew_in_time(uint64_t sequence)
{
    const int64_t began_ms = clock_now_ms();
    const enum arbiter_answer answer = renew(1, 1, sequence);

    cr_assert(lt(int, (int)(clock_now_ms() - began_ms), 2 * CALL_MS));
    return answer;
}

Test(etcd, the_loss_of_one_of_three_members_is_borne)
{
    uint64_t sequence = 1;
    int leader;
    int64_t until_ms;

    start(3);
    leader = server_leader();
    open_store(1, "etcd", leader);
    cr_assert(eq(int, claim(1, 1), ARBITER_DONE), "%s", err.message);
    cr_assert(eq(int, renew_in_time(sequence), ARBITER_DONE), "%s", err.message);

    server_kill(leader);
    until_ms = clock_now_ms() + RECOVERED_MS;
    while (renew_in_time(++sequence) != ARBITER_DONE)
        cr_assert(clock_now_ms() < until_ms, "%s", err.message);

    cr_assert(eq(int, read_record(stores[0]), ARBITER_DONE), "%s", err.message);
    cr_assert(is_of(&out, 1, 1, sequence));
}

Test(etcd, calls_fail_in_a_third_of_the_lease_when_no_member_answers)
{
    start(3);
    open_store(1, "etcd", 0);
    cr_assert(eq(int, claim(1, 1), ARBITER_DONE), "%s", err.message);

    for (int i = 0; i < 3; i++)
        kill(servers[i], SIGSTOP);
    cr_assert(eq(int, renew_in_time(1), ARBITER_FAILED));
    cr_assert_not_null(strstr(err.message, "etcd at http://127."));
    servers_kill();
    cr_assert(eq(int, renew_in_time(2), ARBITER_FAILED));
}

/* A certificate for the test's address, which is its own authority. */
static void make_certificate(void)
{
    char command[512];

    snprintf(command, sizeof command,
             "cd %s && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout key "
             "-out cert -days 2 -subj /CN=etcd -addext subjectAltName=IP:%s 2> /dev/null",
             scratch, server_address());
    cr_assert(eq(int, system(command), 0));
}

static void set_path(const char *variable, const char *file)
{
    cr_assert(eq(int, setenv(variable, scratch_path("%s", file), 1), 0));
}

/* Reading fails until it fails with these words: a busy machine may say first that the time was over. */
static void await_words(struct arbiter_store *store, const char *words)
{
    const int64_t until_ms = clock_now_ms() + RECOVERED_MS;

    do {
        cr_assert(eq(int, read_record(store), ARBITER_FAILED));
        cr_assert(clock_now_ms() < until_ms, "%s", err.message);
    } while (strstr(err.message, words) == NULL);
}

Test(etcd, with_tls_both_ends_prove_who_they_are)
{
    char cert[128], key[128];
    const char *const more[] = { "--cert-file",       cert, "--key-file",         key,
                                 "--trusted-ca-file", cert, "--client-cert-auth", NULL };

    snprintf(cert, sizeof cert, "%s/cert", scratch);
    snprintf(key, sizeof key, "%s/key", scratch);
    make_certificate();
    servers_start(1, "https", more);
    open_store(1, "etcds", 0);
    set_path("ETCDCTL_CACERT", "cert");
    open_store(2, "etcds", 0);
    set_path("ETCDCTL_CERT", "cert");
    set_path("ETCDCTL_KEY", "key");

    server_wait_ready(open_store(0, "etcds", 0));

    cr_assert(eq(int, claim(0, 1), ARBITER_DONE), "%s", err.message);
    await_words(stores[1], "certificate"); /* an authority that the system does not trust */
    await_words(stores[2], "alert");       /* a client without a certificate */
}

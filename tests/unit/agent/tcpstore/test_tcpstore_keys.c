#include "agent/tcpstore/tcpstore_keys.h"

#include <criterion/criterion.h>
#include <stdio.h>

#include "tests/support/oracles/tcpstore_wire.h"

enum { PLENTY = 1 << 20 };

/* A client: how often it was answered. */
struct client {
    struct tcpstore_waits waits;
    int n_woken;
    int order; /* when it was woken last, counted over all */
};

static struct tcpstore_keys *keys; /* of the test */
static int n_wakes;

static void on_wake(void *arg, void *owner)
{
    struct client *client = owner;

    client->n_woken++;
    client->order = ++n_wakes;
}

static void client_init(struct client *client)
{
    memset(client, 0, sizeof *client);
    client->waits.owner = client;
}

static struct tcpstore_text text(const char *words)
{
    return (struct tcpstore_text){ (const unsigned char *)words, strlen(words) };
}

static bool reads(struct tcpstore_text got, const char *want)
{
    return got.size == strlen(want) && memcmp(got.bytes, want, got.size) == 0;
}

static bool value_is(const char *key, const char *want)
{
    struct tcpstore_text value;

    if (!tcpstore_keys_get(keys, text(key), &value))
        return want == NULL;
    return want != NULL && reads(value, want);
}

/* True: it waits. `names` ends with NULL. */
static bool wait_for(struct client *client, const char *const *names, enum fsdp_status *status)
{
    struct wire wire = { 0 };
    struct tcpstore_parser parser = { 0 };
    struct tcpstore_request request;
    const unsigned char *at;
    size_t n;
    bool waiting = false;

    wire_list(&wire, TCPSTORE_WAIT, names);
    at = wire.bytes;
    n = wire.n;
    cr_assert_eq(tcpstore_parser_next(&parser, &at, &n, &request, NULL), TCPSTORE_REQUEST);
    *status = tcpstore_keys_wait(keys, &request, &client->waits, &waiting, NULL);
    tcpstore_parser_fini(&parser);
    free(wire.bytes);
    return waiting;
}

#define WAIT(client, ...) wait_for(client, (const char *[]){ __VA_ARGS__, NULL }, &(enum fsdp_status){ 0 })

static void create(void)
{
    keys = tcpstore_keys_create(128 << 20, on_wake, NULL);
}

static void destroy(void)
{
    tcpstore_keys_destroy(keys);
    keys = NULL;
}

static void set(const char *key, const char *value)
{
    cr_assert_eq(tcpstore_keys_set(keys, text(key), text(value), NULL), FSDP_OK);
}

TestSuite(tcpstore_keys, .init = create, .fini = destroy, .timeout = 1200);

/* Claims */

Test(tcpstore_keys, compare_set_follows_its_four_cases)
{
    static const struct {
        const char *expected, *desired, *answer, *then, *what;
    } cases[] = {
        { "x", "y", "x", NULL, "missing, something expected: nothing is stored" },
        { "", "one", "one", "one", "missing, nothing expected: stored" },
        { "two", "three", "one", "one", "different: what is there stays" },
        { "one", "three", "three", "three", "equal: replaced" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tcpstore_text got;

        cr_assert_eq(tcpstore_keys_compare_set(keys, text("k"), text(cases[i].expected),
                                               text(cases[i].desired), &got, NULL),
                     FSDP_OK);
        cr_assert(reads(got, cases[i].answer) && value_is("k", cases[i].then), "%s", cases[i].what);
    }
}

Test(tcpstore_keys, add_counts_in_decimal_text)
{
    static const char *const bad[] = { "abc", "", "99999999999999999999", "9223372036854775807" };
    int64_t sum;

    cr_assert_eq(tcpstore_keys_add(keys, text("n"), 5, &sum, NULL), FSDP_OK);
    cr_assert(sum == 5 && value_is("n", "5"));
    tcpstore_keys_add(keys, text("n"), -12, &sum, NULL);
    cr_assert(sum == -7 && value_is("n", "-7"));
    set("n", "12abc");
    tcpstore_keys_add(keys, text("n"), 1, &sum, NULL);
    cr_assert_eq(sum, 13, "as PyTorch's reads it");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        set("n", bad[i]);
        cr_assert_eq(tcpstore_keys_add(keys, text("n"), 1, &sum, NULL), FSDP_ERR_FORMAT, "%s", bad[i]);
    }
    cr_assert(value_is("n", "9223372036854775807"), "a sum that cannot be changes nothing");
}

Test(tcpstore_keys, a_queue_is_not_a_value)
{
    struct tcpstore_text front;

    tcpstore_keys_push(keys, text("q"), text("one"), NULL);
    tcpstore_keys_push(keys, text("q"), text("two"), NULL);

    cr_assert(tcpstore_keys_count(keys) == 0 && value_is("q", NULL) &&
              !tcpstore_keys_delete(keys, text("q")));
    cr_assert(tcpstore_keys_queue_length(keys, text("q")) == 2 &&
              tcpstore_keys_front(keys, text("q"), &front) && reads(front, "one"));
    tcpstore_keys_pop(keys, text("q"));
    cr_assert(tcpstore_keys_front(keys, text("q"), &front) && reads(front, "two"));
    tcpstore_keys_pop(keys, text("q"));
    cr_assert(!tcpstore_keys_front(keys, text("q"), &front) && tcpstore_keys_used_bytes(keys) == 0);
    tcpstore_keys_pop(keys, text("q"));
}

Test(tcpstore_keys, a_barrier_lets_all_go_with_the_last_and_whoever_is_late)
{
    struct client clients[4];
    bool waiting;

    for (int i = 0; i < 4; i++) {
        client_init(&clients[i]);
        tcpstore_keys_barrier(keys, text("b"), 3, &clients[i].waits, &waiting, NULL);
        cr_assert_eq(waiting, i < 2, "client %d", i);
    }
    cr_assert(clients[0].n_woken == 1 && clients[1].n_woken == 1 && clients[2].n_woken == 0);
    cr_assert(clients[0].order < clients[1].order && value_is("b", "4"));
}

static void count_key(void *arg, struct tcpstore_text key)
{
    ++*(int *)arg;
}

Test(tcpstore_keys, many_keys_are_found_again_and_go)
{
    enum { N = 20000 };
    int n = 0;
    char key[32];

    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "/key/%d", i);
        cr_assert_eq(tcpstore_keys_set(keys, text(key), text(key + 5), NULL), FSDP_OK);
    }
    tcpstore_keys_each(keys, count_key, &n);
    cr_assert(n == N && tcpstore_keys_count(keys) == N);
    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "/key/%d", i);
        cr_assert(value_is(key, key + 5), "%s", key);
        cr_assert(tcpstore_keys_delete(keys, text(key)) && !tcpstore_keys_delete(keys, text(key)));
    }
    cr_assert(tcpstore_keys_count(keys) == 0 && tcpstore_keys_used_bytes(keys) == 0);
}

Test(tcpstore_keys, small_pieces_are_appended_without_copying_all_of_it_each_time)
{
    unsigned char piece[1 << 10] = { 0 };
    const struct tcpstore_text bytes = { piece, sizeof piece };
    struct tcpstore_text value;
    enum fsdp_status status = FSDP_OK;
    size_t n = 0;

    for (; status == FSDP_OK; n++)
        status = tcpstore_keys_append(keys, text("k"), bytes, NULL);

    cr_assert_eq(status, FSDP_ERR_FORMAT);
    cr_assert(tcpstore_keys_get(keys, text("k"), &value) && value.size == TCPSTORE_MAX_REQUEST &&
              n == TCPSTORE_MAX_REQUEST / sizeof piece + 1);
}

/* The whole space, against a model that is easy to read */

enum { N_KEYS = 2, N_CLIENTS = 2, MAX_WAITS = 16, LENGTH = 5 };

struct model {
    char values[N_KEYS][256]; /* "" is there too: `there` says */
    bool there[N_KEYS];
    int queued[N_KEYS];
    struct {
        int client;
        unsigned missing; /* bit k: key k */
    } waits[MAX_WAITS];   /* in the order in which they asked */
    int n_waits;
    int woken[N_CLIENTS];
};

static void model_remove_wait(struct model *model, int i)
{
    memmove(&model->waits[i], &model->waits[i + 1], sizeof *model->waits * (size_t)(MAX_WAITS - i - 1));
    model->n_waits--;
}

static void model_came(struct model *model, int key, bool one)
{
    for (int i = 0; i < model->n_waits; i++) {
        if ((model->waits[i].missing & 1U << key) == 0)
            continue;
        model->waits[i].missing &= ~(1U << key);
        if (model->waits[i].missing != 0)
            continue;
        model->woken[model->waits[i].client]++;
        model_remove_wait(model, i--);
        if (one)
            return;
    }
}

static void model_wait(struct model *model, int client, unsigned wanted)
{
    unsigned missing = 0;

    for (int k = 0; k < N_KEYS; k++)
        if ((wanted & 1U << k) != 0 && !model->there[k] && model->queued[k] == 0)
            missing |= 1U << k;
    if (missing != 0) {
        model->waits[model->n_waits].client = client;
        model->waits[model->n_waits++].missing = missing;
    }
}

static const char *const names[N_KEYS] = { "/a", "/b" };

/* One step, done to both. */
enum step {
    SET_A,
    SET_B,
    ADD_A,
    APPEND_A,
    CAS_A,
    DELETE_A,
    PUSH_A,
    POP_A,
    WAIT_0_A,
    WAIT_0_AB,
    WAIT_1_A,
    WAIT_1_B,
    BARRIER_1_A,
    FORGET_0,
    N_STEPS
};

static void model_set(struct model *model, int key, const char *value)
{
    snprintf(model->values[key], sizeof model->values[key], "%s", value);
    model->there[key] = true;
    model_came(model, key, false);
}

static void take_step(enum step step, struct client clients[N_CLIENTS], struct model *model)
{
    struct tcpstore_text result;
    char number[32];
    int64_t sum;
    bool waiting;

    switch (step) {
    case SET_A:
    case SET_B:
        tcpstore_keys_set(keys, text(names[step == SET_B]), text("1"), NULL);
        model_set(model, step == SET_B, "1");
        return;
    case ADD_A:
        tcpstore_keys_add(keys, text(names[0]), 3, &sum, NULL);
        snprintf(number, sizeof number, "%lld", (model->there[0] ? atoll(model->values[0]) : 0) + 3);
        model_set(model, 0, number);
        return;
    case APPEND_A:
        tcpstore_keys_append(keys, text(names[0]), text("7"), NULL);
        snprintf(number, sizeof number, "%.30s7", model->there[0] ? model->values[0] : "");
        model_set(model, 0, number);
        return;
    case CAS_A:
        tcpstore_keys_compare_set(keys, text(names[0]), text("1"), text("2"), &result, NULL);
        if (model->there[0] && strcmp(model->values[0], "1") == 0)
            model_set(model, 0, "2");
        return;
    case DELETE_A:
        cr_assert_eq(tcpstore_keys_delete(keys, text(names[0])), model->there[0]);
        model->there[0] = false;
        return;
    case PUSH_A:
        tcpstore_keys_push(keys, text(names[0]), text("x"), NULL);
        model->queued[0]++;
        model_came(model, 0, true);
        return;
    case POP_A:
        tcpstore_keys_pop(keys, text(names[0]));
        model->queued[0] -= model->queued[0] > 0;
        return;
    case WAIT_0_A:
        WAIT(&clients[0], names[0]);
        model_wait(model, 0, 1);
        return;
    case WAIT_0_AB:
        WAIT(&clients[0], names[0], names[1], names[1]); /* named twice */
        model_wait(model, 0, 3);
        return;
    case WAIT_1_A:
        WAIT(&clients[1], names[0]);
        model_wait(model, 1, 1);
        return;
    case WAIT_1_B:
        WAIT(&clients[1], names[1]);
        model_wait(model, 1, 2);
        return;
    case BARRIER_1_A:
        tcpstore_keys_barrier(keys, text(names[0]), 5, &clients[1].waits, &waiting, NULL);
        snprintf(number, sizeof number, "%lld", (model->there[0] ? atoll(model->values[0]) : 0) + 1);
        snprintf(model->values[0], sizeof model->values[0], "%s", number);
        model->there[0] = true;
        cr_assert_eq(waiting, atoll(number) < 5);
        if (waiting) {
            model->waits[model->n_waits].client = 1;
            model->waits[model->n_waits++].missing = 1;
        } else {
            model_came(model, 0, false);
        }
        return;
    case FORGET_0:
        tcpstore_keys_forget(keys, &clients[0].waits);
        for (int i = 0; i < model->n_waits; i++)
            if (model->waits[i].client == 0)
                model_remove_wait(model, i--);
        return;
    case N_STEPS:
        return;
    }
}

static void compare(const struct client clients[N_CLIENTS], const struct model *model, long path)
{
    for (int k = 0; k < N_KEYS; k++) {
        cr_assert(value_is(names[k], model->there[k] ? model->values[k] : NULL), "path %ld: key %d", path, k);
        cr_assert_eq(tcpstore_keys_queue_length(keys, text(names[k])), (size_t)model->queued[k], "path %ld",
                     path);
    }
    for (int i = 0; i < N_CLIENTS; i++)
        cr_assert_eq(clients[i].n_woken, model->woken[i], "path %ld: client %d woken %d times, want %d", path,
                     i, clients[i].n_woken, model->woken[i]);
    cr_assert_eq(tcpstore_keys_n_waits(keys), (size_t)model->n_waits, "path %ld", path);
    cr_assert_eq(tcpstore_keys_count(keys), (size_t)(model->there[0] + model->there[1]), "path %ld", path);
}

/* APPEND may leave what ADD cannot read, or more digits than fit: neither comes up within LENGTH steps. */
Test(tcpstore_keys, every_path_of_five_steps_ends_as_in_the_model)
{
    long n_paths = 1;

    for (int i = 0; i < LENGTH; i++)
        n_paths *= N_STEPS;
    for (long path = 0; path < n_paths; path++) {
        struct client clients[N_CLIENTS];
        struct model model;
        long rest = path;

        memset(&model, 0, sizeof model);
        for (int i = 0; i < N_CLIENTS; i++)
            client_init(&clients[i]);
        for (int i = 0; i < LENGTH; i++, rest /= N_STEPS)
            take_step((enum step)(rest % N_STEPS), clients, &model);
        compare(clients, &model, path);

        for (int i = 0; i < N_CLIENTS; i++)
            tcpstore_keys_forget(keys, &clients[i].waits);
        for (int k = 0; k < N_KEYS; k++) {
            tcpstore_keys_delete(keys, text(names[k]));
            while (tcpstore_keys_queue_length(keys, text(names[k])) > 0)
                tcpstore_keys_pop(keys, text(names[k]));
        }
        cr_assert_eq(tcpstore_keys_used_bytes(keys), 0, "path %ld leaves bytes behind", path);
    }
}

/* A full store */

static enum fsdp_status change(int which, struct client *client)
{
    struct tcpstore_text result;
    enum fsdp_status status;
    bool waiting;
    int64_t sum;

    switch (which) {
    case 0:
        return tcpstore_keys_set(keys, text("/k"), text("longer than what was there before"), NULL);
    case 1:
        return tcpstore_keys_append(keys, text("/k"), text("a piece that does not fit"), NULL);
    case 2:
        return tcpstore_keys_add(keys, text("/new"), 1, &sum, NULL);
    case 3:
        return tcpstore_keys_compare_set(keys, text("/k"), text("old"), text("something longer"), &result,
                                         NULL);
    case 4:
        return tcpstore_keys_push(keys, text("/q"), text("an element"), NULL);
    case 5:
        WAIT(client, "/x");
        return wait_for(client, (const char *[]){ "/y", "/k", "/z", NULL }, &status), status;
    default:
        return tcpstore_keys_barrier(keys, text("/b"), 2, &client->waits, &waiting, NULL);
    }
}

Test(tcpstore_keys, a_full_store_changes_nothing_and_works_on)
{
    size_t full;

    set("/k", "old");
    full = tcpstore_keys_used_bytes(keys);
    for (int which = 0; which < 7; which++) {
        enum fsdp_status status = FSDP_ERR_NOMEM;
        int n_refused = 0;

        for (size_t room = 0; status != FSDP_OK; room++) {
            struct client client;
            size_t before;

            destroy();
            keys = tcpstore_keys_create(full + room, on_wake, NULL);
            client_init(&client);
            set("/k", "old");
            before = tcpstore_keys_used_bytes(keys);
            status = change(which, &client);
            if (status != FSDP_OK) {
                n_refused++;
                cr_assert_eq(status, FSDP_ERR_NOMEM);
                tcpstore_keys_forget(keys, &client.waits);
                cr_assert(value_is("/k", "old") && tcpstore_keys_count(keys) == 1 &&
                              tcpstore_keys_used_bytes(keys) == before && client.n_woken == 0,
                          "change %d with room for %zu", which, room);
            }
            tcpstore_keys_forget(keys, &client.waits);
        }
        cr_assert(n_refused > 0, "change %d was never refused", which);
    }
}

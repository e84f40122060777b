#include "agent/link/store.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    int n;
    void *clients[8];
    uint32_t tags[8];
    char value[16];
    struct store *forget_in; /* forget this client from within an answer */
    void *forget;
} seen;

static void on_answer(void *arg, void *client, uint32_t tag, const struct store_value *value)
{
    (void)arg;
    seen.clients[seen.n] = client;
    seen.tags[seen.n++] = tag;
    memcpy(seen.value, value->bytes, value->size_bytes);
    if (seen.forget_in != NULL)
        store_forget(seen.forget_in, seen.forget);
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

Test(store, a_value_comes_back_and_a_key_is_put_once)
{
    struct store *store = store_create();
    struct store_value value;

    cr_expect_eq(store_put(store, "k", "abc", 3, -1, on_answer, NULL, NULL), FSDP_OK);
    cr_expect_eq(store_get(store, "k", NULL, 1, &value, NULL), FSDP_OK);
    cr_expect(value.size_bytes == 3 && memcmp(value.bytes, "abc", 3) == 0 && value.fd == -1);
    cr_expect_eq(store_put(store, "k", "xyz", 3, -1, on_answer, NULL, NULL), FSDP_ERR_ARG);
    cr_expect_eq(store_get(store, "k", NULL, 1, &value, NULL), FSDP_OK);
    cr_expect(memcmp(value.bytes, "abc", 3) == 0, "the first value stands");
    store_destroy(store);
}

Test(store, an_empty_value_is_a_value)
{
    struct store *store = store_create();
    struct store_value value;

    cr_expect_eq(store_put(store, "k", NULL, 0, -1, on_answer, NULL, NULL), FSDP_OK);
    cr_expect_eq(store_get(store, "k", NULL, 1, &value, NULL), FSDP_OK);
    cr_expect_not_null(value.bytes);
    cr_expect_eq(value.size_bytes, 0);
    store_destroy(store);
}

Test(store, waiters_are_answered_in_order_and_only_theirs)
{
    struct store *store = store_create();
    struct store_value value;
    int a, b;

    store_get(store, "k", &a, 7, &value, NULL);
    cr_expect_null(value.bytes);
    store_get(store, "other", &a, 8, &value, NULL);
    store_get(store, "k", &b, 9, &value, NULL);
    store_put(store, "k", "v", 1, -1, on_answer, NULL, NULL);

    cr_expect_eq(seen.n, 2);
    cr_expect(seen.clients[0] == &a && seen.tags[0] == 7 && seen.clients[1] == &b && seen.tags[1] == 9);
    cr_expect_eq(store_n_waiters(store), 1);
    store_get(store, "k2", &b, 10, &value, NULL); /* the tail of the list is whole */
    store_put(store, "k2", "v", 1, -1, on_answer, NULL, NULL);
    cr_expect_eq(seen.n, 3);
    store_destroy(store);
}

Test(store, who_is_gone_is_not_answered_even_when_it_goes_meanwhile)
{
    struct store *store = store_create();
    struct store_value value;
    int a, b;

    store_get(store, "k", &a, 1, &value, NULL);
    store_get(store, "k", &b, 2, &value, NULL);
    store_get(store, "x", &b, 3, &value, NULL);
    store_forget(store, &a);
    seen.forget_in = store;
    seen.forget = &b;
    store_put(store, "k", "v", 1, -1, on_answer, NULL, NULL);

    cr_expect_eq(seen.n, 1);
    cr_expect(seen.clients[0] == &b);
    cr_expect_eq(store_n_waiters(store), 0, "b's other wait went with it");
    store_destroy(store);
}

Test(store, a_descriptor_is_closed_with_the_store_and_when_it_is_refused)
{
    struct store *store = store_create();
    int kept = open("/dev/null", O_RDONLY), refused = open("/dev/null", O_RDONLY);

    store_put(store, "k", "v", 1, kept, on_answer, NULL, NULL);
    store_put(store, "k", "v", 1, refused, on_answer, NULL, NULL);

    cr_expect(is_open(kept) && !is_open(refused));
    store_destroy(store);
    cr_expect_not(is_open(kept));
}

Test(store, limits_are_held)
{
    struct store *store = store_create();
    static char big[1 << 20];
    struct fsdp_err err = { 0 };
    struct store_value value;
    char key[32];
    int n = 0;

    for (; n < 1000; n++) {
        snprintf(key, sizeof key, "big%d", n);
        if (store_put(store, key, big, sizeof big, -1, on_answer, NULL, &err) != FSDP_OK)
            break;
    }
    cr_expect_eq(n, STORE_MAX_BYTES / (int)sizeof big);
    cr_expect_eq(err.status, FSDP_ERR_NOMEM);
    for (n = 0; n <= STORE_MAX_WAITERS; n++)
        if (store_get(store, "never", NULL, 0, &value, NULL) != FSDP_OK)
            break;
    cr_expect_eq(n, STORE_MAX_WAITERS);
    store_destroy(store);
    store_destroy(NULL);
}

Test(store, many_keys)
{
    struct store *store = store_create();
    struct store_value value;
    char key[32];
    int n = 0;

    for (; n <= STORE_MAX_KEYS; n++) {
        snprintf(key, sizeof key, "key%d", n);
        if (store_put(store, key, &n, sizeof n, -1, on_answer, NULL, NULL) != FSDP_OK)
            break;
    }
    cr_expect_eq(n, STORE_MAX_KEYS);
    cr_expect_eq(store_n_keys(store), STORE_MAX_KEYS);
    store_get(store, "key777", NULL, 0, &value, NULL);
    cr_expect_eq(*(const int *)value.bytes, 777);
    store_destroy(store);
}

#include "agent/link/store.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static struct {
    int n, n_all;
    void *clients[8];
    uint32_t tags[8];
    char value[16];
    struct store *forget_in; /* forget this client from within an answer */
    void *forget;
} seen;

static void on_answer(void *arg, void *client, uint32_t tag, const struct store_value *value)
{
    seen.n_all++;
    if (seen.n == 8)
        return;
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

enum { MAX_BYTES = 64 << 20 };

static struct store *store;
static struct store_value value;

static void make_store(void)
{
    store = store_create(MAX_BYTES);
}

static void destroy_store(void)
{
    store_destroy(store);
    store = NULL;
}

TestSuite(store, .init = make_store, .fini = destroy_store);

static enum fsdp_status put(const char *key, const void *bytes, size_t n, int fd, struct fsdp_err *err)
{
    return store_put(store, key, bytes, n, fd, on_answer, NULL, err);
}

static enum fsdp_status get(const char *key, void *client, uint32_t tag)
{
    return store_get(store, key, client, tag, &value, NULL, NULL);
}

Test(store, a_value_comes_back_and_a_key_is_put_once)
{
    cr_expect_eq(put("k", "abc", 3, -1, NULL), FSDP_OK);
    cr_expect_eq(get("k", NULL, 1), FSDP_OK);
    cr_expect(value.size_bytes == 3 && memcmp(value.bytes, "abc", 3) == 0 && value.fd == -1);
    cr_expect_eq(put("k", "xyz", 3, -1, NULL), FSDP_ERR_ARG);
    cr_expect_eq(get("k", NULL, 1), FSDP_OK);
    cr_expect(memcmp(value.bytes, "abc", 3) == 0, "the first value stands");
    cr_expect(put("empty", NULL, 0, -1, NULL) == FSDP_OK && get("empty", NULL, 1) == FSDP_OK);
    cr_expect(value.bytes != NULL && value.size_bytes == 0, "an empty value is a value");
}

Test(store, waiters_are_answered_in_order_and_only_theirs)
{
    int a, b;

    get("k", &a, 7);
    cr_expect_null(value.bytes);
    get("other", &a, 8);
    get("k", &b, 9);
    put("k", "v", 1, -1, NULL);

    cr_expect_eq(seen.n, 2);
    cr_expect(seen.clients[0] == &a && seen.tags[0] == 7 && seen.clients[1] == &b && seen.tags[1] == 9);
    get("k2", &b, 10); /* the tail of the list is whole */
    put("k2", "v", 1, -1, NULL);
    cr_expect_eq(seen.n, 3);
    put("other", "v", 1, -1, NULL);
    cr_expect_eq(seen.n, 4);
}

Test(store, who_is_gone_is_not_answered_even_when_it_goes_meanwhile)
{
    int a, b;

    get("k", &a, 1);
    get("k", &b, 2);
    get("x", &b, 3);
    store_forget(store, &a);
    seen.forget_in = store;
    seen.forget = &b;
    put("k", "v", 1, -1, NULL);

    cr_expect_eq(seen.n, 1);
    cr_expect(seen.clients[0] == &b);
    put("x", "v", 1, -1, NULL);
    cr_expect_eq(seen.n, 1, "b's other wait went with it");
}

Test(store, a_descriptor_is_closed_with_the_store_and_when_it_is_refused)
{
    int kept = open("/dev/null", O_RDONLY), refused = open("/dev/null", O_RDONLY);

    put("k", "v", 1, kept, NULL);
    put("k", "v", 1, refused, NULL);

    cr_expect(is_open(kept) && !is_open(refused));
    destroy_store();
    cr_expect_not(is_open(kept));
}

Test(store, the_first_who_asks_for_a_key_that_is_not_there_is_the_first_once)
{
    int a, b;
    bool first;

    store_get(store, "k", &a, 1, &value, &first, NULL);
    cr_expect(first);
    store_get(store, "k", &b, 2, &value, &first, NULL);
    cr_expect_not(first);
    store_forget(store, &a);
    store_forget(store, &b);
    store_get(store, "k", &a, 3, &value, &first, NULL);
    cr_expect_not(first, "also after all who had asked are gone");
    put("k", "v", 1, -1, NULL);
    store_get(store, "k", &b, 4, &value, &first, NULL);
    cr_expect(!first && value.bytes != NULL);
    cr_expect_eq(seen.n_all, 1);
}

/* Keys without a value, values and waits: whatever is taken until nothing more is, counts in bytes. */
Test(store, what_is_kept_is_limited_in_bytes)
{
    static char big[1 << 20];
    struct fsdp_err err = { 0 };
    char key[32];
    int n = 0;

    for (; n < 1000; n++) {
        snprintf(key, sizeof key, "big%d", n);
        if (put(key, big, sizeof big, -1, &err) != FSDP_OK)
            break;
    }
    cr_expect_eq(n, MAX_BYTES / (int)sizeof big - 1, "keys take some bytes too");
    cr_expect_eq(err.status, FSDP_ERR_NOMEM);
    for (n = 0; n <= MAX_BYTES; n++)
        if (get("never", NULL, 0) != FSDP_OK)
            break;
    cr_expect(n > 1000 && n < (int)sizeof big, "%d waits", n);
    cr_expect_eq(put("late", NULL, 0, -1, NULL), FSDP_ERR_NOMEM);
    store_forget(store, NULL);
    cr_expect_eq(put("late", NULL, 0, -1, NULL), FSDP_OK, "the waits are gone, and so are their bytes");
}

/*
 * Each put answers its own waits, which are not looked for among the others: that would take 10^10 looks, and
 * longer than the time-out.
 */
Test(store, a_hundred_thousand_keys_are_put_and_waited_for, .timeout = 120)
{
    enum { N = 100000 };
    char key[32];

    for (int i = 0; i < N; i++) {
        snprintf(key, sizeof key, "key%d", i);
        cr_assert_eq(get(key, NULL, 0), FSDP_OK, "%d", i);
    }
    for (int i = N - 1; i >= 0; i--) {
        snprintf(key, sizeof key, "key%d", i);
        cr_assert_eq(put(key, &i, sizeof i, -1, NULL), FSDP_OK, "%d", i);
    }
    cr_expect_eq(seen.n_all, N);
    get("key777", NULL, 0);
    cr_expect_eq(*(const int *)value.bytes, 777);
}

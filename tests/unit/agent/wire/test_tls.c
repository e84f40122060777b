#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "agent/wire/tls.h"

struct pair {
    struct tls *client, *server;
};

static struct pair make_pair(const char *client_secret, const char *server_secret, const char *client_job)
{
    unsigned char client_key[TLS_KEY_BYTES], server_key[TLS_KEY_BYTES];
    struct tls_context *client, *server;
    struct pair pair;

    cr_assert(
        eq(int, tls_derive_key(client_key, client_secret, strlen(client_secret), client_job, NULL), FSDP_OK));
    cr_assert(
        eq(int, tls_derive_key(server_key, server_secret, strlen(server_secret), "job", NULL), FSDP_OK));
    cr_assert(eq(int, tls_context_create(&client, false, client_key, NULL), FSDP_OK));
    cr_assert(eq(int, tls_context_create(&server, true, server_key, NULL), FSDP_OK));
    cr_assert(eq(int, tls_create(&pair.client, client, NULL), FSDP_OK));
    cr_assert(eq(int, tls_create(&pair.server, server, NULL), FSDP_OK));
    tls_context_destroy(client); /* what was made with it goes on */
    tls_context_destroy(server);
    return pair;
}

static void free_pair(struct pair *pair)
{
    tls_destroy(pair->client);
    tls_destroy(pair->server);
}

/* Move everything that is waiting from one end to the other in pieces of `piece` bytes. */
static enum fsdp_status carry(struct tls *from, struct tls *to, size_t piece, struct fsdp_err *err)
{
    unsigned char bytes[4096];
    enum fsdp_status status = FSDP_OK;
    size_t n;

    while (status == FSDP_OK && (n = tls_take(from, bytes, piece < sizeof bytes ? piece : sizeof bytes)) > 0)
        status = tls_feed(to, bytes, n, err);
    return status;
}

static enum fsdp_status shake(struct pair *pair, size_t piece, struct fsdp_err *err)
{
    enum fsdp_status status = tls_start(pair->client, err);

    for (int round = 0; round < 4 && status == FSDP_OK; round++) {
        status = carry(pair->client, pair->server, piece, err);
        if (status == FSDP_OK)
            status = carry(pair->server, pair->client, piece, err);
    }
    return status;
}

Test(tls, same_secret_talks_both_ways_at_any_fragmentation)
{
    const size_t pieces[] = { 1, 7, 100, 4096 };

    for (size_t i = 0; i < 4; i++) {
        struct pair pair = make_pair("a secret of the job", "a secret of the job", "job");
        char text[64];
        size_t n = 0;

        cr_assert(eq(int, shake(&pair, pieces[i], NULL), FSDP_OK));
        cr_assert(tls_established(pair.client) && tls_established(pair.server));
        cr_assert(eq(int, tls_write(pair.client, "ping", 5, NULL), FSDP_OK));
        cr_assert(eq(int, carry(pair.client, pair.server, pieces[i], NULL), FSDP_OK));
        cr_assert(eq(int, tls_read(pair.server, text, sizeof text, &n, NULL), FSDP_OK));
        cr_assert(eq(str, text, "ping"));
        cr_assert(eq(int, tls_write(pair.server, "pong", 5, NULL), FSDP_OK));
        cr_assert(eq(int, carry(pair.server, pair.client, pieces[i], NULL), FSDP_OK));
        cr_assert(eq(int, tls_read(pair.client, text, sizeof text, &n, NULL), FSDP_OK));
        cr_assert(eq(str, text, "pong"));
        free_pair(&pair);
    }
}

/* The extension of `type` in a server hello of `size` bytes (RFC 8446, 4.1.3), or NULL. */
static const unsigned char *extension(const unsigned char *hello, size_t size, unsigned type)
{
    size_t at = 4 + 2 + 32 + 1 + hello[38] + 3; /* head, version, random, session id, suite and compression */

    for (at += 2; at + 4 <= size; at += 4 + (size_t)(hello[at + 2] << 8 | hello[at + 3]))
        if ((unsigned)(hello[at] << 8 | hello[at + 1]) == type)
            return hello + at + 4;
    return NULL;
}

Test(tls, the_handshake_is_tls_1_3_with_x25519_and_aes_128_gcm)
{
    struct pair pair = make_pair("a secret of the job", "a secret of the job", "job");
    const unsigned char *hello, *version, *share;
    unsigned char record[4096];
    size_t n, size;

    cr_assert(eq(int, tls_start(pair.client, NULL), FSDP_OK));
    cr_assert(eq(int, carry(pair.client, pair.server, 4096, NULL), FSDP_OK));
    n = tls_take(pair.server, record, sizeof record);
    cr_assert(n > 60 && record[0] == 22 && record[5] == 2, "no server hello first");
    hello = record + 5;
    size = (size_t)(record[3] << 8 | record[4]);
    cr_assert(size <= n - 5);

    cr_expect(memcmp(hello + 39 + hello[38], (unsigned char[]){ 0x13, 0x01 }, 2) == 0, "the cipher suite");
    version = extension(hello, size, 43);
    cr_expect(version != NULL && memcmp(version, (unsigned char[]){ 3, 4 }, 2) == 0, "TLS 1.3");
    share = extension(hello, size, 51);
    cr_expect(share != NULL && memcmp(share, (unsigned char[]){ 0, 29 }, 2) == 0, "X25519");
    cr_expect_not_null(extension(hello, size, 41), "the key is used");
    free_pair(&pair);
}

Test(tls, a_wrong_secret_never_establishes)
{
    struct pair pair = make_pair("one secret", "another secret", "job");
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, shake(&pair, 4096, &err), FSDP_ERR_MISMATCH));
    cr_assert(not(tls_established(pair.server)));
    free_pair(&pair);
}

Test(tls, the_same_secret_for_another_job_never_establishes)
{
    struct pair pair = make_pair("one secret", "one secret", "another job");
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, shake(&pair, 4096, &err), FSDP_ERR_MISMATCH));
    cr_assert(not(tls_established(pair.server)));
    free_pair(&pair);
}

Test(tls, a_changed_record_is_refused)
{
    struct pair pair = make_pair("a secret", "a secret", "job");
    unsigned char bytes[256];
    size_t n;
    char text[64];

    cr_assert(eq(int, shake(&pair, 4096, NULL), FSDP_OK));
    cr_assert(eq(int, tls_write(pair.client, "ping", 5, NULL), FSDP_OK));
    n = tls_take(pair.client, bytes, sizeof bytes);
    bytes[n - 1] ^= 1;
    cr_assert(eq(int, tls_feed(pair.server, bytes, n, NULL), FSDP_OK));

    cr_assert(eq(int, tls_read(pair.server, text, sizeof text, &n, NULL), FSDP_ERR_MISMATCH));
    free_pair(&pair);
}

Test(tls, a_recorded_conversation_is_worth_nothing_to_a_new_server)
{
    struct pair pair = make_pair("a secret", "a secret", "job");
    struct pair later = make_pair("a secret", "a secret", "job");
    unsigned char record[8192], bytes[4096];
    size_t length = 0, n;
    enum fsdp_status status = FSDP_OK;

    /* Record all that the client sends: hello, finished, one message. */
    cr_assert(eq(int, tls_start(pair.client, NULL), FSDP_OK));
    for (int round = 0; round < 3; round++) {
        while ((n = tls_take(pair.client, bytes, sizeof bytes)) > 0) {
            memcpy(record + length, bytes, n);
            length += n;
            tls_feed(pair.server, bytes, n, NULL);
        }
        carry(pair.server, pair.client, 4096, NULL);
        if (round == 1)
            cr_assert(eq(int, tls_write(pair.client, "stop the job", 13, NULL), FSDP_OK));
    }
    cr_assert(tls_established(pair.server));

    status = tls_feed(later.server, record, length, NULL);

    cr_assert(not(tls_established(later.server)));
    cr_assert(ne(int, status, FSDP_OK));
    free_pair(&pair);
    free_pair(&later);
}

Test(tls, garbage_is_refused)
{
    struct pair pair = make_pair("a secret", "a secret", "job");

    cr_assert(eq(int, tls_feed(pair.server, "GET / HTTP/1.1\r\n\r\n", 18, NULL), FSDP_ERR_MISMATCH));
    free_pair(&pair);
}

Test(tls, writing_before_the_handshake_is_refused)
{
    struct pair pair = make_pair("a secret", "a secret", "job");

    cr_assert(eq(int, tls_write(pair.client, "x", 1, NULL), FSDP_ERR_ARG));
    free_pair(&pair);
}

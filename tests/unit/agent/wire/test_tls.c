#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "agent/wire/tls.h"

static const unsigned char own[TLS_IDENTITY_BYTES] = "an agent's name";
static const unsigned char *identity = own; /* of the client */

static struct pair {
    struct tls *client, *server;
} pair;

static struct tls *make_end(bool is_server, const char *secret, const char *job)
{
    unsigned char key[TLS_KEY_BYTES];
    struct tls_context *context;
    struct tls *end;

    cr_assert(eq(int, tls_derive_key(key, secret, strlen(secret), job, NULL), FSDP_OK));
    cr_assert(eq(int, tls_context_create(&context, is_server, key, NULL), FSDP_OK));
    cr_assert(eq(int, tls_create(&end, context, is_server ? NULL : identity, NULL), FSDP_OK));
    tls_context_destroy(context); /* what was made with it goes on */
    return end;
}

static void free_pair(void)
{
    tls_destroy(pair.client);
    tls_destroy(pair.server);
}

static void make_pair(const char *client_secret, const char *client_job)
{
    free_pair();
    pair.client = make_end(false, client_secret, client_job);
    pair.server = make_end(true, "a secret", "job");
}

TestSuite(tls, .fini = free_pair);

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

static enum fsdp_status shake(size_t piece, struct fsdp_err *err)
{
    enum fsdp_status status = tls_start(pair.client, err);

    for (int round = 0; round < 4 && status == FSDP_OK; round++) {
        status = carry(pair.client, pair.server, piece, err);
        if (status == FSDP_OK)
            status = carry(pair.server, pair.client, piece, err);
    }
    return status;
}

/* `from` writes these words, and `to` reads them. */
static void says(struct tls *from, struct tls *to, const char *words, size_t piece)
{
    char text[64];
    size_t n = 0;

    cr_assert(eq(int, tls_write(from, words, strlen(words) + 1, NULL), FSDP_OK));
    cr_assert(eq(int, carry(from, to, piece, NULL), FSDP_OK));
    cr_assert(eq(int, tls_read(to, text, sizeof text, &n, NULL), FSDP_OK));
    cr_assert(eq(str, text, (char *)words));
    cr_assert(eq(sz, tls_incoming(to), 0));
}

Test(tls, same_secret_talks_both_ways_at_any_fragmentation)
{
    const size_t pieces[] = { 1, 7, 100, 4096 };

    for (size_t i = 0; i < 4; i++) {
        make_pair("a secret", "job");
        cr_assert(eq(int, shake(pieces[i], NULL), FSDP_OK));
        cr_assert(tls_established(pair.client) && tls_established(pair.server));
        says(pair.client, pair.server, "ping", pieces[i]);
        says(pair.server, pair.client, "pong", pieces[i]);
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
    const unsigned char *hello, *version, *share;
    unsigned char record[4096];
    size_t n, size;

    make_pair("a secret", "job");
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
}

Test(tls, the_handshake_proves_the_identity_of_the_client)
{
    make_pair("a secret", "job");
    cr_assert(eq(int, shake(4096, NULL), FSDP_OK));
    cr_assert(memcmp(tls_identity(pair.server), own, sizeof own) == 0);
}

/* It is let in so far that its version can be compared. */
Test(tls, a_client_of_an_earlier_version_proves_no_identity)
{
    identity = NULL;
    make_pair("a secret", "job");
    cr_assert(eq(int, shake(4096, NULL), FSDP_OK));
    cr_assert(tls_identity(pair.server) == NULL);
    says(pair.client, pair.server, "ping", 4096);
}

/* The name of the key is in the client's first bytes. With another one in its place, the binder is wrong. */
Test(tls, an_identity_that_is_changed_on_the_way_is_not_proven)
{
    unsigned char bytes[4096];
    size_t n, at = 0;

    make_pair("a secret", "job");
    cr_assert(eq(int, tls_start(pair.client, NULL), FSDP_OK));
    n = tls_take(pair.client, bytes, sizeof bytes);
    while (at + sizeof own <= n && memcmp(bytes + at, own, sizeof own) != 0)
        at++;
    cr_assert(at + sizeof own <= n);
    bytes[at] ^= 1;
    cr_assert(eq(int, tls_feed(pair.server, bytes, n, NULL), FSDP_ERR_MISMATCH));
    cr_assert(not(tls_established(pair.server)));
}

Test(tls, another_secret_or_the_same_for_another_job_never_establishes)
{
    static const char *const clients[][2] = { { "another secret", "job" }, { "a secret", "another job" } };

    for (int i = 0; i < 2; i++) {
        make_pair(clients[i][0], clients[i][1]);
        cr_assert(eq(int, shake(4096, NULL), FSDP_ERR_MISMATCH));
        cr_assert(not(tls_established(pair.server)));
    }
}

Test(tls, a_changed_record_is_refused)
{
    unsigned char bytes[256];
    size_t n;
    char text[64];

    make_pair("a secret", "job");
    cr_assert(eq(int, shake(4096, NULL), FSDP_OK));
    cr_assert(eq(int, tls_write(pair.client, "ping", 5, NULL), FSDP_OK));
    n = tls_take(pair.client, bytes, sizeof bytes);
    bytes[n - 1] ^= 1;
    cr_assert(eq(int, tls_feed(pair.server, bytes, n, NULL), FSDP_OK));

    cr_assert(eq(int, tls_read(pair.server, text, sizeof text, &n, NULL), FSDP_ERR_MISMATCH));
}

Test(tls, a_recorded_conversation_is_worth_nothing_to_a_new_server)
{
    struct tls *later = make_end(true, "a secret", "job");
    unsigned char record[8192], bytes[4096];
    size_t length = 0, n;

    make_pair("a secret", "job");
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

    cr_assert(ne(int, tls_feed(later, record, length, NULL), FSDP_OK));
    cr_assert(not(tls_established(later)));
    tls_destroy(later);
}

Test(tls, what_waits_to_be_read_is_known)
{
    char text[64];
    size_t n = 0;

    make_pair("a secret", "job");
    cr_assert(eq(int, shake(4096, NULL), FSDP_OK));
    for (int i = 0; i < 2; i++)
        cr_assert(eq(int, tls_write(pair.client, "ping", 5, NULL), FSDP_OK));
    cr_assert(eq(int, carry(pair.client, pair.server, 4096, NULL), FSDP_OK));

    for (int left = 1; left >= 0; left--) {
        cr_assert(gt(sz, tls_incoming(pair.server), 0));
        cr_assert(eq(int, tls_read(pair.server, text, sizeof text, &n, NULL), FSDP_OK));
        cr_assert(eq(sz, n, 5));
        cr_assert(eq(int, tls_incoming(pair.server) > 0, left));
    }
}

Test(tls, writing_before_the_handshake_is_refused)
{
    make_pair("a secret", "job");
    cr_assert(eq(int, tls_write(pair.client, "x", 1, NULL), FSDP_ERR_ARG));
}

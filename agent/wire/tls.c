#include "agent/wire/tls.h"

#include <openssl/core_names.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "agent/wire/tls_library.h"
#include "shard_runtime/core/require.h"

/*
 * The library; set by the first call of tls_derive_key() or tls_context_create(). Every function that takes a
 * context can rely on it.
 */
static const struct tls_library *openssl;

/*
 * The name of the key in the handshake is this text, followed by the client's identity. A client of an
 * earlier version sends this text only; its key is the job's. It is let in, just so far that it can be told
 * which version this is.
 */
static const char name[] = "fsdprun";
enum { NAME_BYTES = sizeof name - 1, FULL_NAME_BYTES = NAME_BYTES + TLS_IDENTITY_BYTES };

static const unsigned char suite_id[] = { 0x13, 0x01 }; /* TLS_AES_128_GCM_SHA256 */

struct tls_context {
    SSL_CTX *shared;
    bool server;
    unsigned char key[TLS_KEY_BYTES];
};

struct tls_mac_key {
    EVP_MAC_CTX *context; /* has the key, and its first block is hashed already */
};

struct tls {
    SSL *ssl;                 /* holds a reference to the context's SSL_CTX */
    BIO *incoming, *outgoing; /* owned by ssl */
    /* on a server: the job's key, until the client has named its identity */
    unsigned char key[TLS_KEY_BYTES];
    unsigned char name[FULL_NAME_BYTES];
    bool named; /* its name has an identity */
};

static enum fsdp_status fail_openssl(struct fsdp_err *err, enum fsdp_status status, const char *what)
{
    const unsigned long code = openssl->ERR_get_error();
    char words[160] = "no details";

    if (code != 0)
        openssl->ERR_error_string_n(code, words, sizeof words);
    openssl->ERR_clear_error();
    return fsdp_fail(err, status, "%s: %s", what, words);
}

/*
 * Once found, the library stays open: the threads that answer pulses use it while the loop derives another
 * key.
 */
static enum fsdp_status open_library(struct fsdp_err *err)
{
    return openssl != NULL ? FSDP_OK : tls_library_open(&openssl, err);
}

/* HKDF-SHA256 (RFC 5869). `out` may be `secret`. */
static enum fsdp_status derive(unsigned char out[TLS_KEY_BYTES], const void *secret, size_t secret_bytes,
                               const char *salt, const void *info, size_t info_bytes, struct fsdp_err *err)
{
    const OSSL_PARAM params[] = {
        OSSL_PARAM_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)(uintptr_t) "SHA256", sizeof "SHA256" - 1),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_KEY, (void *)(uintptr_t)secret, secret_bytes),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_SALT, (void *)(uintptr_t)salt, strlen(salt)),
        OSSL_PARAM_octet_string(OSSL_KDF_PARAM_INFO, (void *)(uintptr_t)info, info_bytes),
        OSSL_PARAM_END,
    };
    enum fsdp_status status = FSDP_OK;
    EVP_KDF_CTX *context;
    EVP_KDF *kdf;

    kdf = openssl->EVP_KDF_fetch(NULL, "HKDF", NULL);
    context = kdf == NULL ? NULL : openssl->EVP_KDF_CTX_new(kdf);
    if (context == NULL || openssl->EVP_KDF_derive(context, out, TLS_KEY_BYTES, params) != 1)
        status = fail_openssl(err, FSDP_ERR_UNSUPPORTED, "HKDF-SHA256");
    openssl->EVP_KDF_CTX_free(context);
    openssl->EVP_KDF_free(kdf);
    return status;
}

enum fsdp_status tls_derive_key(unsigned char key[TLS_KEY_BYTES], const void *secret, size_t secret_bytes,
                                const char *job_id, struct fsdp_err *err)
{
    OK_OR_RETURN(open_library(err));
    return derive(key, secret, secret_bytes, "fsdprun agent to agent, version 1", job_id, strlen(job_id),
                  err);
}

enum fsdp_status tls_derive_other(unsigned char out[TLS_KEY_BYTES], const unsigned char key[TLS_KEY_BYTES],
                                  const char *purpose, struct fsdp_err *err)
{
    OK_OR_RETURN(open_library(err));
    return derive(out, key, TLS_KEY_BYTES, "fsdprun messages, version 1", purpose, strlen(purpose), err);
}

struct tls_mac_key *tls_mac_key_create(const unsigned char key[TLS_KEY_BYTES])
{
    const OSSL_PARAM params[] = {
        OSSL_PARAM_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)(uintptr_t) "SHA256", sizeof "SHA256" - 1),
        OSSL_PARAM_END,
    };
    struct tls_mac_key *out = calloc(1, sizeof *out);
    EVP_MAC *hmac;

    if (out == NULL || open_library(NULL) != FSDP_OK) {
        free(out);
        return NULL;
    }
    hmac = openssl->EVP_MAC_fetch(NULL, "HMAC", NULL);
    out->context = hmac == NULL ? NULL : openssl->EVP_MAC_CTX_new(hmac);
    openssl->EVP_MAC_free(hmac); /* the context has a reference */
    if (out->context != NULL && openssl->EVP_MAC_init(out->context, key, TLS_KEY_BYTES, params) == 1)
        return out;
    openssl->ERR_clear_error();
    tls_mac_key_destroy(out);
    return NULL;
}

void tls_mac_key_destroy(struct tls_mac_key *key)
{
    if (key == NULL)
        return;
    openssl->EVP_MAC_CTX_free(key->context);
    free(key);
}

bool tls_mac(unsigned char mac[TLS_MAC_BYTES], struct tls_mac_key *key, const void *message, size_t n_bytes)
{
    unsigned char whole[EVP_MAX_MD_SIZE];
    size_t length;

    /* without a key, init() begins another message with the same one */
    if (openssl->EVP_MAC_init(key->context, NULL, 0, NULL) != 1 ||
        openssl->EVP_MAC_update(key->context, message, n_bytes) != 1 ||
        openssl->EVP_MAC_final(key->context, whole, &length, sizeof whole) != 1) {
        openssl->ERR_clear_error();
        return false;
    }
    memcpy(mac, whole, TLS_MAC_BYTES);
    return true;
}

bool tls_mac_is(const unsigned char mac[TLS_MAC_BYTES], const unsigned char other[TLS_MAC_BYTES])
{
    unsigned char differs = 0;

    for (int i = 0; i < TLS_MAC_BYTES; i++)
        differs |= mac[i] ^ other[i];
    return differs == 0;
}

/* Derives the key of the connection from the job's key and this identity. */
static enum fsdp_status take_identity(struct tls *tls, const unsigned char *identity, struct fsdp_err *err)
{
    memcpy(tls->name + NAME_BYTES, identity, TLS_IDENTITY_BYTES);
    tls->named = true;
    return derive(tls->key, tls->key, sizeof tls->key, "fsdprun agent, version 1", identity,
                  TLS_IDENTITY_BYTES, err);
}

/* Returns the pre-shared key in the form that OpenSSL takes: a session that was never negotiated. */
static SSL_SESSION *make_session(SSL *ssl)
{
    const struct tls *tls = openssl->SSL_get_ex_data(ssl, 0);
    const SSL_CIPHER *cipher = openssl->SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *session = openssl->SSL_SESSION_new();

    if (session == NULL || cipher == NULL ||
        openssl->SSL_SESSION_set1_master_key(session, tls->key, TLS_KEY_BYTES) != 1 ||
        openssl->SSL_SESSION_set_cipher(session, cipher) != 1 ||
        openssl->SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        openssl->SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

static int use_key(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes,
                   SSL_SESSION **session)
{
    const struct tls *tls = openssl->SSL_get_ex_data(ssl, 0);

    (void)digest; /* there is only one suite, and its digest is SHA-256 */
    *session = make_session(ssl);
    *id = tls->name;
    *id_bytes = tls->named ? FULL_NAME_BYTES : NAME_BYTES;
    return *session != NULL;
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    struct tls *tls = openssl->SSL_get_ex_data(ssl, 0);

    *session = NULL;
    if ((id_bytes != NAME_BYTES && id_bytes != FULL_NAME_BYTES) || memcmp(id, name, NAME_BYTES) != 0 ||
        tls->named)
        /* an unknown key: the handshake goes on without it, and fails because there is no certificate */
        return 1;
    if (id_bytes == FULL_NAME_BYTES && take_identity(tls, id + NAME_BYTES, NULL) != FSDP_OK)
        return 0;
    *session = make_session(ssl);
    return *session != NULL;
}

static SSL_CTX *make_shared(bool server)
{
    SSL_CTX *context =
        openssl->SSL_CTX_new(server ? openssl->TLS_server_method() : openssl->TLS_client_method());

    if (context == NULL)
        return NULL;
    if (openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_MIN_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_MAX_PROTO_VERSION, TLS1_3_VERSION, NULL) != 1 ||
        openssl->SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 ||
        openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_GROUPS_LIST, 0, (char *)(uintptr_t) "X25519") != 1 ||
        openssl->SSL_CTX_set_num_tickets(context, 0) != 1) {
        openssl->SSL_CTX_free(context);
        return NULL;
    }
    openssl->SSL_CTX_ctrl(context, SSL_CTRL_SET_SESS_CACHE_MODE, SSL_SESS_CACHE_OFF, NULL);
    /*
     * Frees the buffers, 16 KiB in each direction, between two records, because a coordinator has thousands
     * of connections.
     */
    openssl->SSL_CTX_ctrl(context, SSL_CTRL_MODE, SSL_MODE_RELEASE_BUFFERS, NULL);
    /* Only psk_dhe_ke is allowed: every handshake has fresh Diffie-Hellman shares. */
    openssl->SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX);
    if (server) {
        openssl->SSL_CTX_set_psk_find_session_callback(context,
                                                       /*
                                                        * no certificate is set, so the pre-shared key is the
                                                        * only way to connect
                                                        */
                                                       find_key);
    } else {
        openssl->SSL_CTX_set_psk_use_session_callback(context, use_key);
        openssl->SSL_CTX_set_verify(context, SSL_VERIFY_PEER,
                                    /* the client accepts no certificate that a server might send instead */
                                    NULL);
    }
    return context;
}

enum fsdp_status tls_context_create(struct tls_context **out, bool server,
                                    const unsigned char key[TLS_KEY_BYTES], struct fsdp_err *err)
{
    enum fsdp_status status = open_library(err);
    struct tls_context *context;

    *out = NULL;
    if (status != FSDP_OK)
        return status;
    context = calloc(1, sizeof *context);
    if (context == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for TLS");
    openssl->ERR_clear_error();
    context->server = server;
    memcpy(context->key, key, TLS_KEY_BYTES);
    context->shared = make_shared(server);
    if (context->shared == NULL) {
        status = fail_openssl(err, FSDP_ERR_NOMEM, "TLS");
        tls_context_destroy(context);
        return status;
    }
    *out = context;
    return FSDP_OK;
}

void tls_context_destroy(struct tls_context *context)
{
    if (context == NULL)
        return;
    openssl->SSL_CTX_free(context->shared);
    openssl->OPENSSL_cleanse(context->key, sizeof context->key);
    free(context);
}

enum fsdp_status tls_create(struct tls **out, const struct tls_context *context,
                            const unsigned char *identity, struct fsdp_err *err)
{
    enum fsdp_status status;
    BIO *incoming = NULL, *outgoing = NULL;
    struct tls *tls;

    *out = NULL;
    openssl->ERR_clear_error();
    tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a TLS connection");
    memcpy(tls->key, context->key, TLS_KEY_BYTES);
    memcpy(tls->name, name, NAME_BYTES);
    status = context->server || identity == NULL ? FSDP_OK : take_identity(tls, identity, err);
    if (status != FSDP_OK)
        goto done;
    tls->ssl = openssl->SSL_new(context->shared);
    incoming = openssl->BIO_new(openssl->BIO_s_mem());
    outgoing = openssl->BIO_new(openssl->BIO_s_mem());
    if (tls->ssl == NULL || incoming == NULL || outgoing == NULL) {
        status = fail_openssl(err, FSDP_ERR_NOMEM, "TLS");
        goto done;
    }
    openssl->SSL_set_ex_data(tls->ssl, 0, tls);
    openssl->SSL_set_bio(tls->ssl, incoming, outgoing);
    tls->incoming = incoming;
    tls->outgoing = outgoing;
    incoming = outgoing = NULL; /* the SSL owns them now */
    if (context->server)
        openssl->SSL_set_accept_state(tls->ssl);
    else
        openssl->SSL_set_connect_state(tls->ssl);
    *out = tls;
    tls = NULL;
    status = FSDP_OK;
done:
    openssl->BIO_free(incoming);
    openssl->BIO_free(outgoing);
    tls_destroy(tls);
    return status;
}

void tls_destroy(struct tls *tls)
{
    if (tls == NULL)
        return;
    openssl->SSL_free(tls->ssl);
    openssl->OPENSSL_cleanse(tls->key, sizeof tls->key);
    free(tls);
}

bool tls_established(const struct tls *tls)
{
    return openssl->SSL_is_init_finished(tls->ssl) != 0;
}

const unsigned char *tls_identity(const struct tls *tls)
{
    return tls->named ? tls->name + NAME_BYTES : NULL;
}

/* Converts the result of an SSL call to a status. A need for more input is not an error. */
static enum fsdp_status judge(struct tls *tls, int result, const char *what, struct fsdp_err *err)
{
    switch (openssl->SSL_get_error(tls->ssl, result)) {
    case SSL_ERROR_NONE:
    case SSL_ERROR_WANT_READ:
    case SSL_ERROR_WANT_WRITE:
        return FSDP_OK;
    case SSL_ERROR_ZERO_RETURN:
        return fsdp_fail(err, FSDP_ERR_PEER, "the other side closed the connection");
    default:
        return fail_openssl(err, FSDP_ERR_MISMATCH, what);
    }
}

enum fsdp_status tls_start(struct tls *tls, struct fsdp_err *err)
{
    if (tls_established(tls))
        return FSDP_OK;
    openssl->ERR_clear_error();
    return judge(
        tls, openssl->SSL_do_handshake(tls->ssl),
        "TLS handshake (are the secret, --rdzv-id and the version of fsdprun the same on every node?)", err);
}

enum fsdp_status tls_feed(struct tls *tls, const void *ciphertext, size_t n_bytes, struct fsdp_err *err)
{
    size_t written;

    if (n_bytes > 0 &&
        (openssl->BIO_write_ex(tls->incoming, ciphertext, n_bytes, &written) != 1 || written != n_bytes))
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %zu received bytes", n_bytes);
    return tls_start(tls, err);
}

enum fsdp_status tls_read(struct tls *tls, void *plaintext, size_t capacity, size_t *n_bytes,
                          struct fsdp_err *err)
{
    int result;

    *n_bytes = 0;
    if (!tls_established(tls))
        return FSDP_OK;
    openssl->ERR_clear_error();
    result = openssl->SSL_read_ex(tls->ssl, plaintext, capacity, n_bytes);
    if (result == 1)
        return FSDP_OK;
    *n_bytes = 0;
    return judge(tls, result, "TLS record", err);
}

enum fsdp_status tls_write(struct tls *tls, const void *plaintext, size_t n_bytes, struct fsdp_err *err)
{
    size_t written = 0;

    if (!tls_established(tls))
        return fsdp_fail(err, FSDP_ERR_ARG, "TLS handshake is not done");
    if (n_bytes == 0)
        return FSDP_OK;
    openssl->ERR_clear_error();
    if (openssl->SSL_write_ex(tls->ssl, plaintext, n_bytes, &written) != 1 || written != n_bytes)
        return fail_openssl(err, FSDP_ERR_PEER, "TLS write");
    return FSDP_OK;
}

size_t tls_incoming(const struct tls *tls)
{
    return openssl->BIO_ctrl_pending(tls->incoming);
}

size_t tls_take(struct tls *tls, void *ciphertext, size_t capacity)
{
    size_t taken = 0;

    if (capacity == 0 || openssl->BIO_read_ex(tls->outgoing, ciphertext, capacity, &taken) != 1)
        return 0;
    return taken;
}

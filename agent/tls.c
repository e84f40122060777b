#include "agent/tls.h"

#include <openssl/core_names.h>
#include <openssl/err.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>
#include <stdlib.h>
#include <string.h>

/* The identity says nothing: which key it is follows from the endpoint. It must be the same on both sides. */
static const unsigned char identity[] = "fsdprun";
static const unsigned char suite_id[] = { 0x13, 0x01 }; /* TLS_AES_128_GCM_SHA256 */

struct tls {
    SSL_CTX *context;
    SSL *ssl;
    BIO *incoming, *outgoing; /* owned by ssl */
    unsigned char key[TLS_KEY_BYTES];
};

static enum fsdp_status fail_openssl(struct fsdp_err *err, enum fsdp_status status, const char *what)
{
    const unsigned long code = ERR_get_error();
    char words[160] = "no details";

    if (code != 0)
        ERR_error_string_n(code, words, sizeof words);
    ERR_clear_error();
    return fsdp_fail(err, status, "%s: %s", what, words);
}

enum fsdp_status tls_derive_key(unsigned char key[TLS_KEY_BYTES], const void *secret, size_t secret_bytes,
                                const char *job_id, struct fsdp_err *err)
{
    static const char salt[] = "fsdprun agent to agent, version 1";
    EVP_KDF *kdf = EVP_KDF_fetch(NULL, "HKDF", NULL);
    EVP_KDF_CTX *context = kdf == NULL ? NULL : EVP_KDF_CTX_new(kdf);
    enum fsdp_status status = FSDP_OK;
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, (void *)secret, secret_bytes),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_SALT, (void *)salt, sizeof salt - 1),
        OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, (void *)job_id, strlen(job_id)),
        OSSL_PARAM_construct_end(),
    };

    if (context == NULL || EVP_KDF_derive(context, key, TLS_KEY_BYTES, params) != 1)
        status = fail_openssl(err, FSDP_ERR_UNSUPPORTED, "HKDF-SHA256");
    EVP_KDF_CTX_free(context);
    EVP_KDF_free(kdf);
    return status;
}

/* The pre-shared key as OpenSSL wants it: a session that was never negotiated. */
static SSL_SESSION *make_session(SSL *ssl)
{
    const struct tls *tls = SSL_get_app_data(ssl);
    const SSL_CIPHER *cipher = SSL_CIPHER_find(ssl, suite_id);
    SSL_SESSION *session = SSL_SESSION_new();

    if (session == NULL || cipher == NULL ||
        SSL_SESSION_set1_master_key(session, tls->key, TLS_KEY_BYTES) != 1 ||
        SSL_SESSION_set_cipher(session, cipher) != 1 ||
        SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) != 1) {
        SSL_SESSION_free(session);
        return NULL;
    }
    return session;
}

static int use_key(SSL *ssl, const EVP_MD *digest, const unsigned char **id, size_t *id_bytes,
                   SSL_SESSION **session)
{
    (void)digest; /* one suite only: it is SHA-256 */
    *session = make_session(ssl);
    *id = identity;
    *id_bytes = sizeof identity - 1;
    return *session != NULL;
}

static int find_key(SSL *ssl, const unsigned char *id, size_t id_bytes, SSL_SESSION **session)
{
    *session = NULL;
    if (id_bytes != sizeof identity - 1 || memcmp(id, identity, id_bytes) != 0)
        return 1; /* no such key: the handshake goes on without one and fails for want of a certificate */
    *session = make_session(ssl);
    return *session != NULL;
}

static SSL_CTX *make_context(bool server)
{
    SSL_CTX *context = SSL_CTX_new(server ? TLS_server_method() : TLS_client_method());

    if (context == NULL)
        return NULL;
    if (SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_max_proto_version(context, TLS1_3_VERSION) != 1 ||
        SSL_CTX_set_ciphersuites(context, "TLS_AES_128_GCM_SHA256") != 1 ||
        SSL_CTX_set1_groups_list(context, "X25519") != 1 || SSL_CTX_set_num_tickets(context, 0) != 1) {
        SSL_CTX_free(context);
        return NULL;
    }
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    /* psk_dhe_ke alone: never a handshake without fresh Diffie-Hellman shares. */
    SSL_CTX_clear_options(context, SSL_OP_ALLOW_NO_DHE_KEX);
    if (server) {
        SSL_CTX_set_psk_find_session_callback(context, find_key); /* it has no certificate to fall back on */
    } else {
        SSL_CTX_set_psk_use_session_callback(context, use_key);
        SSL_CTX_set_verify(context, SSL_VERIFY_PEER,
                           NULL); /* offered a certificate instead, it trusts none */
    }
    return context;
}

enum fsdp_status tls_create(struct tls **out, bool server, const unsigned char key[TLS_KEY_BYTES],
                            struct fsdp_err *err)
{
    enum fsdp_status status;
    BIO *incoming = NULL, *outgoing = NULL;
    struct tls *tls;

    *out = NULL;
    ERR_clear_error();
    tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a TLS connection");
    memcpy(tls->key, key, TLS_KEY_BYTES);
    tls->context = make_context(server);
    tls->ssl = tls->context == NULL ? NULL : SSL_new(tls->context);
    incoming = BIO_new(BIO_s_mem());
    outgoing = BIO_new(BIO_s_mem());
    if (tls->ssl == NULL || incoming == NULL || outgoing == NULL) {
        status = fail_openssl(err, FSDP_ERR_NOMEM, "TLS");
        goto done;
    }
    SSL_set_app_data(tls->ssl, tls);
    SSL_set_bio(tls->ssl, incoming, outgoing);
    tls->incoming = incoming;
    tls->outgoing = outgoing;
    incoming = outgoing = NULL; /* the SSL's now */
    if (server)
        SSL_set_accept_state(tls->ssl);
    else
        SSL_set_connect_state(tls->ssl);
    *out = tls;
    tls = NULL;
    status = FSDP_OK;
done:
    BIO_free(incoming);
    BIO_free(outgoing);
    tls_destroy(tls);
    return status;
}

void tls_destroy(struct tls *tls)
{
    if (tls == NULL)
        return;
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    OPENSSL_cleanse(tls->key, sizeof tls->key);
    free(tls);
}

bool tls_established(const struct tls *tls)
{
    return SSL_is_init_finished(tls->ssl) != 0;
}

/* Judge the result of an SSL call: wanting more input is no error. */
static enum fsdp_status judge(struct tls *tls, int result, const char *what, struct fsdp_err *err)
{
    switch (SSL_get_error(tls->ssl, result)) {
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
    ERR_clear_error();
    return judge(tls, SSL_do_handshake(tls->ssl),
                 "TLS handshake (are the secret and --rdzv-id the same on every node?)", err);
}

enum fsdp_status tls_feed(struct tls *tls, const void *ciphertext, size_t n_bytes, struct fsdp_err *err)
{
    size_t written;

    if (n_bytes > 0 &&
        (BIO_write_ex(tls->incoming, ciphertext, n_bytes, &written) != 1 || written != n_bytes))
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
    ERR_clear_error();
    result = SSL_read_ex(tls->ssl, plaintext, capacity, n_bytes);
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
    ERR_clear_error();
    if (SSL_write_ex(tls->ssl, plaintext, n_bytes, &written) != 1 || written != n_bytes)
        return fail_openssl(err, FSDP_ERR_PEER, "TLS write");
    return FSDP_OK;
}

size_t tls_outgoing(const struct tls *tls)
{
    return BIO_ctrl_pending(tls->outgoing);
}

size_t tls_take(struct tls *tls, void *ciphertext, size_t capacity)
{
    size_t taken = 0;

    if (capacity == 0 || BIO_read_ex(tls->outgoing, ciphertext, capacity, &taken) != 1)
        return 0;
    return taken;
}

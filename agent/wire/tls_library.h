/*
 * OpenSSL 3 (libssl), which is opened when the first secret is used. Loading it takes a millisecond of the
 * five that a world on one node needs to start, and such a world does not need it. The types are those of
 * OpenSSL's own headers.
 */
#ifndef AGENT_TLS_LIBRARY_H
#define AGENT_TLS_LIBRARY_H

#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>
#include <openssl/ssl.h>

#include <fsdp/status.h>

/*
 * The functions that tls.c calls, each by its name. If a function is a macro in OpenSSL, the function that
 * the macro calls is listed.
 */
/* clang-format off */
#define TLS_LIBRARY_FUNCTIONS(X) \
    X(BIO_ctrl_pending) X(BIO_free) X(BIO_new) X(BIO_read_ex) X(BIO_s_mem) X(BIO_write_ex) \
    X(ERR_clear_error) X(ERR_error_string_n) X(ERR_get_error) X(EVP_KDF_CTX_free) X(EVP_KDF_CTX_new) \
    X(EVP_KDF_derive) X(EVP_KDF_fetch) X(EVP_KDF_free) X(EVP_MAC_CTX_free) X(EVP_MAC_CTX_new) \
    X(EVP_MAC_fetch) X(EVP_MAC_final) X(EVP_MAC_free) X(EVP_MAC_init) X(EVP_MAC_update) \
    X(OPENSSL_cleanse) \
    X(SSL_CIPHER_find) \
    X(SSL_CTX_clear_options) X(SSL_CTX_ctrl) X(SSL_CTX_free) X(SSL_CTX_new) \
    X(SSL_CTX_set_ciphersuites) X(SSL_CTX_set_num_tickets) X(SSL_CTX_set_psk_find_session_callback) \
    X(SSL_CTX_set_psk_use_session_callback) X(SSL_CTX_set_verify) X(SSL_SESSION_free) \
    X(SSL_SESSION_new) X(SSL_SESSION_set1_master_key) X(SSL_SESSION_set_cipher) \
    X(SSL_SESSION_set_protocol_version) X(SSL_do_handshake) X(SSL_free) X(SSL_get_error) \
    X(SSL_get_ex_data) X(SSL_is_init_finished) X(SSL_new) X(SSL_read_ex) X(SSL_set_accept_state) \
    X(SSL_set_bio) X(SSL_set_connect_state) X(SSL_set_ex_data) X(SSL_write_ex) X(TLS_client_method) \
    X(TLS_server_method)
/* clang-format on */

struct tls_library {
/* NOLINTNEXTLINE(bugprone-macro-parentheses): a name in parentheses declares nothing */
#define TLS_LIBRARY_MEMBER(name) __typeof__(&name) name;
    TLS_LIBRARY_FUNCTIONS(TLS_LIBRARY_MEMBER)
#undef TLS_LIBRARY_MEMBER
};

/**
 * Opens the library, which is the same for all callers and never closed. FSDP_ERR_UNSUPPORTED: it is not
 * installed, or lacks a function. *library is then NULL, and another call tries again. Must be called from
 * one thread only.
 */
enum fsdp_status tls_library_open(const struct tls_library **library, struct fsdp_err *err);

#endif

/*
 * TLS 1.3 with an external pre-shared key (RFC 8446, 4.2.11). It works on memory: the caller passes
 * ciphertext in and out, and owns the sockets.
 *   - The client names the identity of its agent in the handshake. The pre-shared key is derived from the
 *     job's key and that identity, so the handshake proves both. A client of an earlier version names none.
 *   - Both ends prove that they hold the key. A wrong key fails at the binder of the handshake, before any of
 *     our bytes is parsed. A recorded conversation that is replayed to a new connection fails there too.
 *   - Conversations are forward secret (X25519).
 *   - There is one cipher suite, TLS_AES_128_GCM_SHA256. There are no tickets, no certificates and no
 *     renegotiation.
 */
#ifndef AGENT_TLS_H
#define AGENT_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

enum { TLS_KEY_BYTES = 32, TLS_IDENTITY_BYTES = 16, TLS_MAC_BYTES = 16 };

struct tls_context;
struct tls;
struct tls_mac_key;

/**
 * Derive the key of one job: HKDF-SHA256 (RFC 5869) of the job's secret and `job_id`. So two jobs that share
 * a secret file have different keys, and cannot talk to each other.
 */
enum fsdp_status tls_derive_key(unsigned char key[TLS_KEY_BYTES], const void *secret, size_t secret_bytes,
                                const char *job_id, struct fsdp_err *err);

/**
 * Derive a key for messages that are not connections, such as pulses; `purpose` names them. `out` and `key`
 * (the job's key) may be the same memory.
 */
enum fsdp_status tls_derive_other(unsigned char out[TLS_KEY_BYTES], const unsigned char key[TLS_KEY_BYTES],
                                  const char *purpose, struct fsdp_err *err);
/**
 * Prepare MACs with a key of tls_derive_other(), which is copied. To prepare takes longer than a MAC, so who
 * makes many keeps it. NULL: OpenSSL refuses, or there is no memory.
 */
struct tls_mac_key *tls_mac_key_create(const unsigned char key[TLS_KEY_BYTES]);
/** NULL is a no-op. */
void tls_mac_key_destroy(struct tls_mac_key *key);
/**
 * HMAC-SHA256 of a message, cut to TLS_MAC_BYTES. Returns false if OpenSSL refuses. Thread: any, but one at a
 * time for one key.
 */
bool tls_mac(unsigned char mac[TLS_MAC_BYTES], struct tls_mac_key *key, const void *message, size_t n_bytes);
/** Are two of them the same? It takes the same time for all. */
bool tls_mac_is(const unsigned char mac[TLS_MAC_BYTES], const unsigned char other[TLS_MAC_BYTES]);

/**
 * Create what all connections with one key have in common. This takes 200 times as long as tls_create(), so
 * a server does it once. The key is copied.
 *   FSDP_ERR_NOMEM, FSDP_ERR_UNSUPPORTED  *out is NULL
 */
enum fsdp_status tls_context_create(struct tls_context **out, bool server,
                                    const unsigned char key[TLS_KEY_BYTES], struct fsdp_err *err);
/** Destroy the context. Connections that were created with it go on. NULL is a no-op. */
void tls_context_destroy(struct tls_context *context);

/**
 * Create one end of one connection. `context` is only used during the call.
 *   identity  (TLS_IDENTITY_BYTES) of a client: what it proves; NULL: nothing, as an earlier version
 */
enum fsdp_status tls_create(struct tls **out, const struct tls_context *context,
                            const unsigned char *identity, struct fsdp_err *err);
void tls_destroy(struct tls *tls);

/**
 * Is the handshake done on this side? On the server this is true only after the client has proven that it
 * holds the key.
 */
bool tls_established(const struct tls *tls);

/** On a server that is established: the identity that the client has proven; NULL: it named none. */
const unsigned char *tls_identity(const struct tls *tls);

/** Continue the handshake without input. A client calls it once, to begin. */
enum fsdp_status tls_start(struct tls *tls, struct fsdp_err *err);

/**
 * Take ciphertext from the network, and continue the handshake if it is not complete.
 *   FSDP_ERR_MISMATCH  the other side does not hold the key, or the bytes are no TLS or were changed. The
 *                      caller sends what tls_take() returns (the alert), then closes the connection.
 *   FSDP_ERR_PEER      the other side closed the connection in good order
 */
enum fsdp_status tls_feed(struct tls *tls, const void *ciphertext, size_t n_bytes, struct fsdp_err *err);

/**
 * Read plaintext that has arrived, up to `capacity` bytes. *n_bytes is 0 if there is none. Errors as those of
 * tls_feed().
 */
enum fsdp_status tls_read(struct tls *tls, void *plaintext, size_t capacity, size_t *n_bytes,
                          struct fsdp_err *err);

/** Encrypt `n_bytes` of plaintext for sending. Requires that tls_established() returns true. */
enum fsdp_status tls_write(struct tls *tls, const void *plaintext, size_t n_bytes, struct fsdp_err *err);

/**
 * Returns how many decrypted bytes wait for tls_read(). If it is 0, another tls_read() would find nothing.
 */
size_t tls_incoming(const struct tls *tls);

/** Move up to `capacity` bytes of ciphertext that wait to be sent to `ciphertext`. Returns their number. */
size_t tls_take(struct tls *tls, void *ciphertext, size_t capacity);

#endif

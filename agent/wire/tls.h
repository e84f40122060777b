/*
 * TLS 1.3 with an external pre-shared key (RFC 8446, 4.2.11) over memory: ciphertext goes in and comes out by
 * calls, sockets are the caller's. Both ends prove that they hold the key; a wrong key fails at the binder, before
 * a byte of ours is parsed; a recorded conversation replayed to a new connection fails the same way. Forward
 * secret (X25519); one cipher suite, TLS_AES_128_GCM_SHA256; no tickets, no certificates, no renegotiation.
 */
#ifndef AGENT_TLS_H
#define AGENT_TLS_H

#include <stdbool.h>
#include <stddef.h>

#include <fsdp/status.h>

enum { TLS_KEY_BYTES = 32 };

struct tls_context;
struct tls;

/**
 * The key of one job: HKDF-SHA256 (RFC 5869) of the job secret, bound to `job_id`, so that two jobs that
 * share a secret file cannot talk to each other.
 */
enum fsdp_status tls_derive_key(unsigned char key[TLS_KEY_BYTES], const void *secret, size_t secret_bytes,
                                const char *job_id, struct fsdp_err *err);

/**
 * What all connections with one key have in common. Making it takes 200 times as long as one connection's part, so
 * a server makes it once. The key is copied.
 *   FSDP_ERR_NOMEM, FSDP_ERR_UNSUPPORTED  *out is NULL
 */
enum fsdp_status tls_context_create(struct tls_context **out, bool server,
                                    const unsigned char key[TLS_KEY_BYTES], struct fsdp_err *err);
/** Connections that were made with it go on. NULL is a no-op. */
void tls_context_destroy(struct tls_context *context);

/** One end of one connection. `context` is not looked at after the call. */
enum fsdp_status tls_create(struct tls **out, const struct tls_context *context, struct fsdp_err *err);
void tls_destroy(struct tls *tls);

/** True once the handshake is done on this side; on the server that is after the client's proof. */
bool tls_established(const struct tls *tls);

/** Move the handshake on without input: the client's first flight. */
enum fsdp_status tls_start(struct tls *tls, struct fsdp_err *err);

/**
 * Take ciphertext from the network and move the handshake on.
 *   FSDP_ERR_MISMATCH  the other side does not hold the key, or the bytes are no TLS or were changed: close, but
 *                      send what tls_take() gives first (the alert)
 *   FSDP_ERR_PEER      the other side ended the connection in good order
 */
enum fsdp_status tls_feed(struct tls *tls, const void *ciphertext, size_t n_bytes, struct fsdp_err *err);

/** Plaintext that has arrived: up to `capacity` bytes, *n_bytes 0 when there is none. Errors as tls_feed(). */
enum fsdp_status tls_read(struct tls *tls, void *plaintext, size_t capacity, size_t *n_bytes,
                          struct fsdp_err *err);

/** Encrypt `n_bytes` to be sent. Only once established. */
enum fsdp_status tls_write(struct tls *tls, const void *plaintext, size_t n_bytes, struct fsdp_err *err);

/** Ciphertext waiting to be sent, in bytes, and taking up to `capacity` of it. */
size_t tls_outgoing(const struct tls *tls);
size_t tls_take(struct tls *tls, void *ciphertext, size_t capacity);

#endif

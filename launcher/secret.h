/*
 * The job secret, which the agents of one job prove to each other that they have. The first of these that is
 * set decides: --secret-file or FSDPRUN_SECRET_FILE (a file), FSDPRUN_SECRET (the secret itself, for tests),
 * or a systemd unit's credential "secret" ($CREDENTIALS_DIRECTORY/secret). It never comes from the command
 * line, which every user of the machine can read.
 */
#ifndef LAUNCHER_SECRET_H
#define LAUNCHER_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { SECRET_MIN_BYTES = 16, SECRET_MAX_BYTES = 4096 };

struct secret {
    char bytes[SECRET_MAX_BYTES];
    size_t n_bytes; /* 0: none was given */
};

/**
 * Load the secret. One newline at the end of a file is not part of it. Without a file and without variables
 * there is no secret, and secret->n_bytes is 0.
 *   file  the value of --secret-file; NULL: the environment says where it is
 *   FSDP_ERR_CONFIG  one of these; the secret is then empty:
 *                      - the file cannot be read, or is no regular file
 *                      - neither this user nor root owns it
 *                      - others may use it (its group may read it only if root owns it)
 *                      - it is shorter or longer than a secret may be
 */
enum fsdp_status secret_load(struct secret *secret, const char *file, struct fsdp_err *err);

/**
 * Make a secret up, and put it into a new file that only this user can use, sealed by munge if that is there.
 * An older file of this name is replaced.
 *   FSDP_ERR_IO  the secret is empty, and there is no file
 */
enum fsdp_status secret_make(struct secret *secret, const char *path, struct fsdp_err *err);

/**
 * Load the secret from a file that secret_make() makes on another node. Blocks until it is there.
 *   timeout_ms  how long it is waited for
 *   FSDP_ERR_PEER    it has not come
 *   FSDP_ERR_CONFIG  as for secret_load(); or munge does not open it here
 *   FSDP_ERR_NOT_FOUND, FSDP_ERR_IO  it is sealed, and there is no unmunge, or it does not answer
 */
enum fsdp_status secret_await(struct secret *secret, const char *path, int64_t timeout_ms,
                              struct fsdp_err *err);

/** Overwrite FSDPRUN_SECRET in the environment of this process, after the last secret_load(). */
void secret_forget_variable(void);

/** Overwrite the secret in memory. It is empty afterwards. */
void secret_clear(struct secret *secret);

#endif

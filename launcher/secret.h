/*
 * The job secret: agents of one job prove to each other that they have it. It comes from the first of these
 * that is set: --secret-file or FSDPRUN_SECRET_FILE (the path of a file), FSDPRUN_SECRET (the secret itself,
 * for tests), the systemd credential "secret" ($CREDENTIALS_DIRECTORY/secret). It never comes from the
 * command line, which every user of the machine can read.
 */
#ifndef LAUNCHER_SECRET_H
#define LAUNCHER_SECRET_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

enum { SECRET_MIN_BYTES = 16, SECRET_MAX_BYTES = 4096 };

struct secret {
    char bytes[SECRET_MAX_BYTES];
    size_t n_bytes; /* 0: there is no secret */
};

/**
 * Loads the secret. A newline at the end of the file is not part of it. If no place for it is set, there is
 * no secret, and secret->n_bytes is 0.
 *   file  the value of --secret-file; NULL: the environment decides
 *   FSDP_ERR_CONFIG  one of these; the secret is then empty:
 *                      - the file cannot be read, or is no regular file
 *                      - neither this user nor root owns it
 *                      - others may use it (its group may read it only if root owns it)
 *                      - it is shorter or longer than a secret may be
 */
enum fsdp_status secret_load(struct secret *secret, const char *file, struct fsdp_err *err);

/**
 * Makes up a secret, and writes it to a new file that only this user can read. If munge is available, it is
 * encrypted there. An older file of that name is replaced.
 *   FSDP_ERR_IO  the secret is empty, and no new file was made
 */
enum fsdp_status secret_make(struct secret *secret, const char *path, struct fsdp_err *err);

/**
 * Loads the secret from a file that secret_make() makes on another node. Blocks until the file exists.
 *   timeout_ms  how long to wait for it
 *   FSDP_ERR_PEER    the file did not appear in that time
 *   FSDP_ERR_CONFIG  as for secret_load(); or munge cannot decrypt it here
 *   FSDP_ERR_NOT_FOUND, FSDP_ERR_IO  it is encrypted, and unmunge does not exist or does not answer
 */
enum fsdp_status secret_await(struct secret *secret, const char *path, int64_t timeout_ms,
                              struct fsdp_err *err);

/**
 * If FSDPRUN_SECRET is set, hides the memory of this process (shard_runtime/core/hide_memory.h). Call it
 * first of all: a process that crashes or is looked at before it has read the secret must not show it either.
 */
void secret_hide_variable(void);

/**
 * Overwrites FSDPRUN_SECRET in the environment of this process. Call it after the last secret_load(), and
 * before this process waits for anything.
 */
void secret_forget_variable(void);

/** Overwrites the secret in memory and makes it empty. */
void secret_clear(struct secret *secret);

#endif

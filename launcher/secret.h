/*
 * The job secret: what agents of one job prove to each other that they hold. It comes from a file (--secret-file,
 * else FSDPRUN_SECRET_FILE), else, for tests, from FSDPRUN_SECRET itself; never from the command line, which every
 * user of the machine can read.
 */
#ifndef LAUNCHER_SECRET_H
#define LAUNCHER_SECRET_H

#include <stddef.h>

#include <fsdp/status.h>

enum { SECRET_MIN_BYTES = 16, SECRET_MAX_BYTES = 4096 };

struct secret {
    char bytes[SECRET_MAX_BYTES];
    size_t n_bytes; /* 0: none was given */
};

/**
 * `file`: the value of --secret-file, or NULL to look into the environment. One newline at the end of a file is not
 * part of the secret.
 *   FSDP_ERR_CONFIG  it cannot be read; neither this user nor root owns it; others may use it (its group may read it
 *                    only if root owns it); it is shorter or longer than a secret may be
 */
enum fsdp_status secret_load(struct secret *secret, const char *file, struct fsdp_err *err);

/** Overwrite it. */
void secret_clear(struct secret *secret);

#endif

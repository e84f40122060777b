#include "launcher/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static enum fsdp_status check_length(const struct secret *secret, const char *where, struct fsdp_err *err)
{
    if (secret->n_bytes < SECRET_MIN_BYTES)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: a secret has at least %d bytes, this one has %zu", where,
                         SECRET_MIN_BYTES, secret->n_bytes);
    return FSDP_OK;
}

/*
 * Anyone who reads the secret is a member of the job, so a file that others may read is refused, as ssh does.
 * The group may read a file of root's: Kubernetes (fsGroup) and systemd (LoadCredential=) hand out secrets as
 * root:GROUP 0440. open() has followed symbolic links, which Kubernetes uses; only the file itself counts.
 */
static enum fsdp_status check_file(int fd, const char *path, struct fsdp_err *err)
{
    struct stat info;

    if (fstat(fd, &info) < 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "secret file %s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "secret file %s: not a regular file", path);
    if (info.st_uid != geteuid() && info.st_uid != 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "secret file %s: user %lu owns it, neither you nor root", path,
                         (unsigned long)info.st_uid);
    if ((info.st_mode & (info.st_uid == 0 ? S_IWGRP | S_IXGRP | S_IRWXO : S_IRWXG | S_IRWXO)) != 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "secret file %s: others may use it (mode %03o); chmod 600 it",
                         path, (unsigned)(info.st_mode & 0777));
    if (info.st_size > SECRET_MAX_BYTES)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "secret file %s: a secret has at most %d bytes", path,
                         SECRET_MAX_BYTES);
    return FSDP_OK;
}

/* Reads into the secret itself: file_read() would leave copies of it in memory that was freed. */
static enum fsdp_status read_file(struct secret *secret, const char *path, struct fsdp_err *err)
{
    enum fsdp_status status;
    ssize_t n;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "secret file %s: %s", path, strerror(errno));
    status = check_file(fd, path, err);
    while (status == FSDP_OK && secret->n_bytes < sizeof secret->bytes) {
        n = read(fd, secret->bytes + secret->n_bytes, sizeof secret->bytes - secret->n_bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            status = fsdp_fail(err, FSDP_ERR_CONFIG, "secret file %s: %s", path, strerror(errno));
        if (n <= 0)
            break;
        secret->n_bytes += (size_t)n;
    }
    close(fd);
    if (status == FSDP_OK && secret->n_bytes > 0 && secret->bytes[secret->n_bytes - 1] == '\n')
        secret->n_bytes--;
    return status;
}

enum fsdp_status secret_load(struct secret *secret, const char *file, struct fsdp_err *err)
{
    const char *text = getenv("FSDPRUN_SECRET");
    enum fsdp_status status;

    *secret = (struct secret){ 0 };
    if (file == NULL)
        file = getenv("FSDPRUN_SECRET_FILE");
    if (file != NULL) {
        status = read_file(secret, file, err);
        if (status == FSDP_OK)
            status = check_length(secret, file, err);
    } else if (text != NULL) {
        if (strlen(text) > sizeof secret->bytes)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "FSDPRUN_SECRET: a secret has at most %d bytes",
                             SECRET_MAX_BYTES);
        secret->n_bytes = strlen(text);
        memcpy(secret->bytes, text, secret->n_bytes);
        status = check_length(secret, "FSDPRUN_SECRET", err);
    } else {
        return FSDP_OK;
    }
    if (status != FSDP_OK)
        secret_clear(secret);
    return status;
}

void secret_clear(struct secret *secret)
{
    explicit_bzero(secret, sizeof *secret);
}

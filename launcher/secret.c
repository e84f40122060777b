#include "launcher/secret.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "launcher/command.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/hide_memory.h"
#include "shard_runtime/core/require.h"

enum { MUNGE_TIMEOUT_MS = 10000 };

static const char variable[] = "FSDPRUN_SECRET", munge_begin[] = "MUNGE:";

static enum fsdp_status check_length(const struct secret *secret, const char *where, struct fsdp_err *err)
{
    if (secret->n_bytes < SECRET_MIN_BYTES)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: a secret has at least %d bytes, this one has %zu", where,
                         SECRET_MIN_BYTES, secret->n_bytes);
    return FSDP_OK;
}

/*
 * Checks that only we can read the secret: a process that has it is accepted as a member of the job. So a
 * file that others may read is refused, as ssh does. Exception: the group may read a file that root owns.
 * Kubernetes (fsGroup) and systemd (LoadCredential=) provide secrets as root:GROUP with mode 0440. open() has
 * followed symbolic links, which Kubernetes uses; the check is made on the file itself.
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

/* Reads the file directly into `secret`. file_read() would leave copies of the secret in freed memory. */
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

/*
 * Are we in a systemd unit with a credential named secret (LoadCredential=secret:FILE)? `path` receives its
 * path.
 */
static bool has_credential(char *path, size_t size)
{
    const char *folder = getenv("CREDENTIALS_DIRECTORY");

    return folder != NULL && snprintf(path, size, "%s/secret", folder) < (int)size && access(path, F_OK) == 0;
}

enum fsdp_status secret_load(struct secret *secret, const char *file, struct fsdp_err *err)
{
    const char *text = getenv(variable);
    char credential[PATH_MAX];
    enum fsdp_status status;

    *secret = (struct secret){ 0 };
    if (file == NULL)
        file = getenv("FSDPRUN_SECRET_FILE");
    if (file == NULL && text == NULL && has_credential(credential, sizeof credential))
        file = credential;
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

/*
 * Encrypts the secret by munge(1), which clusters with Slurm usually have. Then only processes of this user,
 * on nodes with the cluster's key, can decrypt it. If munge is missing or does not answer, `sealed` is the
 * secret in clear text.
 */
static void seal(const struct secret *secret, char sealed[COMMAND_OUT_BYTES])
{
    char user[32];
    const char *const argv[] = { "munge", user, "--ttl=-1", NULL };
    int status;

    snprintf(user, sizeof user, "--restrict-uid=%lu", (unsigned long)geteuid());
    if (command_run(argv, secret->bytes, MUNGE_TIMEOUT_MS, sealed, &status, NULL) != FSDP_OK || status != 0 ||
        strncmp(sealed, munge_begin, strlen(munge_begin)) != 0)
        snprintf(sealed, COMMAND_OUT_BYTES, "%.*s", (int)secret->n_bytes, secret->bytes);
}

/*
 * Decrypts what seal() has encrypted. munge reports a credential that is too old, or was decrypted on this
 * host before, but its content is still proven. These are munge's statuses 15, 16 and 17 (munge.h: EXPIRED,
 * REWOUND, REPLAYED), so they are accepted.
 */
static enum fsdp_status unseal(struct secret *secret, const char *path, struct fsdp_err *err)
{
    static const char *const argv[] = { "unmunge", "--metadata=/dev/null", NULL };
    char sealed[SECRET_MAX_BYTES + 1], opened[COMMAND_OUT_BYTES];
    enum fsdp_status status;
    int ended;

    snprintf(sealed, sizeof sealed, "%.*s", (int)secret->n_bytes, secret->bytes);
    if (strncmp(sealed, munge_begin, strlen(munge_begin)) != 0)
        return FSDP_OK;
    secret_clear(secret);
    status = command_run(argv, sealed, MUNGE_TIMEOUT_MS, opened, &ended, err);
    if (status == FSDP_OK && ended != 0 && (ended < 15 || ended > 17))
        status = fsdp_fail(err, FSDP_ERR_CONFIG, "unmunge: %.*s", (int)strcspn(opened, "\n"), opened);
    if (status == FSDP_OK) {
        secret->n_bytes = strnlen(opened, SECRET_MAX_BYTES);
        memcpy(secret->bytes, opened, secret->n_bytes);
        status = check_length(secret, path, err);
    } else {
        fsdp_wrap(err, "the secret in %s was sealed by munge, and cannot be opened here", path);
    }
    explicit_bzero(opened, sizeof opened);
    if (status != FSDP_OK)
        secret_clear(secret);
    return status;
}

/*
 * Writes the file under another name and renames it when it is complete, because other nodes wait for the
 * name.
 */
enum fsdp_status secret_make(struct secret *secret, const char *path, struct fsdp_err *err)
{
    char unfinished[PATH_MAX], sealed[COMMAND_OUT_BYTES];
    unsigned char random[32];
    int fd = -1;
    bool is_written = false;
    size_t n_bytes;

    *secret = (struct secret){ 0 };
    if (snprintf(unfinished, sizeof unfinished, "%s.new", path) >= (int)sizeof unfinished)
        return fsdp_fail(err, FSDP_ERR_IO, "%.80s: the path is too long", path);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        return fsdp_fail(err, FSDP_ERR_IO, "getrandom: %s", strerror(errno));
    for (size_t i = 0; i < sizeof random; i++)
        secret->n_bytes += (size_t)sprintf(secret->bytes + secret->n_bytes, "%02x", random[i]);
    explicit_bzero(random, sizeof random);
    seal(secret, sealed);
    n_bytes = strlen(sealed);
    (void)unlink(unfinished);
    fd = open(unfinished, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0) {
        is_written = write(fd, sealed, n_bytes) == (ssize_t)n_bytes && fsync(fd) == 0;
        is_written = close(fd) == 0 && is_written && rename(unfinished, path) == 0;
    }
    explicit_bzero(sealed, sizeof sealed);
    if (is_written)
        return FSDP_OK;
    fsdp_fail(err, FSDP_ERR_IO,
              "a secret for the nodes cannot be written to %s: %s (--secret-file names one)", path,
              strerror(errno));
    if (fd >= 0)
        (void)unlink(unfinished);
    secret_clear(secret);
    return FSDP_ERR_IO;
}

/*
 * Does the file exist? It opens the folder first, which makes NFS ask its server. Otherwise NFS could go on
 * for some time without asking the server about a new file.
 */
static bool is_there(const char *path)
{
    const char *slash = strrchr(path, '/');
    char folder[PATH_MAX];
    DIR *opened;

    snprintf(folder, sizeof folder, "%.*s", slash == NULL ? 1 : (int)(slash - path),
             slash == NULL ? "." : path);
    opened = opendir(folder);
    if (opened != NULL)
        closedir(opened);
    return access(path, F_OK) == 0;
}

enum fsdp_status secret_await(struct secret *secret, const char *path, int64_t timeout_ms,
                              struct fsdp_err *err)
{
    const struct timespec pause = { .tv_nsec = 50 * 1000 * 1000 };
    const int64_t deadline_ms = clock_now_ms() + timeout_ms;

    *secret = (struct secret){ 0 };
    while (!is_there(path)) {
        if (clock_now_ms() >= deadline_ms)
            return fsdp_fail(
                err, FSDP_ERR_PEER,
                "the first node of this Slurm step has made no secret in %s for %.0f s: if not all "
                "nodes see that folder, give --secret-file",
                path, (double)timeout_ms / 1000.0);
        nanosleep(&pause, NULL);
    }
    OK_OR_RETURN(secret_load(secret, path, err));
    return unseal(secret, path, err);
}

void secret_hide_variable(void)
{
    const char *text = getenv(variable);

    if (text != NULL && text[0] != '\0')
        core_hide_memory();
}

void secret_forget_variable(void)
{
    char *text = getenv(variable);

    if (text != NULL)
        explicit_bzero(text, strlen(text)); /* overwritten in place: /proc/PID/environ shows this memory */
}

void secret_clear(struct secret *secret)
{
    explicit_bzero(secret, sizeof *secret);
}

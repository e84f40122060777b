#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/secret.h"

static char path[64];

static const char *make_file(const char *text, mode_t mode)
{
    int fd;

    snprintf(path, sizeof path, "/tmp/fsdp-secret-XXXXXX");
    fd = mkstemp(path);
    cr_assert(ge(int, fd, 0));
    cr_assert(eq(long, write(fd, text, strlen(text)), (long)strlen(text)));
    fchmod(fd, mode);
    close(fd);
    return path;
}

static void no_environment(void)
{
    unsetenv("FSDPRUN_SECRET");
    unsetenv("FSDPRUN_SECRET_FILE");
    path[0] = '\0';
}

static void remove_file(void)
{
    if (path[0] != '\0')
        unlink(path);
}

TestSuite(secret, .init = no_environment, .fini = remove_file);

Test(secret, comes_from_a_file_without_its_newline)
{
    struct secret secret;

    cr_assert(eq(int, secret_load(&secret, make_file("0123456789abcdef\n", 0600), NULL), FSDP_OK));

    cr_assert(eq(sz, secret.n_bytes, 16));
    cr_assert(memcmp(secret.bytes, "0123456789abcdef", 16) == 0);
}

Test(secret, a_file_others_may_read_is_refused)
{
    const mode_t modes[] = { 0640, 0604, 0644, 0620 };

    for (size_t i = 0; i < 4; i++) {
        struct fsdp_err err = { 0 };
        struct secret secret;

        cr_assert(
            eq(int, secret_load(&secret, make_file("0123456789abcdef\n", modes[i]), &err), FSDP_ERR_CONFIG));
        cr_assert(eq(sz, secret.n_bytes, 0));
        cr_assert_not_null(strstr(err.message, "others may use it"), "%s", err.message);
        unlink(path);
    }
}

Test(secret, too_short_too_long_missing_and_no_file_are_refused)
{
    static char longer[SECRET_MAX_BYTES + 2];
    struct secret secret;

    memset(longer, 'x', sizeof longer - 1);
    cr_assert(eq(int, secret_load(&secret, make_file("0123456789abcde\n", 0600), NULL), FSDP_ERR_CONFIG));
    unlink(path);
    cr_assert(eq(int, secret_load(&secret, make_file(longer, 0600), NULL), FSDP_ERR_CONFIG));
    unlink(path);
    cr_assert(eq(int, secret_load(&secret, path, NULL), FSDP_ERR_CONFIG));
    cr_assert(eq(int, secret_load(&secret, "/tmp", NULL), FSDP_ERR_CONFIG));
    path[0] = '\0';
}

Test(secret, the_command_line_beats_the_environment)
{
    struct secret secret;

    setenv("FSDPRUN_SECRET", "from the environment", 1);
    cr_assert(eq(int, secret_load(&secret, make_file("from the file of it\n", 0600), NULL), FSDP_OK));
    cr_assert(eq(sz, secret.n_bytes, 19));
    cr_assert(eq(int, secret_load(&secret, NULL, NULL), FSDP_OK));
    cr_assert(eq(sz, secret.n_bytes, 20));
}

Test(secret, none_given_is_none)
{
    struct secret secret;

    cr_assert(eq(int, secret_load(&secret, NULL, NULL), FSDP_OK));
    cr_assert(eq(sz, secret.n_bytes, 0));
}

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

static struct secret secret;

/* Load a fresh file of this owner and mode; "" or the error's words. */
static const char *load_owned(uid_t owner, mode_t mode)
{
    static struct fsdp_err err;

    err = (struct fsdp_err){ 0 };
    make_file("0123456789abcdef\n", mode);
    cr_assert(owner == geteuid() || chown(path, owner, (gid_t)-1) == 0);
    if (secret_load(&secret, path, &err) == FSDP_OK)
        cr_assert(eq(sz, secret.n_bytes, 16));
    else
        cr_assert(eq(sz, secret.n_bytes, 0));
    unlink(path);
    return err.message;
}

Test(secret, a_file_others_may_use_is_refused)
{
    const mode_t modes[] = { 0604, 0644, 0620, 0610, 0602 };

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        const char *words = load_owned(geteuid(), modes[i]);

        cr_assert_not_null(strstr(words, "others may use it"), "%03o: %s", (unsigned)modes[i], words);
    }
}

Test(secret, the_group_may_read_a_file_only_if_root_owns_it)
{
    const char *words;

    if (geteuid() != 0)
        cr_skip_test("needs root to make files of two owners");
    cr_assert_str_empty(load_owned(0, 0440)); /* Kubernetes with fsGroup, systemd's credentials */

    cr_assert_eq(seteuid(65534), 0);
    words = load_owned(65534, 0440);

    cr_assert_not_null(strstr(words, "others may use it"), "%s", words);
}

Test(secret, a_file_of_another_user_is_refused_and_one_of_root_is_not)
{
    const char *words;

    if (geteuid() != 0)
        cr_skip_test("needs root to make files of two owners");
    words = load_owned(65534, 0600);
    make_file("0123456789abcdef\n", 0440);
    cr_assert_eq(chown(path, 0, 65534), 0);
    cr_assert(setegid(65534) == 0 && seteuid(65534) == 0);

    cr_assert_not_null(strstr(words, "user 65534 owns it, neither you nor root"), "%s", words);
    cr_assert(eq(int, secret_load(&secret, path, NULL), FSDP_OK));
    cr_assert(seteuid(0) == 0 && setegid(0) == 0);
}

Test(secret, a_symbolic_link_to_a_file_is_followed)
{
    char link[sizeof path + 8];
    make_file("0123456789abcdef\n", 0600);
    snprintf(link, sizeof link, "%s.link", path);
    cr_assert_eq(symlink(path, link), 0);

    cr_expect(eq(int, secret_load(&secret, link, NULL), FSDP_OK));
    unlink(link);
}

Test(secret, too_short_too_long_missing_and_no_file_are_refused)
{
    static char longer[SECRET_MAX_BYTES + 2];
    const char *const texts[] = { "0123456789abcde\n", longer };
    memset(longer, 'x', sizeof longer - 1);
    for (size_t i = 0; i < 2; i++) {
        cr_expect(eq(int, secret_load(&secret, make_file(texts[i], 0600), NULL), FSDP_ERR_CONFIG));
        unlink(path);
    }
    cr_expect(eq(int, secret_load(&secret, path, NULL), FSDP_ERR_CONFIG));
    cr_expect(eq(int, secret_load(&secret, "/tmp", NULL), FSDP_ERR_CONFIG));
}

Test(secret, the_command_line_beats_the_environment_and_none_given_is_none)
{
    cr_assert(eq(int, secret_load(&secret, NULL, NULL), FSDP_OK));
    cr_assert(eq(sz, secret.n_bytes, 0));
    setenv("FSDPRUN_SECRET", "from the environment", 1);
    cr_assert(eq(int, secret_load(&secret, NULL, NULL), FSDP_OK));
    cr_assert(secret.n_bytes == 20 && memcmp(secret.bytes, "from the environment", 20) == 0);
    cr_assert(eq(int, secret_load(&secret, make_file("from the file of it\n", 0600), NULL), FSDP_OK));
    cr_assert(secret.n_bytes == 19 && memcmp(secret.bytes, "from the file of it", 19) == 0);
}

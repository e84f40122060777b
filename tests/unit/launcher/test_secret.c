#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
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
    unsetenv("CREDENTIALS_DIRECTORY");
    setenv("PATH", "/nonexistent", 1); /* no munge */
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

Test(secret, a_credential_of_the_unit_counts_if_nothing_else_is_given)
{
    char folder[] = "/tmp/fsdp-credentials-XXXXXX", file[64];
    int fd;

    cr_assert(mkdtemp(folder) != NULL);
    setenv("CREDENTIALS_DIRECTORY", folder, 1);
    cr_assert(eq(int, secret_load(&secret, NULL, NULL), FSDP_OK));
    cr_assert(eq(sz, secret.n_bytes, 0), "a unit need not have one");
    snprintf(file, sizeof file, "%s/secret", folder);
    fd = open(file, O_WRONLY | O_CREAT, 0400);
    cr_assert(eq(long, write(fd, "of the unit's own\n", 18), 18));
    close(fd);
    cr_assert(eq(int, secret_load(&secret, NULL, NULL), FSDP_OK));
    cr_assert(secret.n_bytes == 17 && memcmp(secret.bytes, "of the unit's own", 17) == 0);
    setenv("FSDPRUN_SECRET", "from the environment", 1);
    cr_assert(eq(int, secret_load(&secret, NULL, NULL), FSDP_OK));
    cr_assert(eq(sz, secret.n_bytes, 20));
    unsetenv("FSDPRUN_SECRET");
    chmod(file, 0644);
    cr_assert(eq(int, secret_load(&secret, NULL, NULL), FSDP_ERR_CONFIG), "others may read it");
    unlink(file);
    rmdir(folder);
}

/* Writes the path of a file that is not there yet, in a new folder. */
static void new_path(void)
{
    static char folder[32];

    strcpy(folder, "/tmp/fsdp-secret-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/.secret-12.0", folder);
}

static void remove_folder(void)
{
    char program[128];

    unlink(path);
    *strrchr(path, '/') = '\0';
    for (int i = 0; i < 2; i++) {
        snprintf(program, sizeof program, "%s/%s", path, i == 0 ? "munge" : "unmunge");
        unlink(program);
    }
    cr_expect(eq(int, rmdir(path), 0), "%s: nothing else was left there", path);
    path[0] = '\0';
}

Test(secret, one_node_makes_it_up_and_the_others_find_it)
{
    struct secret made, found;
    struct stat info;

    new_path();
    cr_assert(eq(int, secret_make(&made, path, NULL), FSDP_OK));
    cr_assert(eq(int, secret_await(&found, path, 0, NULL), FSDP_OK));

    cr_expect(eq(sz, made.n_bytes, 64));
    cr_expect(eq(sz, found.n_bytes, 64));
    cr_expect(eq(int, memcmp(made.bytes, found.bytes, 64), 0));
    cr_expect(eq(int, stat(path, &info), 0));
    cr_expect(eq(u32, info.st_mode & 0777, 0600));
    remove_folder();
}

Test(secret, each_is_another_one_and_replaces_the_last)
{
    struct secret first, second;

    new_path();
    cr_assert(eq(int, secret_make(&first, path, NULL), FSDP_OK));
    cr_assert(eq(int, secret_make(&second, path, NULL), FSDP_OK));

    cr_expect(ne(int, memcmp(first.bytes, second.bytes, 64), 0));
    cr_assert(eq(int, secret_await(&first, path, 0, NULL), FSDP_OK));
    cr_expect(eq(int, memcmp(first.bytes, second.bytes, 64), 0));
    remove_folder();
}

/* The other node makes it while this one waits. */
Test(secret, it_is_waited_for, .timeout = 60)
{
    struct secret found;
    pid_t other;

    new_path();
    other = fork();
    if (other == 0)
        _exit(secret_make(&found, path, NULL) == FSDP_OK ? 0 : 1);

    cr_expect(eq(int, secret_await(&found, path, 50000, NULL), FSDP_OK));
    waitpid(other, NULL, 0);
    cr_expect(eq(sz, found.n_bytes, 64));
    remove_folder();
}

Test(secret, one_that_does_not_come_or_cannot_be_written_is_an_error)
{
    struct fsdp_err err = { 0 };
    struct secret none;

    cr_expect(eq(int, secret_await(&none, "/nonexistent/.secret-12.0", 0, &err), FSDP_ERR_PEER));
    cr_expect(strstr(err.message, "/nonexistent/.secret-12.0") != NULL, "%s", err.message);
    cr_expect(eq(sz, none.n_bytes, 0));
    cr_expect(eq(int, secret_make(&none, "/nonexistent/.secret-12.0", &err), FSDP_ERR_IO));
    cr_expect(eq(sz, none.n_bytes, 0));
}

/* A program of that name, which is this shell script, beside the file of the secret. */
static void make_program(const char *name, const char *script)
{
    char program[128], search[160];
    const int length = (int)(strrchr(path, '/') - path);
    FILE *file;

    snprintf(program, sizeof program, "%.*s/%s", length, path, name);
    snprintf(search, sizeof search, "%.*s:/usr/bin:/bin", length, path);
    setenv("PATH", search, 1);
    file = fopen(program, "w");
    cr_assert(file != NULL);
    fprintf(file, "#!/bin/sh\nread -r text\n%s\n", script);
    fclose(file);
    chmod(program, 0700);
}

#define MUNGE   "[ \"$1\" = --restrict-uid=$(id -u) ] || exit 1; printf 'MUNGE:%s:\\n' \"$text\" | tr 0-9 g-p"
#define UNMUNGE "text=${text#MUNGE:}; printf %s \"${text%:}\" | tr g-p 0-9;"

/* Nodes that are one host open the same credential twice: 17. */
Test(secret, munge_seals_it_and_the_others_open_it, .timeout = 60)
{
    static const char *const ends[] = { UNMUNGE, UNMUNGE "exit 17", UNMUNGE "exit 15" };

    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        struct secret made, sealed, found;

        new_path();
        make_program("munge", MUNGE);
        make_program("unmunge", ends[i]);
        cr_assert(eq(int, secret_make(&made, path, NULL), FSDP_OK));
        cr_assert(eq(int, secret_load(&sealed, path, NULL), FSDP_OK));
        cr_expect(eq(int, strncmp(sealed.bytes, "MUNGE:", 6), 0));

        cr_assert(eq(int, secret_await(&found, path, 0, NULL), FSDP_OK));

        cr_expect(eq(sz, found.n_bytes, 64));
        cr_expect(eq(int, memcmp(made.bytes, found.bytes, 64), 0));
        remove_folder();
    }
}

Test(secret, a_munge_that_does_not_answer_seals_nothing, .timeout = 60)
{
    struct secret made, found;

    new_path();
    make_program("munge", "echo 'Did you start munged?'; exit 6");
    cr_assert(eq(int, secret_make(&made, path, NULL), FSDP_OK));

    cr_assert(eq(int, secret_await(&found, path, 0, NULL), FSDP_OK));
    cr_expect(eq(int, memcmp(made.bytes, found.bytes, 64), 0));
    remove_folder();
}

Test(secret, what_munge_does_not_open_is_an_error_in_its_words, .timeout = 60)
{
    struct fsdp_err err = { 0 };
    struct secret made, found;

    new_path();
    make_program("munge", MUNGE);
    cr_assert(eq(int, secret_make(&made, path, NULL), FSDP_OK));
    setenv("PATH", "/nonexistent", 1);
    cr_expect(eq(int, secret_await(&found, path, 0, &err), FSDP_ERR_NOT_FOUND));
    make_program("unmunge", "echo 'unmunge: Error: Invalid credential'; exit 6");
    err = (struct fsdp_err){ 0 };

    cr_expect(eq(int, secret_await(&found, path, 0, &err), FSDP_ERR_CONFIG));
    cr_expect(strstr(err.message, "Invalid credential") != NULL, "%s", err.message);
    cr_expect(eq(sz, found.n_bytes, 0));
    remove_folder();
}

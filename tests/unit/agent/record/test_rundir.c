#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/record/rundir.h"

static char top[64];

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void set_up(void)
{
    strcpy(top, "/tmp/fsdp-unit-rundir.XXXXXX");
    cr_assert_not_null(mkdtemp(top));
    cr_assert(chdir(top) == 0);
}

static void tear_down(void)
{
    nftw(top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

TestSuite(rundir, .init = set_up, .fini = tear_down);

static const char *under(const char *name)
{
    static char path[256];

    snprintf(path, sizeof path, "%s/%s", top, name);
    return path;
}

static const char *slurp(const char *path)
{
    static char text[4096];
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

    if (fd >= 0)
        close(fd);
    text[n < 0 ? 0 : n] = '\0';
    return text;
}

static enum fsdp_status open_job(struct rundir **out, const char *path, bool lock, struct fsdp_err *err)
{
    return rundir_open(out, &(struct rundir_spec){ .kind = RUNDIR_JOB, .path = path, .lock = lock }, err);
}

Test(rundir, a_jobs_path_is_absolute_and_its_name_one_component)
{
    static const char *const bad[] = { "", ".", "..", "a/b", "/a", "a/" };
    char path[RUNDIR_PATH_BYTES];
    struct fsdp_err err = { 0 };

    cr_assert(rundir_job_path(path, "runs/", "x", NULL) == FSDP_OK);
    cr_assert_str_eq(path, under("runs/x"));
    cr_assert(rundir_job_path(path, "/", "x", NULL) == FSDP_OK);
    cr_assert_str_eq(path, "/x");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_assert(rundir_job_path(path, "runs", bad[i], &err) == FSDP_ERR_CONFIG, "\"%s\"", bad[i]);
}

Test(rundir, a_path_that_is_too_long_is_refused)
{
    static char dir[RUNDIR_PATH_BYTES + 8];
    char path[RUNDIR_PATH_BYTES];
    struct fsdp_err err = { 0 };

    memset(dir, 'a', sizeof dir - 1);
    dir[0] = '/';

    cr_assert(rundir_job_path(path, dir, "x", &err) == FSDP_ERR_CONFIG);
    cr_assert(rundir_program_path(path, dir, "x", &err) == FSDP_ERR_CONFIG);
}

Test(rundir, parents_are_made_with_the_umask)
{
    struct rundir *rundir;
    struct stat stat_of;

    umask(027);

    cr_assert(open_job(&rundir, under("a/b/c"), true, NULL) == FSDP_OK);
    cr_assert(stat(under("a/b"), &stat_of) == 0 && (stat_of.st_mode & 0777) == 0750);
    cr_assert_str_eq(rundir_path(rundir), under("a/b/c"));
    rundir_close(rundir, true);
    cr_assert(access(under("a/b/c/lock"), F_OK) == 0, "what is not temporary is never removed");
}

Test(rundir, a_second_live_job_is_refused_and_told_who_holds_it)
{
    struct rundir *first, *second;
    struct fsdp_err err = { 0 };
    char words[64];

    cr_assert(open_job(&first, under("r"), true, NULL) == FSDP_OK);
    cr_assert(open_job(&second, under("r"), true, &err) == FSDP_ERR_BUSY);
    snprintf(words, sizeof words, "(pid %d on ", (int)getpid());
    cr_assert_not_null(strstr(err.message, words), "%s", err.message);
    cr_assert_not_null(strstr(err.message, "/r"), "%s", err.message);
    cr_assert_null(second);
    cr_assert(open_job(&second, under("r"), false, NULL) == FSDP_OK,
              "a node that is no coordinator takes no lock");
    rundir_close(second, false);
    rundir_close(first, false);
    cr_assert(open_job(&second, under("r"), true, NULL) == FSDP_OK, "a file left behind means nothing");
    rundir_close(second, false);
}

Test(rundir, a_holder_that_was_killed_leaves_it_free)
{
    struct rundir *rundir;
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        if (open_job(&rundir, under("r"), true, NULL) == FSDP_OK)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    cr_assert(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));

    cr_assert(open_job(&rundir, under("r"), true, NULL) == FSDP_OK);
    rundir_close(rundir, false);
}

Test(rundir, a_file_in_the_way_is_a_bad_setting)
{
    struct rundir *rundir;
    struct fsdp_err err = { 0 };
    char path[RUNDIR_PATH_BYTES];

    close(open(under("f"), O_CREAT | O_WRONLY, 0666));

    cr_assert(open_job(&rundir, under("f"), true, &err) == FSDP_ERR_CONFIG, "%s", err.message);
    cr_assert(open_job(&rundir, under("f/x"), true, &err) == FSDP_ERR_CONFIG, "%s", err.message);
    cr_assert(rundir_program_path(path, under("f"), "none", &err) == FSDP_ERR_CONFIG, "%s", err.message);
    cr_assert_null(rundir);
}

Test(rundir, what_cannot_be_created_is_an_io_error)
{
    struct rundir *rundir;
    struct fsdp_err err = { 0 };

    cr_assert(open_job(&rundir, "/proc/self/x", true, &err) == FSDP_ERR_IO, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "/proc/self/x"));
}

Test(rundir, a_write_replaces_the_file_and_leaves_no_other)
{
    struct rundir *rundir;

    cr_assert(open_job(&rundir, under("r"), true, NULL) == FSDP_OK);
    cr_assert(rundir_write(rundir, "job.json", "one, longer", 11, NULL) == FSDP_OK);
    cr_assert(rundir_write(rundir, "job.json", "two", 3, NULL) == FSDP_OK);
    cr_assert_str_eq(slurp(under("r/job.json")), "two");
    cr_assert(access(under("r/.job.json.tmp"), F_OK) < 0);

    cr_assert(mkdir(under("r/errors.json"), 0777) == 0);
    cr_assert(rundir_write(rundir, "errors.json", "x", 1, NULL) == FSDP_ERR_IO,
              "cannot be renamed over a folder");
    cr_assert(access(under("r/.errors.json.tmp"), F_OK) < 0);
    rundir_close(rundir, false);
}

Test(rundir, an_earlier_runs_log_is_gone_on_with)
{
    struct rundir *rundir;
    char path[RUNDIR_PATH_BYTES];
    const char *text;
    int fd;

    for (int run = 0; run < 2; run++) {
        cr_assert(open_job(&rundir, under("r"), true, NULL) == FSDP_OK);
        cr_assert(rundir_open_log(rundir, 0, 3, 1, RUNDIR_STDERR, &fd, path, NULL) == FSDP_OK);
        cr_assert_str_eq(path, under("r/logs/g0/rank3/stderr.log"));
        cr_assert(write(fd, "no newline", 10) == 10);
        close(fd);
        rundir_close(rundir, false);
    }

    text = slurp(under("r/logs/g0/rank3/stderr.log"));
    cr_assert(strncmp(text, "no newline\n--- fsdprun: run of 20", 33) == 0, "%s", text);
    cr_assert_not_null(strstr(text, " ---\nno newline"), "%s", text);
}

Test(rundir, a_program_has_torchruns_layout)
{
    struct rundir *rundir;
    char path[RUNDIR_PATH_BYTES], log[RUNDIR_PATH_BYTES], want[RUNDIR_PATH_BYTES + 64],
        other[RUNDIR_PATH_BYTES];
    int fd;

    cr_assert(rundir_program_path(path, "logs/deep", "my/job", NULL) == FSDP_OK);
    cr_assert(rundir_program_path(other, "logs/deep", "my/job", NULL) == FSDP_OK);
    cr_assert(strncmp(path, under("logs/deep/my_job_"), strlen(under("logs/deep/my_job_"))) == 0, "%s", path);
    cr_assert(strlen(path) == strlen(under("logs/deep/my_job_")) + 8);
    cr_assert_str_neq(path, other);
    cr_assert(rundir_open(&rundir, &(struct rundir_spec){ .kind = RUNDIR_PROGRAM, .path = path }, NULL) ==
              FSDP_OK);
    cr_assert(rundir_open_log(rundir, 2, 9, 1, RUNDIR_STDOUT, &fd, log, NULL) == FSDP_OK);
    snprintf(want, sizeof want, "%s/attempt_2/1/stdout.log", path);
    cr_assert_str_eq(log, want);
    close(fd);
    rundir_close(rundir, false);
}

Test(rundir, a_tmpdir_that_cannot_be_used_is_as_if_there_were_none)
{
    char absent[RUNDIR_PATH_BYTES], file[RUNDIR_PATH_BYTES];

    snprintf(absent, sizeof absent, "%s/absent", top);
    snprintf(file, sizeof file, "%s/file", top);
    close(open(file, O_CREAT | O_WRONLY, 0700));
    setenv("TMPDIR", top, 1);
    cr_expect_str_eq(rundir_temporary(), top);
    setenv("TMPDIR", absent, 1);
    cr_expect_str_eq(rundir_temporary(), "/tmp");
    setenv("TMPDIR", file, 1);
    cr_expect_str_eq(rundir_temporary(), "/tmp");
    setenv("TMPDIR", "", 1);
    cr_expect_str_eq(rundir_temporary(), "/tmp");
    unsetenv("TMPDIR");
    cr_expect_str_eq(rundir_temporary(), "/tmp");
}

Test(rundir, a_temporary_directory_goes_only_when_nothing_was_kept)
{
    struct rundir *rundir;
    char path[RUNDIR_PATH_BYTES], log[RUNDIR_PATH_BYTES], parent[RUNDIR_PATH_BYTES];
    int fd;

    setenv("TMPDIR", top, 1);
    for (int with_log = 0; with_log < 2; with_log++) {
        cr_assert(rundir_program_path(path, NULL, "none", NULL) == FSDP_OK);
        snprintf(parent, sizeof parent, "%s", path);
        *strrchr(parent, '/') = '\0';
        cr_assert(
            rundir_open(&rundir,
                        &(struct rundir_spec){ .kind = RUNDIR_PROGRAM, .path = path, .temporary = true },
                        NULL) == FSDP_OK);
        cr_assert(rundir_write(rundir, "job.json", "{}", 2, NULL) == FSDP_OK);
        if (with_log) {
            cr_assert(rundir_open_log(rundir, 0, 0, 0, RUNDIR_STDOUT, &fd, log, NULL) == FSDP_OK);
            close(fd);
        }

        rundir_close(rundir, true);

        cr_assert((access(path, F_OK) == 0) == with_log);
        cr_assert((access(parent, F_OK) == 0) == with_log);
    }
}

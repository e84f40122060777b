#include "agent/record/rundir.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/agent/scratch.h"

static void set_up(void)
{
    scratch_make();
    cr_assert(chdir(scratch) == 0);
}

static struct rundir *rundir;

TestSuite(rundir, .init = set_up, .fini = scratch_remove);

static enum fsdp_status open_job(const char *path, struct fsdp_err *err)
{
    return rundir_open(&rundir, &(struct rundir_spec){ .kind = RUNDIR_JOB, .path = path, .lock = true }, err);
}

Test(rundir, a_jobs_path_is_absolute_and_its_name_one_component)
{
    static const char *const bad[] = { "", ".", "..", "a/b", "/a", "a/" };
    char path[RUNDIR_PATH_BYTES];
    struct fsdp_err err = { 0 };

    cr_assert(rundir_job_path(path, "runs/", "x", NULL) == FSDP_OK);
    cr_assert_str_eq(path, scratch_path("runs/x"));
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
    struct stat stat_of;

    umask(027);

    cr_assert(open_job(scratch_path("a/b/c"), NULL) == FSDP_OK);
    cr_assert(stat(scratch_path("a/b"), &stat_of) == 0 && (stat_of.st_mode & 0777) == 0750);
    cr_assert_str_eq(rundir_path(rundir), scratch_path("a/b/c"));
    rundir_close(rundir, true);
    cr_assert(access(scratch_path("a/b/c/lock"), F_OK) == 0, "what is not temporary is never removed");
}

Test(rundir, what_was_only_named_is_opened_later_also_after_a_failure)
{
    const struct rundir_spec spec = { .kind = RUNDIR_JOB, .path = scratch_path("f/x") };
    struct fsdp_err err = { 0 };

    cr_assert(rundir_create(&rundir, &spec, NULL) == FSDP_OK);
    cr_assert(access(scratch_path("f"), F_OK) < 0, "no file is touched");
    close(open(scratch_path("f"), O_CREAT | O_WRONLY, 0666));
    cr_assert_str_eq(rundir_path(rundir), scratch_path("f/x"));
    cr_assert(rundir_begin(rundir, &err) == FSDP_ERR_CONFIG, "%s", err.message);
    cr_assert(rundir_fd(rundir) == -1);

    cr_assert(unlink(scratch_path("f")) == 0);
    cr_assert(rundir_begin(rundir, NULL) == FSDP_OK);

    cr_assert(rundir_fd(rundir) >= 0 && access(scratch_path("f/x"), F_OK) == 0);
    cr_assert(rundir_begin(rundir, NULL) == FSDP_OK, "it is open");
    rundir_close(rundir, false);
}

Test(rundir, a_file_in_the_way_is_a_bad_setting_and_what_cannot_be_made_an_io_error)
{
    struct fsdp_err err = { 0 };
    char path[RUNDIR_PATH_BYTES];

    close(open(scratch_path("f"), O_CREAT | O_WRONLY, 0666));

    cr_assert(open_job(scratch_path("f"), &err) == FSDP_ERR_CONFIG, "%s", err.message);
    cr_assert(open_job(scratch_path("f/x"), &err) == FSDP_ERR_CONFIG, "%s", err.message);
    cr_assert(rundir_program_path(path, scratch_path("f"), "none", &err) == FSDP_ERR_CONFIG, "%s",
              err.message);
    cr_assert(open_job("/proc/self/x", &err) == FSDP_ERR_IO, "%s", err.message);
    cr_assert_not_null(strstr(err.message, "/proc/self/x"));
    cr_assert_null(rundir);
}

Test(rundir, one_that_was_renamed_emptied_or_removed_is_gone)
{
    char path[128], elsewhere[128];

    snprintf(path, sizeof path, "%s", scratch_path("r"));
    snprintf(elsewhere, sizeof elsewhere, "%s", scratch_path("elsewhere"));
    cr_assert(open_job(path, NULL) == FSDP_OK);
    cr_assert(rundir_lock(rundir, true, NULL) == FSDP_OK);
    cr_expect_not(rundir_is_gone(rundir));
    cr_assert(rename(path, elsewhere) == 0);
    cr_expect(rundir_is_gone(rundir));
    cr_assert(mkdir(path, 0777) == 0);
    cr_expect(rundir_is_gone(rundir), "another one has its name");
    cr_assert(rmdir(path) == 0 && rename(elsewhere, path) == 0);
    cr_expect_not(rundir_is_gone(rundir), "it is back");
    cr_assert(unlink(scratch_path("r/lock")) == 0);
    cr_expect(rundir_is_gone(rundir));
    rundir_close(rundir, false);
}

Test(rundir, a_write_replaces_the_file_and_leaves_no_other)
{
    cr_assert(open_job(scratch_path("r"), NULL) == FSDP_OK);
    cr_assert(rundir_write(rundir, "job.json", "one, longer", 11, NULL) == FSDP_OK);
    cr_assert(rundir_write(rundir, "job.json", "two", 3, NULL) == FSDP_OK);
    cr_assert_str_eq(scratch_read(scratch_path("r/job.json")), "two");
    cr_assert(access(scratch_path("r/.job.json.tmp"), F_OK) < 0);

    cr_assert(mkdir(scratch_path("r/errors.json"), 0777) == 0);
    cr_assert(rundir_write(rundir, "errors.json", "x", 1, NULL) == FSDP_ERR_IO,
              "cannot be renamed over a folder");
    cr_assert(access(scratch_path("r/.errors.json.tmp"), F_OK) < 0);
    rundir_close(rundir, false);
}

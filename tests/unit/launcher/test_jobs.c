#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "launcher/jobs.h"

static struct registry_job jobs[] = { { .id = "12", .name = "alpha" },
                                      { .id = "123", .name = "alpine" },
                                      { .id = "77", .name = "12 monkeys" },
                                      { .id = "90", .name = "twice" },
                                      { .id = "91", .name = "twice" } };
static const struct registry_list list = { .jobs = jobs, .n = sizeof jobs / sizeof *jobs };
static struct fsdp_err err;

static const char *found(const char *name)
{
    const struct registry_job *job;
    const enum fsdp_status status = jobs_find(&job, &list, name, &err);

    return status == FSDP_OK ? job->id : fsdp_status_name(status);
}

Test(jobs, are_found_by_id_name_and_prefix)
{
    cr_assert(eq(str, (char *)found("123"), "123"));
    cr_assert(eq(str, (char *)found("alpine"), "123"));
    cr_assert(eq(str, (char *)found("alpi"), "123"));
    cr_assert(eq(str, (char *)found("7"), "77"));
}

Test(jobs, a_whole_id_wins_over_prefixes)
{
    cr_assert(eq(str, (char *)found("12"), "12"));
}

Test(jobs, several_are_refused_and_named)
{
    cr_assert(eq(str, (char *)found("1"), "config"));
    cr_assert(eq(str, (char *)found("alp"), "config"));
    cr_assert_not_null(strstr(err.message, "12 (alpha), 123 (alpine)"), "%s", err.message);
    cr_assert(eq(str, (char *)found("twice"), "config"));
}

Test(jobs, of_a_killed_one_the_run_directory_is_named)
{
    struct registry_job lost[] = { { .id = "55", .name = "gone", .run_dir = "/runs/older" },
                                   { .id = "56", .name = "gone", .run_dir = "/runs/newer" },
                                   { .id = "57", .name = "gone-too", .run_dir = "/runs/other" } };
    const struct registry_list with_lost = { .lost = lost, .n_lost = 3 };
    const struct registry_job *job;

    cr_assert(eq(int, jobs_find(&job, &with_lost, "gone", &err), FSDP_ERR_NOT_FOUND));
    cr_assert_not_null(strstr(err.message, "job 56 was killed"), "%s", err.message);
    cr_assert_not_null(strstr(err.message, ": /runs/newer"), "%s", err.message);
    cr_assert(eq(int, jobs_find(&job, &with_lost, "55", &err), FSDP_ERR_NOT_FOUND));
    cr_assert_not_null(strstr(err.message, ": /runs/older"), "%s", err.message);
}

Test(jobs, a_run_is_a_whole_name_then_a_directory_then_a_prefix)
{
    struct registry_job run;

    cr_assert(eq(int, chdir("/"), 0)); /* "tmp" is a directory here, as are "." and "/" */
    cr_assert(eq(int, jobs_find_run(&run, &list, "alpi", &err), FSDP_OK));
    cr_assert(eq(str, run.id, "123"));
    cr_assert(eq(int, jobs_find_run(&run, &list, "tmp", &err), FSDP_OK));
    cr_assert(run.pid == 0 && strcmp(run.run_dir, "tmp") == 0);
    snprintf(jobs[0].name, sizeof jobs[0].name, "tmpfile");
    cr_assert(eq(int, jobs_find_run(&run, &list, "tmp", &err), FSDP_OK));
    cr_assert(eq(str, run.run_dir, "tmp"));
    snprintf(jobs[0].name, sizeof jobs[0].name, "tmp");
    cr_assert(eq(int, jobs_find_run(&run, &list, "tmp", &err), FSDP_OK));
    cr_assert(eq(str, run.id, "12"));
    cr_assert(eq(int, jobs_find_run(&run, &list, "none", &err), FSDP_ERR_NOT_FOUND));
}

Test(jobs, none_is_none)
{
    cr_assert(eq(str, (char *)found("beta"), "not_found"));
    cr_assert(eq(str, (char *)found("alphabet"), "not_found"));
}

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

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

Test(jobs, none_is_none)
{
    cr_assert(eq(str, (char *)found("beta"), "not_found"));
    cr_assert(eq(str, (char *)found("alphabet"), "not_found"));
}

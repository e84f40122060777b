#include <criterion/criterion.h>
#include <criterion/parameterized.h>
#include <string.h>

#include "launcher/gpu_lease.h"

enum { NOT_GIVEN = -1 };

struct row {
    char job[8], device[8]; /* run.device, "" for a program; FSDP_DEVICE, "" where it is not set */
    int asked, n_workers, n_visible;
    bool is_listed;
    int want;
};

static struct row rows[] = {
    { "", "", NOT_GIVEN, 2, 4, false, 2 },        /* one for each worker */
    { "", "", NOT_GIVEN, 8, 4, false, 4 },        /* they share */
    { "", "", NOT_GIVEN, 8, 0, false, 0 },        /* a node without GPUs */
    { "", "", NOT_GIVEN, 1, 3, true, 3 },         /* all that the user names */
    { "", "", NOT_GIVEN, 1, 0, true, 0 },         /* the list hides all */
    { "", "cpu", NOT_GIVEN, 2, 4, false, 2 },     /* a word for jobs */
    { "", "", 0, 2, 4, false, 0 },                /* said */
    { "", "", 3, 1, 4, true, 3 },                 /* said, of a list */
    { "", "", 5, 1, 4, false, 5 },                /* too many: the caller refuses */
    { "cpu", "", NOT_GIVEN, 2, 4, false, 0 },     /* uses none */
    { "cpu", "", NOT_GIVEN, 2, 4, true, 0 },      /* nor those that are named */
    { "cpu", "", 1, 2, 4, false, 1 },             /* said */
    { "auto", "", NOT_GIVEN, 4, 4, false, 4 },    /* there are enough */
    { "auto", "", NOT_GIVEN, 5, 4, false, 0 },    /* too few: it takes the CPU */
    { "auto", "cpu", NOT_GIVEN, 2, 4, false, 0 }, /* FSDP_DEVICE decides */
    { "auto", "cuda", NOT_GIVEN, 5, 4, false, 4 },
    { "cuda", "cpu", NOT_GIVEN, 2, 4, false, 2 }, /* it does not decide for a job that says cuda */
    { "cuda", "", NOT_GIVEN, 8, 4, false, 4 },    /* they share (run.collectives: cpu) */
};

ParameterizedTestParameters(gpu_lease, asks_for_what_the_job_uses)
{
    return cr_make_param_array(struct row, rows, sizeof rows / sizeof *rows);
}

ParameterizedTest(struct row *row, gpu_lease, asks_for_what_the_job_uses)
{
    struct job job = { .run = { .device = row->job } };

    const int n = gpu_lease_wanted(row->asked, row->job[0] != '\0' ? &job : NULL,
                                   row->device[0] != '\0' ? row->device : NULL, row->n_workers,
                                   row->n_visible, row->is_listed);

    cr_assert_eq(n, row->want, "row %td: %d", row - rows, n);
}

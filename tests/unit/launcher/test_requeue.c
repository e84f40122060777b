#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/requeue.h"

static char folder[32], path[64];

/* A scontrol that is this shell script, and no other program on PATH but those of /bin and /usr/bin. */
static void make_scontrol(const char *script)
{
    FILE *file;

    strcpy(folder, "/tmp/fsdp-requeue-XXXXXX");
    cr_assert(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/scontrol", folder);
    file = fopen(path, "w");
    cr_assert(file != NULL);
    fprintf(file, "#!/bin/sh\n%s\n", script);
    fclose(file);
    chmod(path, 0700);
    setenv("PATH", folder, 1);
}

static void remove_scontrol(void)
{
    unlink(path);
    rmdir(folder);
}

TestSuite(requeue, .fini = remove_scontrol, .timeout = 60);

Test(requeue, scontrol_is_told_the_job)
{
    make_scontrol("[ \"$*\" = 'requeue 12' ]");

    cr_expect(eq(int, requeue("12", 50000, NULL), FSDP_OK));
}

Test(requeue, what_slurm_says_against_it_is_the_error)
{
    struct fsdp_err err = { 0 };

    make_scontrol("echo 'Requested operation is presently disabled for job 12' >&2; echo more; exit 1");

    cr_expect(eq(int, requeue("12", 50000, &err), FSDP_ERR_IO));
    cr_expect(
        eq(str, err.message, "scontrol requeue 12: Requested operation is presently disabled for job 12"));
}

Test(requeue, more_words_than_a_line_has_stop_nothing)
{
    make_scontrol(
        "i=0; while [ $i -lt 20000 ]; do echo a line of words that fill the pipe; i=$((i + 1)); done");

    cr_expect(eq(int, requeue("12", 50000, NULL), FSDP_OK));
}

Test(requeue, the_signals_by_which_slurm_stops_the_job_end_neither)
{
    make_scontrol("kill -TERM $$ $PPID; exit 0");

    signal(SIGTERM, SIG_IGN);
    cr_expect(eq(int, requeue("12", 50000, NULL), FSDP_OK));
}

Test(requeue, an_answer_that_does_not_come_is_not_waited_for_for_ever)
{
    struct fsdp_err err = { 0 };

    make_scontrol("while :; do :; done");

    cr_expect(eq(int, requeue("12", 200, &err), FSDP_ERR_IO));
    cr_expect(strstr(err.message, "no answer for") != NULL, "%s", err.message);
}

Test(requeue, without_scontrol_it_is_an_error)
{
    struct fsdp_err err = { 0 };

    make_scontrol("");
    unlink(path);

    cr_expect(eq(int, requeue("12", 50000, &err), FSDP_ERR_IO));
    cr_expect(eq(str, err.message, "scontrol: No such file or directory"));
}

Test(requeue, a_preempted_job_is_asked_for)
{
    make_scontrol("[ \"$*\" = 'show job 12' ] && echo 'JobId=12 PreemptTime=2026-11-28T04:59:11'");
    cr_expect(eq(int, requeue_is_preempted("12", 50000), true));
    cr_expect(eq(int, requeue_is_preempted("13", 50000), false));
    remove_scontrol();
    make_scontrol("echo 'JobId=12 PreemptTime=2026-11-28T04:59:11'; exit 1");
    cr_expect(eq(int, requeue_is_preempted("12", 50000), false));
}

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "launcher/job_words.h"

static struct job_words said;
static struct fsdp_err err;

/* Read `line`, split at spaces: the name of a command, and its words. */
static enum fsdp_status words_of(const char *line)
{
    static char copy[256];
    char *words[16], *rest = copy;
    int n = 0;

    snprintf(copy, sizeof copy, "%s", line);
    while (n < 16 && (words[n] = strsep(&rest, " ")) != NULL)
        n++;
    cr_assert_not_null(what_job_command(words[0]));
    return job_words_read(&said, what_job_command(words[0]), words + 1, n - 1, &err);
}

static void accepts(const char *line)
{
    cr_assert(eq(int, words_of(line), FSDP_OK), "%s: %s", line, err.message);
}

static void refuses(const char *line, const char *why)
{
    cr_assert(eq(int, words_of(line), FSDP_ERR_CONFIG), "%s", line);
    cr_assert_not_null(strstr(err.message, why), "%s: %s", line, err.message);
}

Test(job_words, options_stand_before_and_after_the_job)
{
    accepts("logs -f --rank 3 tiny");
    cr_assert(said.follow && said.rank == 3 && strcmp(said.job, "tiny") == 0);
    accepts("logs tiny --rank=12 --follow");
    cr_assert(said.follow && said.rank == 12 && strcmp(said.job, "tiny") == 0);
    accepts("stop --save --json -- -odd");
    cr_assert(said.save && said.json && strcmp(said.job, "-odd") == 0);
    accepts("inspect --agent /run/a.sock tiny");
    cr_assert(strcmp(said.agent, "/run/a.sock") == 0 && strcmp(said.job, "tiny") == 0);
    accepts("ps -q --names --json");
    cr_assert(said.quiet && said.names && said.json && said.job == NULL && said.agent == NULL);
}

Test(job_words, stop_takes_several_jobs)
{
    accepts("stop a --save b -- -c");
    cr_assert(eq(sz, said.n_others, 2));
    cr_assert(said.save && strcmp(said.job, "a") == 0);
    cr_assert(eq(str, (char *)said.others[0], "b"));
    cr_assert(eq(str, (char *)said.others[1], "-c"));
    job_words_fini(&said);
    refuses("logs a b", "unexpected argument: b");
}

Test(job_words, without_a_rank_all_are_meant)
{
    accepts("logs x");
    cr_assert(eq(int, said.rank, -1));
}

Test(job_words, a_page_needs_no_job)
{
    accepts("stop --help");
    cr_assert(said.help);
    accepts("ps -h");
    cr_assert(said.help);
}

Test(job_words, what_is_wrong_is_said)
{
    refuses("status", "which job?");
    refuses("status ", "which job?");
    refuses("status a b", "unexpected argument: b");
    refuses("ps tiny", "unexpected argument: tiny");
    refuses("status --rank 3 a", "status has no option --rank");
    refuses("ps --jsn", "ps has no option --jsn; did you mean --json?");
    refuses("logs --folow=1 a", "did you mean --follow?");
    refuses("ps --elephant", "ps has no option --elephant");
    cr_expect_null(strstr(err.message, "did you mean"), "%s", err.message);
    refuses("stop -f a", "no option -f");
    refuses("logs --follow=yes a", "--follow takes no value");
    refuses("logs a --rank", "--rank needs a value");
    refuses("logs --rank x a", "not \"x\"");
    refuses("logs --rank -1 a", "not \"-1\"");
    refuses("logs --tail x a", "--tail takes a number of lines, not \"x\"");
    refuses("logs --tail -1 a", "not \"-1\"");
    refuses("logs --rank= a", "not \"\"");
    refuses("logs --rank 99999999999999999999 a", "number of a rank");
}

Test(job_words, every_command_over_jobs_takes_json)
{
    for (size_t i = 0; i < what_subcommands_size; i++) {
        const struct subcommand *command = &what_subcommands[i];
        char line[128];

        if (command->usage == NULL)
            continue;
        snprintf(line, sizeof line, "%s --json%s", command->name, what_takes_job(command) ? " a" : "");
        accepts(line);
        cr_expect(said.json, "%s", line);
    }
}

/* Every option of the table changes something, so none is forgotten in the reader. */
Test(job_words, every_option_of_the_table_is_read)
{
    for (size_t i = 0; i < what_subcommands_size; i++) {
        const struct subcommand *command = &what_subcommands[i];
        struct job_words without;

        if (command->usage == NULL)
            continue;
        for (const struct subcommand_option *option = command->options; option->name != NULL; option++) {
            char line[128];

            snprintf(line, sizeof line, "%s job", command->name);
            if (!what_takes_job(command))
                *strchr(line, ' ') = '\0';
            accepts(line);
            without = said;
            snprintf(line + strlen(line), sizeof line - strlen(line), " --%s%s", option->name,
                     option->argument != NULL ? "=7" : "");
            accepts(line);
            said.job = without.job;
            cr_assert_neq(memcmp(&said, &without, sizeof said), 0, "%s", line);
        }
    }
}

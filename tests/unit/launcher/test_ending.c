#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "launcher/ending.h"

static char text[1024];

static void says(const struct ending *ending, const char *want)
{
    cr_assert(eq(sz, ending_words(ending, text, sizeof text), strlen(want)));
    cr_assert(eq(str, text, (char *)want));
}

Test(ending, a_job_that_is_complete_says_what_it_did_and_how_to_see_it)
{
    says(&(struct ending){ .steps = 160,
                           .total_steps = 160,
                           .seconds = 41,
                           .tokens_per_s = 42444,
                           .n_restarts = 1,
                           .restarting_s = 2.6,
                           .n_repeated = 4,
                           .saved = true,
                           .saved_step = 160,
                           .resumes = true,
                           .run_dir = "runs/demo",
                           .summary = "s.json" },
         "fsdprun: 160 of 160 steps done after 0:41, 42.4k tokens/s\n"
         "fsdprun: 1 restart cost 0:03, and 4 steps were done again\n"
         "fsdprun: checkpoint: runs/demo/checkpoints/step-00000160\n"
         "fsdprun: logs: runs/demo/logs; summary: s.json\n"
         "fsdprun: next: fsdprun plot runs/demo\n");
}

Test(ending, one_that_stopped_says_how_to_go_on)
{
    struct ending ending = { .status = 143,
                             .steps = 45,
                             .total_steps = 160,
                             .seconds = 4000,
                             .saved = true,
                             .saved_step = 40,
                             .resumes = true,
                             .run_dir = "r" };

    says(&ending, "fsdprun: at least 45 of 160 steps done after 1:06:40\n"
                  "fsdprun: checkpoint: r/checkpoints/step-00000040\n"
                  "fsdprun: logs: r/logs\n"
                  "fsdprun: next: the same command goes on from step 40\n");
    ending.checkpoint_dir = "s3://b/p";
    ending.resumes = false; /* checkpoint.resume: never */
    says(&ending, "fsdprun: at least 45 of 160 steps done after 1:06:40\n"
                  "fsdprun: checkpoint: s3://b/p/step-00000040\n"
                  "fsdprun: logs: r/logs\n");
    ending.saved = false;
    ending.resumes = true;
    says(&ending, "fsdprun: at least 45 of 160 steps done after 1:06:40\n"
                  "fsdprun: logs: r/logs\n");
}

Test(ending, a_directory_stands_as_a_shell_takes_it)
{
    ending_words(&(struct ending){ .run_dir = "my runs/$x" }, text, sizeof text);
    cr_assert_not_null(strstr(text, "fsdprun plot 'my runs/$x'\n"), "%s", text);
}

Test(ending, a_program_says_what_its_restarts_cost)
{
    cr_assert(gt(sz, ending_program_words(2, 7.2, "/scratch/ann/logs/train_x7q2k9dm", text, sizeof text), 0));
    cr_expect(
        eq(str, text, (char *)"fsdprun: 2 restarts cost 0:07; logs: /scratch/ann/logs/train_x7q2k9dm\n"));
    cr_assert(gt(sz, ending_program_words(1, 61, NULL, text, sizeof text), 0));
    cr_expect(eq(str, text, (char *)"fsdprun: 1 restart cost 1:01\n"));
}

Test(ending, only_whole_lines_are_said)
{
    const struct ending ending = { .steps = 7, .total_steps = 7, .run_dir = "a/long/directory" };
    const size_t all = ending_words(&ending, text, sizeof text);

    for (size_t size = 1; size <= all; size++) {
        const size_t n = ending_words(&ending, text, size);

        cr_assert(eq(sz, n, strlen(text)));
        cr_assert(n == 0 || text[n - 1] == '\n', "%zu: %s", size, text);
    }
}

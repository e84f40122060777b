#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <math.h>

#include <fsdp/link.h>

#include "agent/desk/job_view.h"

static const char *text_of(const struct job_view *view, bool workers)
{
    static char bytes[4096];
    struct json_text text = json_text_fixed(bytes, sizeof bytes);

    json_open(&text, NULL, '{');
    job_view_put(&text, view);
    if (workers)
        job_view_put_workers(&text, view);
    json_close(&text, '}');
    cr_assert(not(text.failed));
    return bytes;
}

Test(job_view, has_the_members_of_the_contract)
{
    const struct job_view view = { .id = "17",
                                   .name = "a \"b\"",
                                   .state = JOB_RUNNING,
                                   .n_nodes = 2,
                                   .n_ranks = 16,
                                   .generation = 3,
                                   .step = 40,
                                   .loss = 2.5,
                                   .tokens_per_s = 1e6,
                                   .n_restarts = 1,
                                   .age_s = 61.25,
                                   .run_dir = "/runs/a" };

    cr_assert(eq(str, (char *)text_of(&view, false),
                 "{\"job\": \"17\", \"name\": \"a \\\"b\\\"\", \"state\": \"running\", \"nodes\": 2, "
                 "\"ranks\": 16, \"generation\": 3, \"step\": 40, \"loss\": 2.5, \"tokens_per_s\": 1000000, "
                 "\"restarts\": 1, \"age_s\": 61.250, \"run_dir\": \"/runs/a\"}"));
}

Test(job_view, a_queued_job_says_for_what_it_waits)
{
    const struct job_view view = {
        .id = "1", .name = "x", .state = JOB_QUEUED, .waits_for = "waits for 1 GPU"
    };

    cr_assert_not_null(strstr(text_of(&view, false), "\"state\": \"queued\""));
    cr_assert_not_null(strstr(text_of(&view, false), "\"waits_for\": \"waits for 1 GPU\"}"));
}

Test(job_view, what_is_not_known_is_null)
{
    const struct job_worker workers[] = {
        { .rank = 4,
          .pid = 9,
          .phase = FSDP_PHASE_BACKWARD,
          .step = 7,
          .gpu = "0000:3b:00.0",
          .gpu_percent = 97,
          .gpu_memory_bytes = 1 << 30 },
        { .rank = 5, .pid = 0, .phase = -1, .step = -1, .gpu_percent = -1, .gpu_memory_bytes = -1 }
    };
    const struct job_view view = { .id = "1",
                                   .name = "x",
                                   .step = -1,
                                   .loss = (double)NAN,
                                   .tokens_per_s = (double)INFINITY,
                                   .node_rank = -1,
                                   .workers = workers,
                                   .n_workers = 2 };

    cr_assert(
        eq(str, (char *)text_of(&view, true),
           "{\"job\": \"1\", \"name\": \"x\", \"state\": \"starting\", \"nodes\": 0, \"ranks\": 0, "
           "\"generation\": 0, \"step\": null, \"loss\": null, \"tokens_per_s\": null, "
           "\"restarts\": 0, \"age_s\": 0.000, \"run_dir\": null, \"workers\": [{\"rank\": 4, "
           "\"node\": null, \"pid\": 9, \"phase\": \"backward\", \"step\": 7, "
           "\"gpu\": \"0000:3b:00.0\", \"gpu_percent\": 97, \"gpu_memory_bytes\": 1073741824}, {\"rank\": 5, "
           "\"node\": null, \"pid\": null, \"phase\": null, \"step\": null, \"gpu\": null, "
           "\"gpu_percent\": null, \"gpu_memory_bytes\": null}]}"));
}

Test(job_view, states_have_the_names_of_the_contract)
{
    static const char *const names[] = { "starting", "running", "restarting", "stopping",
                                         "complete", "failed",  "queued" };

    for (int i = 0; i < JOB_STATES; i++)
        cr_assert(eq(str, (char *)job_state_name((enum job_state)i), (char *)names[i]));
}

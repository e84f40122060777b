#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <string.h>

#include "launcher/summary.h"

static const struct moment {
    int64_t ms;
    const char *line;
} program[] = {
    { 1100, "{\"event\": \"spawn\", \"generation\": 0, \"rank\": 0, \"pid\": 7}" },
    { 1105, "{\"event\": \"spawn\", \"generation\": 0, \"rank\": 1, \"pid\": 8}" },
    { 3100, "{\"event\": \"exit\", \"generation\": 0, \"rank\": 1, \"code\": 3}" },
    { 3400, "{\"event\": \"exit\", \"generation\": 0, \"rank\": 0, \"signal\": 15}" },
    { 3410, "{\"event\": \"restart\", \"generation\": 1, \"restart\": 1}" },
    { 4000, "{\"event\": \"spawn\", \"generation\": 1, \"rank\": 0, \"pid\": 9}" },
    { 4500, "{\"event\": \"exit\", \"generation\": 1, \"rank\": 0, \"code\": 0}" },
    { 4600, "{\"event\": \"exit\", \"generation\": 1, \"rank\": 1, \"code\": 4}" },
}, job[] = {
    { 1200, "{\"event\": \"spawn\", \"generation\": 0, \"rank\": 0, \"pid\": 7}" },
    { 1500, "{\"event\": \"first_step\", \"generation\": 0, \"rank\": 0, \"step\": 1}" },
    { 1800, "{\"event\": \"checkpoint\", \"generation\": 0, \"step\": 40}" },
    { 1900, "no line of ours" },
    { 2000, "{\"event\": \"membership\", \"generation\": 1, \"nodes\": 1}" },
    { 2100, "{\"event\": \"spawn\", \"generation\": 1, \"rank\": 0, \"pid\": 9}" },
    { 2700, "{\"event\": \"first_step\", \"generation\": 1, \"rank\": 0, \"step\": 11}" },
    { 4900, "{\"event\": \"complete\", \"generation\": 1}" },
};

static void is_summary(const struct agent_config *config, const struct moment *moments, size_t n,
                       const char *want)
{
    struct json_text text = { 0 };
    struct summary summary;

    summary_init(&summary, config, 1000);
    for (size_t i = 0; i < n; i++)
        summary_event(&summary, moments[i].line, moments[i].ms);
    summary_add(&summary, 0, 5000, &text);
    cr_expect(eq(str, text.bytes, (char *)want));
    json_text_free(&text);
}

Test(summary, a_program_loses_the_time_from_a_failure_to_the_next_workers)
{
    struct agent_config config;

    agent_config_init(&config);
    is_summary(&config, program, sizeof program / sizeof *program,
               "{\"status\": 0, \"generations\": 2, \"restarts\": 1, \"seconds\": 4.000, \"seconds_by\": "
               "{\"waiting\": 0.000, \"starting\": 0.100, \"training\": 3.000, \"saving\": 0.000, "
               "\"restarting\": 0.900}, \"saves\": 0, \"failures\": 0, \"effective\": 0.7500, "
               "\"advice\": null, \"first_cause\": null, \"run_dir\": null}\n");
}

Test(summary, a_job_of_nodes_waits_starts_and_loses_the_time_to_its_next_first_step)
{
    struct agent_config config;

    agent_config_init(&config);
    config.n_nodes = 2;
    config.job_json = "{}";
    config.total_steps = 50;
    is_summary(&config, job, sizeof job / sizeof *job,
               "{\"status\": 0, \"generations\": 2, \"restarts\": 0, \"steps\": 50, "
               "\"steps_repeated\": 0, \"seconds\": 4.000, \"seconds_by\": {\"waiting\": 0.200, "
               "\"starting\": 0.300, \"training\": 2.800, \"saving\": 0.000, \"restarting\": 0.700}, "
               "\"saves\": 1, \"failures\": 0, \"effective\": 0.7000, \"advice\": null, \"first_cause\": "
               "null, \"run_dir\": null}\n");
    is_summary(&config, job, 3,
               "{\"status\": 0, \"generations\": 1, \"restarts\": 0, \"steps\": 40, "
               "\"steps_repeated\": 0, \"seconds\": 4.000, \"seconds_by\": {\"waiting\": 0.200, "
               "\"starting\": 0.300, \"training\": 3.500, \"saving\": 0.000, \"restarting\": 0.000}, "
               "\"saves\": 1, \"failures\": 0, \"effective\": 0.8750, \"advice\": null, \"first_cause\": "
               "null, \"run_dir\": null}\n");
}

/*
 * The first step of rank 0 may be read after rank 1 has died. And a worker may put any step into its
 * event.
 */
Test(summary, what_comes_out_of_order_or_is_nonsense_leaves_it_valid)
{
    static const struct moment late[] = {
        { 1200, "{\"event\": \"spawn\", \"generation\": 0, \"rank\": 0, \"pid\": 7}" },
        { 1500, "{\"event\": \"exit\", \"generation\": 0, \"rank\": 1, \"signal\": 9}" },
        { 1503, "{\"event\": \"first_step\", \"generation\": 0, \"rank\": 0, \"step\": 1}" },
        { 1504, "{\"event\": \"checkpoint\", \"generation\": 0, \"step\": -1, \"blocked_s\": 3}" },
        { 1505, "{\"event\": \"timeline\", \"lost_steps\": -3, \"lost_s\": null}" },
        { 1600, "{\"event\": \"restart\", \"generation\": 1}" },
    };
    struct agent_config config;

    agent_config_init(&config);
    config.job_json = "{}";
    is_summary(&config, late, sizeof late / sizeof *late,
               "{\"status\": 0, \"generations\": 1, \"restarts\": 1, \"steps\": 1, "
               "\"steps_repeated\": 0, \"seconds\": 4.000, \"seconds_by\": {\"waiting\": 0.000, "
               "\"starting\": 0.503, \"training\": 0.000, \"saving\": 0.000, \"restarting\": 3.497}, "
               "\"saves\": 1, \"failures\": 0, \"effective\": 0.0000, \"advice\": null, \"first_cause\": "
               "null, \"run_dir\": null}\n");
}

/* 20 steps in 2.0 s of training, and 0.8 s of saves; then 4 steps again, of which each takes 0.1 s. */
Test(summary, saves_are_no_training_and_repeated_steps_are_not_effective)
{
    static const struct moment moments[] = {
        { 1000, "{\"event\": \"spawn\", \"generation\": 0, \"rank\": 0, \"pid\": 7}" },
        { 1500, "{\"event\": \"first_step\", \"generation\": 0, \"rank\": 0, \"step\": 1}" },
        { 2400, "{\"event\": \"checkpoint\", \"generation\": 0, \"step\": 6, \"blocked_s\": 0.4}" },
        { 3300, "{\"event\": \"checkpoint\", \"generation\": 0, \"step\": 11, \"blocked_s\": 0.4}" },
        { 3700, "{\"event\": \"exit\", \"generation\": 0, \"rank\": 0, \"signal\": 9}" },
        { 3710, "{\"event\": \"failure\", \"generation\": 0, \"rank\": 0}" },
        { 3710, "{\"event\": \"restart\", \"generation\": 1, \"restart\": 1}" },
        { 4200, "{\"event\": \"first_step\", \"generation\": 1, \"rank\": 0, \"step\": 12}" },
        { 4200, "{\"event\": \"timeline\", \"generation\": 1, \"lost_steps\": 4, \"lost_s\": 0.4}" },
    };
    struct agent_config config;
    struct summary summary;
    struct cost cost;

    agent_config_init(&config);
    config.job_json = "{}";
    summary_init(&summary, &config, 1000);
    for (size_t i = 0; i < sizeof moments / sizeof *moments; i++) {
        summary_event(&summary, moments[i].line, moments[i].ms);
        if (moments[i].ms == 3300)
            summary_steps(&summary, 15);
    }
    summary_steps(&summary, 18);
    cost = summary_cost(&summary, 4800);

    cr_expect(ieee_ulp_eq(dbl, cost.seconds, 3.8, 4));
    cr_expect(ieee_ulp_eq(dbl, cost.training_s, 2.0, 4));
    cr_expect(ieee_ulp_eq(dbl, cost.saving_s, 0.8, 4));
    cr_expect(ieee_ulp_eq(dbl, cost.step_s, 0.1, 4));
    cr_expect(ieee_ulp_eq(dbl, cost.save_s, 0.4, 4));
    cr_expect(ieee_ulp_eq(dbl, cost_effective(&cost), 1.6 / 3.8, 4));
    cr_expect(cost.n_restarts == 0 && cost.n_failures == 1, "no rank of generation 1 was spawned");
}

Test(summary, many_saves_of_less_than_a_millisecond_add_up)
{
    struct agent_config config;
    struct json_text text = { 0 };
    struct summary summary;

    agent_config_init(&config);
    summary_init(&summary, &config, 1000);
    summary_event(&summary, "{\"event\": \"spawn\", \"generation\": 0, \"rank\": 0, \"pid\": 7}", 1100);
    summary_event(&summary, "{\"event\": \"first_step\", \"generation\": 0, \"rank\": 0, \"step\": 1}", 1200);
    for (int i = 0; i < 100; i++)
        summary_event(&summary,
                      "{\"event\": \"checkpoint\", \"generation\": 0, \"step\": 6, \"blocked_s\": 0.0005}",
                      1300 + i);
    summary_add(&summary, 0, 5000, &text);
    cr_expect_not_null(strstr(text.bytes, "\"saving\": 0.050"), "%s", text.bytes);
    json_text_free(&text);
}

/* Of three restarts this node has seen one. */
Test(summary, a_node_that_takes_the_lead_sums_up_what_it_leads)
{
    static const struct moment moments[] = {
        { 3000,
          "{\"event\": \"takeover\", \"generation\": 4, \"host\": \"h\", \"term\": 2, \"restarts\": 2}" },
        { 3500, "{\"event\": \"spawn\", \"generation\": 4, \"rank\": 0, \"pid\": 7}" },
        { 4000, "{\"event\": \"exit\", \"generation\": 4, \"rank\": 0, \"signal\": 9}" },
        { 4010, "{\"event\": \"failure\", \"generation\": 4, \"rank\": 0}" },
        { 4010, "{\"event\": \"restart\", \"generation\": 5, \"restart\": 3}" },
    };
    struct agent_config config;

    agent_config_init(&config);
    config.n_nodes = 2;
    is_summary(&config, moments, sizeof moments / sizeof *moments,
               "{\"status\": 0, \"generations\": 5, \"restarts\": 3, \"seconds\": 2.000, \"seconds_by\": "
               "{\"waiting\": 0.000, \"starting\": 0.000, \"training\": 0.500, \"saving\": 0.000, "
               "\"restarting\": 1.500}, \"saves\": 0, \"failures\": 2, \"effective\": 0.2500, "
               "\"advice\": null, \"first_cause\": null, \"run_dir\": null}\n");
}

Test(summary, a_signal_that_asks_for_a_save_is_kept_and_whether_a_step_was_done)
{
    struct agent_config config;
    struct summary summary;

    agent_config_init(&config);
    summary_init(&summary, &config, 0);
    summary_event(&summary, "{\"event\": \"notice\", \"generation\": 0, \"signal\": \"SIGTERM\"}", 1);
    cr_expect(eq(int, summary.notice, SIGTERM));
    cr_expect(eq(int, summary.has_trained, false));
    summary_event(&summary, "{\"event\": \"first_step\", \"generation\": 0, \"rank\": 0, \"step\": 1}", 2);
    summary_event(&summary, "{\"event\": \"notice\", \"generation\": 0, \"signal\": 10}", 3);
    summary_event(&summary, "{\"event\": \"notice\", \"generation\": 0, \"signal\": \"SIGUSR1\"}", 3);
    cr_expect(eq(int, summary.notice, SIGUSR1));
    cr_expect(eq(int, summary.has_trained, true));
}

/* The time before the first token, and from one generation to the next, is no training. */
Test(summary, the_pace_is_that_of_the_steps)
{
    struct agent_config config = { 0 };
    struct summary summary;

    summary_init(&summary, &config, 0);
    cr_assert(eq(dbl, summary_tokens_per_s(&summary), 0));
    summary_progress(&summary, &(struct agent_progress){ .n_live = 2 }, 5000);
    summary_progress(&summary, &(struct agent_progress){ .n_live = 2, .tokens = 100, .step = 1 }, 6000);
    summary_progress(&summary, &(struct agent_progress){ .n_live = 2, .tokens = 300, .step = 3 }, 7000);
    summary_progress(&summary, &(struct agent_progress){ .n_live = 2, .tokens = 300, .step = 3 }, 9000);
    cr_assert(eq(dbl, summary_tokens_per_s(&summary), 200));
    summary_progress(
        &summary, &(struct agent_progress){ .n_live = 2, .tokens = 200, .step = 2, .generation = 1 }, 50000);
    summary_progress(
        &summary, &(struct agent_progress){ .n_live = 2, .tokens = 600, .step = 6, .generation = 1 }, 51000);
    cr_assert(eq(dbl, summary_tokens_per_s(&summary), 300));
    cr_assert(eq(u64, summary.steps, 6));
}

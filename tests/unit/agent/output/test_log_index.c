/* index.jsonl: one line a worker. */
#include "agent/output/log_index.h"

#include "tests/unit/agent/scratch.h"

static const struct log_index_entry entry = { .generation = 2,
                                              .node_rank = 1,
                                              .rank = 12,
                                              .local_rank = 4,
                                              .pid = 4242,
                                              .host = "n\"1",
                                              .has_stderr = true };

Test(log_index, a_line_is_an_object_with_paths_beside_it)
{
    char line[4096];

    cr_assert(log_index_line(line, sizeof line, &entry, 1.5) == strlen(line));
    cr_assert_str_eq(line, "{\"time\": 1.500000, \"rank\": 12, \"local_rank\": 4, \"node_rank\": 1, "
                           "\"host\": \"n\\\"1\", \"pid\": 4242, \"stdout\": null, "
                           "\"stderr\": \"4/stderr.log\", \"error_file\": \"4/error.json\"}\n");
}

Test(log_index, a_jobs_ranks_are_global_and_have_no_error_file)
{
    struct log_index_entry job = entry;
    char line[4096];

    job.of_job = job.has_stdout = true;
    log_index_line(line, sizeof line, &job, 1.5);
    cr_assert_str_eq(strstr(line, "\"stdout\""), "\"stdout\": \"rank12/stdout.log\", "
                                                 "\"stderr\": \"rank12/stderr.log\", "
                                                 "\"error_file\": null}\n");
}

Test(log_index, what_does_not_fit_is_no_line)
{
    char line[4096];
    const size_t n = log_index_line(line, sizeof line, &entry, 1.5);

    cr_assert(log_index_line(line, n, &entry, 1.5) == 0);
    cr_assert(log_index_line(line, n + 1, &entry, 1.5) == n);
}

Test(log_index, each_node_of_a_job_has_its_own_of_each_generation, .init = scratch_make,
     .fini = scratch_remove)
{
    const struct rundir_spec spec = { .kind = RUNDIR_JOB, .path = scratch };
    struct log_index_entry job = entry;
    struct rundir *rundir;

    job.of_job = true;
    cr_assert(rundir_open(&rundir, &spec, NULL) == FSDP_OK && log_index_add(rundir, &job, NULL) == FSDP_OK);
    rundir_close(rundir, false);
    cr_assert(strlen(scratch_read(scratch_path("logs/g2/index.node1.jsonl"))) > 0);
}

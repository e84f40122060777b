/* index.jsonl: one line a worker. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/output/log_index.h"

static const struct log_index_entry entry = { .generation = 2,
                                              .node_rank = 1,
                                              .rank = 12,
                                              .local_rank = 4,
                                              .pid = 4242,
                                              .host = "n\"1",
                                              .has_stderr = true };

static const char *text_of(const cJSON *object, const char *key)
{
    const cJSON *item = cJSON_GetObjectItem(object, key);

    return cJSON_IsNull(item) ? "null" : cJSON_GetStringValue(item);
}

Test(log_index, a_line_is_an_object_with_paths_beside_it)
{
    char line[4096];
    const size_t n = log_index_line(line, sizeof line, &entry, 1.5);
    cJSON *object = cJSON_Parse(line);

    cr_assert(n == strlen(line) && line[n - 1] == '\n');
    cr_assert_not_null(object);
    cr_assert(cJSON_GetObjectItem(object, "rank")->valueint == 12 &&
              cJSON_GetObjectItem(object, "local_rank")->valueint == 4 &&
              cJSON_GetObjectItem(object, "node_rank")->valueint == 1 &&
              cJSON_GetObjectItem(object, "pid")->valueint == 4242);
    cr_assert_str_eq(text_of(object, "host"), "n\"1");
    cr_assert_str_eq(text_of(object, "stdout"), "null");
    cr_assert_str_eq(text_of(object, "stderr"), "4/stderr.log");
    cr_assert_str_eq(text_of(object, "error_file"), "4/error.json");
    cJSON_Delete(object);
}

Test(log_index, a_jobs_ranks_are_global_and_have_no_error_file)
{
    struct log_index_entry job = entry;
    char line[4096];
    cJSON *object;

    job.of_job = job.has_stdout = true;
    log_index_line(line, sizeof line, &job, 1.5);
    object = cJSON_Parse(line);
    cr_assert_str_eq(text_of(object, "stdout"), "rank12/stdout.log");
    cr_assert_str_eq(text_of(object, "error_file"), "null");
    cJSON_Delete(object);
}

Test(log_index, what_does_not_fit_is_no_line)
{
    char line[4096];
    const size_t n = log_index_line(line, sizeof line, &entry, 1.5);

    cr_assert(log_index_line(line, n, &entry, 1.5) == 0);
    cr_assert(log_index_line(line, n + 1, &entry, 1.5) == n);
}

Test(log_index, each_generation_has_its_own_and_nodes_of_a_job_too)
{
    char top[] = "/tmp/fsdp-unit-index.XXXXXX", command[128];
    struct rundir_spec spec = { .kind = RUNDIR_PROGRAM, .path = mkdtemp(top) };
    struct rundir *rundir;
    struct log_index_entry job = entry;

    cr_assert(rundir_open(&rundir, &spec, NULL) == FSDP_OK);
    cr_assert(log_index_add(rundir, &entry, NULL) == FSDP_OK &&
              log_index_add(rundir, &entry, NULL) == FSDP_OK);
    rundir_close(rundir, false);
    spec.kind = RUNDIR_JOB;
    job.of_job = true;
    cr_assert(rundir_open(&rundir, &spec, NULL) == FSDP_OK);
    cr_assert(log_index_add(rundir, &job, NULL) == FSDP_OK);
    rundir_close(rundir, false);

    snprintf(command, sizeof command,
             "cd %s && test $(wc -l < attempt_2/index.jsonl) = 2 && test -s logs/g2/index.node1.jsonl", top);
    cr_assert(system(command) == 0);
    snprintf(command, sizeof command, "rm -r %s", top);
    cr_assert(system(command) == 0);
}

/*
 * The YAML path of a job file under libFuzzer. Any bytes are taken, or refused with at least one line that
 * names its place. What is taken prints as a job file that is taken again.
 */
#include "shard_runtime/job/resolve.h"
#include "tests/fuzz/fuzz.h"

static void print_and_read_again(const struct job *job, const struct job_origins *origins)
{
    struct job_origins origins_again;
    struct job_report report;
    struct job_input input = { .path = "again.yaml" };
    struct job again;
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    job_report_init(&report);
    never(out == NULL || job_print_yaml(job, origins, out, NULL) != FSDP_OK);
    fclose(out);
    input.text = text;
    input.length = size;
    if (job_resolve(&again, &origins_again, &input, &report) != FSDP_OK) {
        fprintf(stderr, "%s\n%s\n", report.problems[0].line, text);
        abort();
    }
    job_report_fini(&report);
    job_free(&again);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct job_input input = { .path = "t.yaml", .text = (const char *)data, .length = size };
    struct job_origins origins;
    struct job_report report;
    struct job job;

    job_report_init(&report);
    if (job_resolve(&job, &origins, &input, &report) == FSDP_OK) {
        print_and_read_again(&job, &origins);
        job_free(&job);
    } else {
        never(report.n == 0 || strncmp(report.problems[0].line, "t.yaml", 6) != 0);
    }
    job_report_fini(&report);
    return 0;
}

/* Shared by the job tests: resolve a text and put its problems into one string. */
#ifndef TEST_RESOLVE_TEXT_H
#define TEST_RESOLVE_TEXT_H

#include <stdio.h>
#include <string.h>

#include "shard_runtime/job/resolve.h"

static inline enum fsdp_status resolve_text(struct job *job, struct job_origins *origins, const char *text,
                                            size_t length, const struct job_setting *settings,
                                            size_t n_settings, char *lines, size_t size)
{
    struct job_input input = {
        .path = "t.yaml", .text = text, .length = length, .settings = settings, .n_settings = n_settings
    };
    struct job_report report;
    enum fsdp_status status;
    size_t used = 0;

    job_report_init(&report);
    status = job_resolve(job, origins, &input, &report);
    lines[0] = '\0';
    for (size_t i = 0; i < report.n && used < size; i++)
        used +=
            (size_t)snprintf(lines + used, size - used, "%s%s", i == 0 ? "" : "\n", report.problems[i].line);
    job_report_fini(&report);
    return status;
}

#endif

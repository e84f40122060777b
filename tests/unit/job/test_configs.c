/*
 * Every file in configs/ is a sound job, and each of them is commented.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/job/resolve.h"

Test(configs, every_file_is_a_sound_job)
{
    DIR *dir = opendir(SOURCE_DIR "/configs");
    struct dirent *entry;
    int n = 0;

    cr_assert_not_null(dir);
    while ((entry = readdir(dir)) != NULL) {
        struct job_input input = { 0 };
        struct job_origins origins;
        struct job_report report;
        struct job job;
        char path[4096], first[256] = "";
        FILE *file;

        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/configs/%s", SOURCE_DIR, entry->d_name);
        input.path = path;
        job_report_init(&report);
        cr_expect(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_OK), "%s",
                  report.n == 0 ? entry->d_name : report.problems[0].line);
        job_report_fini(&report);
        file = fopen(path, "r");
        cr_expect(fgets(first, sizeof first, file) != NULL && first[0] == '#', "%s begins without a comment",
                  path);
        fclose(file);
        job_free(&job);
        n++;
    }
    closedir(dir);
    cr_assert(ge(int, n, 4));
}

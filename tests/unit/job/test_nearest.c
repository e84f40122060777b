#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "shard_runtime/job/nearest.h"

static void means(const char *section, const char *name, const char *want)
{
    char out[JOB_KEY_PATH_BYTES];
    const char *got = job_nearest(section, name, out);

    cr_expect(want == NULL ? got == NULL : got != NULL && strcmp(got, want) == 0, "%s.%s: %s, not %s",
              section == NULL ? "" : section, name, got == NULL ? "none" : got, want == NULL ? "none" : want);
}

Test(job_nearest, other_programs_names_point_to_ours)
{
    means("optimizer", "learning_rate", "lr");
    means("train", "learning_rate", "optimizer.lr");
    means(NULL, "learning_rate", "optimizer.lr");
    means("optimizer", "wd", "weight_decay");
    means("train", "bs", "batch");
    means("train", "batch_size", "batch");
    means("train", "max_steps", "steps");
    means("model", "type", "kind");
    means("optimizer", "type", "kind");
    means("optimizer", "name", "kind");
    means("model", "name", "run.name");
    means(NULL, "training", "train");
    means(NULL, "fsdp", "parallel");
    means("model", "zebra", NULL);
    means(NULL, "zebra", NULL);
}

/* No name in the table is a key of the same section: that key would be meant. And no path in it is wrong. */
Test(job_nearest, no_key_is_called_what_another_key_of_its_section_is)
{
    int n_called = 0;

    for (size_t i = 0; i < job_schema_size; i++)
        for (size_t j = 0; j < job_schema_size; j++)
            cr_expect(strcmp(job_schema[i].section, job_schema[j].section) != 0 ||
                          !job_key_is_called(&job_schema[i], job_schema[j].name),
                      "%s.%s", job_schema[i].section, job_schema[j].name);
    for (size_t i = 0; job_nearest_path(i) != NULL; i++, n_called++)
        cr_expect(job_key_find_path(job_nearest_path(i)) != NULL ||
                      job_section_find(job_nearest_path(i)) != NULL,
                  "%s", job_nearest_path(i));
    cr_assert(gt(int, n_called, 30));
}

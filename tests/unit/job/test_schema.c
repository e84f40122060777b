#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "shard_runtime/job/docs.h"
#include "shard_runtime/job/resolve.h"
#include "shard_runtime/job/schema.h"
#include "shard_runtime/job/value.h"
#include "tests/unit/job/resolve_text.h"

Test(job_schema, keys_and_their_fields_are_unique_and_stand_in_known_sections_together)
{
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i];

        cr_assert(job_section_find(key->section) != NULL, "%s", key->name);
        cr_assert(job_key_find(key->section, key->name) == key, "%s.%s is there twice", key->section,
                  key->name);
        for (size_t j = i; j-- > 0;) {
            cr_assert(key->field == JOB_NO_FIELD || key->field != job_schema[j].field, "%s and %s", key->name,
                      job_schema[j].name);
            if (strcmp(job_schema[j].section, key->section) == 0)
                for (size_t k = j; k < i; k++)
                    cr_assert(eq(str, (char *)job_schema[k].section, (char *)key->section), "%s is split",
                              key->section);
        }
    }
}

Test(job_schema, every_default_and_example_is_a_legal_value)
{
    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_key *key = &job_schema[i];
        struct job_setting setting = { "--set 1", NULL };
        struct job_origins origins;
        struct job_value value;
        struct job job;
        char text[256], lines[2048];

        cr_assert(key->fallback == NULL || job_value_fallback(key, &value), "%s", key->name);
        cr_assert(key->help != NULL && job_key_example(key) != NULL, "%s", key->name);
        for (int example = 0; example < 2; example++) {
            const char *written = example ? key->example : key->fallback;

            if (written == NULL || strcmp(key->name, "momentum") == 0)
                continue;
            snprintf(text, sizeof text, "%s.%s=%s", key->section, key->name, written);
            setting.text = text;
            cr_expect(
                eq(int,
                   resolve_text(&job, &origins, "data: {path: d}\n", 16, &setting, 1, lines, sizeof lines),
                   FSDP_OK),
                "%s: %s", text, lines);
            job_free(&job);
        }
    }
}

Test(job_schema, what_a_key_takes_is_never_empty)
{
    static const char *const known[][3] = {
        { "launch", "threads", "auto, or whole number, 1 to 1024" },
        { "run", "device", "auto, cpu, cuda" },
        { "model", "kind", "transformer, gpt2 (not yet: llama)" },
        { "data", "tokenizer", "byte (others not yet)" },
    };
    char takes[512];

    for (size_t i = 0; i < job_schema_size; i++)
        cr_assert(strlen(job_key_takes(&job_schema[i], takes, sizeof takes)) > 3, "%s", job_schema[i].name);
    for (size_t i = 0; i < 4; i++)
        cr_expect_str_eq(job_key_takes(job_key_find(known[i][0], known[i][1]), takes, sizeof takes),
                         known[i][2]);
}

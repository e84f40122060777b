#include <string.h>

#include "shard_runtime/job/resolve.h"
#include "shard_runtime/job/value.h"

/* The column in which comments begin, if the value is short enough. */
enum { COMMENT_COLUMN = 44 };

enum fsdp_status job_print_yaml(const struct job *job, const struct job_origins *origins, FILE *out,
                                struct fsdp_err *err)
{
    char place[4500];

    for (size_t i = 0; i < job_schema_size; i++) {
        const struct job_section *section = job_section_begun(i);
        const struct job_key *key = &job_schema[i];
        struct job_value value;
        struct json_text text = { 0 };
        int width;

        if (section != NULL)
            fprintf(out, "%s:%*s# %s\n", section->name, COMMENT_COLUMN - 1 - (int)strlen(section->name), "",
                    section->help);
        job_value_load(key, job, &value);
        job_value_text(key, &value, false, &text);
        if (text.failed) {
            json_text_free(&text);
            return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the job as YAML");
        }
        width = fprintf(out, "  %s: %s", key->name, text.bytes);
        fprintf(out, "%*s # %s\n", width < COMMENT_COLUMN - 1 ? COMMENT_COLUMN - 1 - width : 0, "",
                job_place_text(origins->of[i], place, sizeof place));
        json_text_free(&text);
    }
    if (fflush(out) != 0 || ferror(out))
        return fsdp_fail(err, FSDP_ERR_IO, "cannot write the job");
    return FSDP_OK;
}

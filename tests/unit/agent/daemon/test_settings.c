#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/daemon/settings.h"

static struct settings settings;
static struct fsdp_err err;

static enum fsdp_status parse(const char *text)
{
    settings = (struct settings){ .drain = true, .job_memory_max = 7 };
    err = (struct fsdp_err){ 0 };
    return settings_parse(&settings, text, "f", &err);
}

Test(settings, a_file_says_what_differs_from_the_defaults)
{
    cr_assert(parse("") == FSDP_OK && !settings.drain && settings.job_memory_max == 0);
    cr_assert(parse("# drain = maybe\n\n  \t\r\n") == FSDP_OK && !settings.drain);
    cr_assert(parse("drain = yes") == FSDP_OK && settings.drain && settings.job_memory_max == 0);
    cr_assert(parse("\tdrain=no\r\njob_memory_max = 64G # of each\n") == FSDP_OK && !settings.drain);
    cr_assert(eq(long, settings.job_memory_max, 64L << 30));
    cr_assert(parse("job_memory_max = 4096") == FSDP_OK && settings.job_memory_max == 4096);
    cr_assert(parse("job_memory_max = 3K") == FSDP_OK && settings.job_memory_max == 3072);
    cr_assert(parse("job_memory_max = 2T") == FSDP_OK && settings.job_memory_max == 2L << 40);
    cr_assert(parse("job_memory_max = none") == FSDP_OK && settings.job_memory_max == 0);
}

Test(settings, a_wrong_line_is_named_and_changes_nothing)
{
    static const struct {
        const char *text, *words;
    } wrong[] = {
        { "drain", "f:1: a line is KEY = VALUE" },
        { "drain = no\ndrian = yes\n", "f:2: there is no key \"drian\"; did you mean drain?" },
        { "= yes", "f:1: there is no key \"\"" },
        { "\n\ndrain = maybe", "f:3: drain is yes or no, not \"maybe\"" },
        { "drain =", "f:1: drain is yes or no, not \"\"" },
        { "drain = yes\ndrain = yes", "f:2: drain is given twice" },
        { "job_memory_max = -1", NULL },
        { "job_memory_max = 0", NULL },
        { "job_memory_max = 64g", NULL },
        { "job_memory_max = 64GB", NULL },
        { "job_memory_max = 9999999T", NULL },
        { "job_memory_max = 99999999999999999999", NULL },
        { "job_memory_max = G",
          "f:1: job_memory_max is a number of bytes such as 4096 or 64G, or none, not \"G\"" },
    };
    char line[1000];

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cr_assert(parse(wrong[i].text) == FSDP_ERR_CONFIG, "%s", wrong[i].text);
        cr_assert(settings.drain && settings.job_memory_max == 7, "%s", wrong[i].text);
        if (wrong[i].words != NULL)
            cr_assert(eq(str, err.message, (char *)wrong[i].words));
    }
    memset(line, 'x', sizeof line - 1);
    line[sizeof line - 1] = '\0';
    cr_assert(parse(line) == FSDP_ERR_CONFIG);
    line[0] = '#';
    cr_assert(parse(line) == FSDP_OK, "a comment may be as long as it likes");
}

/* Read again into settings that drain. */
static enum fsdp_status load(const char *path)
{
    settings = (struct settings){ .drain = true };
    return settings_load(&settings, path, &err);
}

Test(settings, a_file_that_is_not_there_is_all_defaults_and_one_that_is_no_text_is_refused)
{
    char path[] = "/tmp/fsdp-settings-XXXXXX";
    const int fd = mkstemp(path);

    cr_assert(write(fd, "drain = yes\n", 12) == 12);
    cr_assert(load(path) == FSDP_OK && settings.drain);
    cr_assert(write(fd, "\0", 1) == 1);
    cr_assert(load(path) == FSDP_ERR_CONFIG && strstr(err.message, "zero bytes") != NULL);
    cr_assert(ftruncate(fd, 0) == 0 && ftruncate(fd, 70000) == 0);
    cr_assert(load(path) == FSDP_ERR_CONFIG && strstr(err.message, "too long") != NULL);
    unlink(path);
    cr_assert(load(path) == FSDP_OK && !settings.drain);
    cr_assert(load("/tmp") == FSDP_ERR_CONFIG && strstr(err.message, "/tmp: Is a directory") != NULL);
    cr_assert(settings.drain, "it stays as it was");
}

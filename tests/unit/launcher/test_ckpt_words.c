#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "launcher/ckpt_words.h"

static struct ckpt_words said;
static struct fsdp_err err;

/* Reads `line`, split at spaces: the name of a command, and its words. */
static enum fsdp_status words_of(const char *line)
{
    static char copy[256];
    char *words[16], *rest = copy;
    int n = 0;

    snprintf(copy, sizeof copy, "%s", line);
    while (n < 16 && (words[n] = strsep(&rest, " ")) != NULL)
        n++;
    cr_assert_not_null(ckpt_command(words[0]), "%s", words[0]);
    return ckpt_words_read(&said, ckpt_command(words[0]), words + 1, n - 1, &err);
}

static void accepts(const char *line)
{
    cr_assert(eq(int, words_of(line), FSDP_OK), "%s: %s", line, err.message);
}

static void refuses(const char *line, const char *why)
{
    cr_assert(eq(int, words_of(line), FSDP_ERR_CONFIG), "%s", line);
    cr_assert_not_null(strstr(err.message, why), "%s: %s", line, err.message);
}

Test(ckpt_words, options_stand_before_and_after_the_paths)
{
    accepts("diff --json a b");
    cr_expect(ckpt_words_value(&said, "json") != NULL);
    cr_expect(eq(str, (char *)said.paths[0], "a"));
    cr_expect(eq(str, (char *)said.paths[1], "b"));
    accepts("diff a b");
    cr_expect(ckpt_words_value(&said, "json") == NULL);
    accepts("ls a --verify");
    cr_expect(ckpt_words_value(&said, "verify") != NULL);
    accepts("ls -- --verify");
    cr_expect(ckpt_words_value(&said, "verify") == NULL);
    cr_expect(eq(str, (char *)said.paths[0], "--verify"));
}

Test(ckpt_words, each_command_takes_the_paths_of_its_usage)
{
    refuses("ls", "a path is missing: fsdprun ckpt ls");
    refuses("ls a b", "unexpected argument: b");
    refuses("diff a", "a path is missing");
    refuses("show ", "a path is missing");
}

Test(ckpt_words, a_page_needs_no_path)
{
    for (size_t i = 0; i < ckpt_commands_size; i++) {
        char *words[] = { "--help" };

        cr_assert(eq(int, ckpt_words_read(&said, &ckpt_commands[i], words, 1, &err), FSDP_OK));
        cr_assert(said.help);
    }
}

Test(ckpt_words, what_is_wrong_is_said)
{
    refuses("ls --jso a", "ckpt ls has no option --jso");
    refuses("ls -x a", "no option -x");
    refuses("ls --json=yes a", "--json takes no value");
    cr_assert(ckpt_command("list") == NULL && ckpt_command("ckpt ls") == NULL && ckpt_command("") == NULL);
}

/* The reader has room for the options of each command. */
Test(ckpt_words, no_command_has_too_many_options)
{
    for (size_t i = 0; i < ckpt_commands_size; i++) {
        int n = 0;

        while (ckpt_commands[i].options[n].name != NULL)
            n++;
        cr_assert(le(int, n, CKPT_MOST_OPTIONS), "%s", ckpt_commands[i].name);
    }
}

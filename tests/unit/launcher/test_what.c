#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "launcher/what.h"

struct world {
    bool file, executable, on_path, directory;
};

static bool is_file(void *arg, const char *path)
{
    return ((struct world *)arg)->file;
}

static bool exists(void *arg, const char *path)
{
    return ((struct world *)arg)->file || ((struct world *)arg)->directory;
}

static bool may_execute(void *arg, const char *path)
{
    return ((struct world *)arg)->executable;
}

static bool on_path(void *arg, const char *name)
{
    return ((struct world *)arg)->on_path;
}

/* What the contract says, written once more as a chain of questions. */
static enum what_kind by_contract(const char *name, struct what_flags flags, struct world world)
{
    bool reserved = strcmp(name, "plan") == 0 || strcmp(name, "version") == 0;
    bool yaml = strstr(name, ".yaml") != NULL || strstr(name, ".yml") != NULL;

    if (flags.run_path)
        return WHAT_RUN_PATH;
    if (flags.module)
        return WHAT_MODULE;
    if (flags.no_python)
        return WHAT_DIRECT;
    if (flags.as_torchrun)
        return WHAT_SCRIPT;
    if (reserved && !flags.dashes)
        return WHAT_SUBCOMMAND;
    if (yaml)
        return WHAT_JOB;
    if (strstr(name, ".py") != NULL &&
        (world.file || world.directory || strchr(name, '/') != NULL || !world.on_path))
        return WHAT_SCRIPT; /* not a name on PATH */
    if (world.file && world.executable)
        return WHAT_FILE;
    if (!world.file && strchr(name, '/') == NULL && world.on_path)
        return WHAT_ON_PATH;
    if (!world.file && !world.directory && strcmp(name, "-") != 0)
        return WHAT_DIRECT; /* nothing to give to Python: 127 */
    return WHAT_PYTHON;
}

Test(what, every_name_flag_and_file_system_follows_the_contract)
{
    static const char *const names[] = { "plan",   "version", "./plan", "t.yaml", "d/t.yml", "x.py",
                                         "./x.py", "prog",    "./prog", "d/prog", "-" };

    for (size_t n = 0; n < sizeof names / sizeof *names; n++)
        for (unsigned bits = 0; bits < 512; bits++) {
            struct what_flags flags = { .module = bits & 1,
                                        .no_python = bits & 2,
                                        .dashes = bits & 4,
                                        .run_path = bits & 128,
                                        .as_torchrun = bits & 256 };
            struct world world = {
                .file = bits & 8, .executable = bits & 16, .on_path = bits & 32, .directory = bits & 64
            };
            struct what_files files = { is_file, exists, may_execute, on_path, &world };

            if (flags.module && flags.no_python && !flags.run_path)
                continue; /* refused by the options */
            cr_expect(eq(int, what_is_run(names[n], flags, &files), by_contract(names[n], flags, world)),
                      "%s %u", names[n], bits);
        }
}

Test(what, all_reserved_words_are)
{
    static const char *const words[] = { "plan", "status",  "ps",     "logs",   "stop", "restart",
                                         "top",  "events",  "doctor", "ckpt",   "data", "trace",
                                         "plot", "version", "help",   "inspect" };

    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        cr_expect(what_is_reserved(words[i]), "%s", words[i]);
    cr_expect(what_is_reserved("planner") == false && !what_is_reserved("./plan") && !what_is_reserved(""));
}

Test(what, a_subcommand_spelled_wrong_is_known_and_no_reserved_word_is_meant)
{
    cr_expect(eq(str, (char *)what_subcommand_meant("plna"), "plan"));
    cr_expect(eq(str, (char *)what_subcommand_meant("versoin"), "version"));
    cr_expect(what_subcommand_meant("train") == NULL && what_subcommand_meant("") == NULL);
    cr_expect(what_subcommand_meant("./plan") == NULL && what_subcommand_meant("trcae") == NULL);
}

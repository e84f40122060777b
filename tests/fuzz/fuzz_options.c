/*
 * The command line and what is made of it: the words of one argument each line, lines with a bar in front are
 * variables (|PET_NNODES=2). Whatever they are, reading ends with a status and one line, and a launch that
 * can be made is printed.
 */
#include "launcher/launch.h"
#include "launcher/print_launch.h"
#include "tests/fuzz/fuzz.h"

enum { MAX_LINES = 64 };

struct lines {
    char *text;
    char *argv[MAX_LINES + 2], *variables[MAX_LINES];
    int n_words, n_variables;
};

static const char *get_env(void *arg, const char *name)
{
    const struct lines *lines = arg;
    size_t n = strlen(name);

    for (int i = 0; i < lines->n_variables; i++)
        if (strncmp(lines->variables[i], name, n) == 0 && lines->variables[i][n] == '=')
            return lines->variables[i] + n + 1;
    return NULL;
}

static bool no(void *arg, const char *name)
{
    (void)arg;
    return name[0] == '/';
}

static const struct what_files files = { no, no, no, no, NULL };

static void split(struct lines *lines, const uint8_t *data, size_t size)
{
    char *save = NULL;

    lines->text = malloc(size + 1);
    memcpy(lines->text, data, size);
    lines->text[size] = '\0';
    lines->argv[lines->n_words++] = (char *)(uintptr_t) "fsdprun";
    lines->argv[lines->n_words++] = (char *)(uintptr_t) "--dry-run";
    for (char *line = strtok_r(lines->text, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        if (line[0] == '|' && lines->n_variables < MAX_LINES)
            lines->variables[lines->n_variables++] = line + 1;
        else if (lines->n_words < MAX_LINES)
            lines->argv[lines->n_words++] = line;
    }
}

static void launch(const struct options *options, struct lines *lines, FILE *out)
{
    const struct surroundings around = { .get_env = get_env,
                                         .arg = lines,
                                         .files = &files,
                                         .own_path = "/bin/fsdprun",
                                         .python_beside = "/bin/python3" };
    struct fsdp_err err = { 0 };
    struct launch made;
    int status = launch_program(&made, options, WHAT_SCRIPT, &around, &err);

    never(status != 0 && (err.message[0] == '\0' || strchr(err.message, '\n') != NULL));
    if (status == 0)
        print_launch(&made, options, out);
    launch_fini(&made);
}
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct lines lines = { 0 };
    struct options_input input = { .get_env = get_env, .arg = &lines, .n_cpus = 4 };
    struct options options;
    struct fsdp_err err = { 0 };
    FILE *out = fopen("/dev/null", "w");

    split(&lines, data, size);
    input.argc = lines.n_words;
    input.argv = lines.argv;
    if (taken(options_read(&options, &input, &err), &err) && options.n_rest > 0)
        launch(&options, &lines, out);
    options_fini(&options);
    fclose(out);
    free(lines.text);
    return 0;
}

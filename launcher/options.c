#include "launcher/options.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/require.h"

struct parsing {
    struct options *options;
    const struct options_input *input;
    struct fsdp_err *err;
    int next; /* index in argv of the next argument */
};

const struct option *option_find(enum option_id id)
{
    for (size_t i = 0; i < option_table_size; i++)
        if (option_table[i].id == id)
            return &option_table[i];
    return NULL;
}

const char *option_env_name(const struct option *option, const char *prefix, char out[OPTION_ORIGIN_BYTES])
{
    snprintf(out, OPTION_ORIGIN_BYTES, "%s%s", prefix, option->name);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
    return out;
}

const char *option_text(const char *text)
{
    return *text == '\0' ? "nothing" : text;
}

bool options_has(const struct options *options, enum option_id id)
{
    const char *text = options->of[id].text;

    return text != NULL && (option_find(id)->kind != OPTION_FLAG || options->of[id].number != 0);
}

int64_t options_number(const struct options *options, enum option_id id, int64_t fallback)
{
    return options->of[id].text == NULL ? fallback : options->of[id].number;
}

bool options_names_job(const char *name)
{
    const char *dot = strrchr(name, '.');

    return dot != NULL && dot != name && dot[-1] != '/' &&
           (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

static enum fsdp_status take(const struct parsing *parsing, const struct option *option, const char *origin,
                             const char *text)
{
    struct option_value *value = &parsing->options->of[option->id];

    OK_OR_RETURN(option_check(option, origin, text, parsing->input->n_cpus, value, parsing->err));
    if (option->kind == OPTION_SETTING) {
        parsing->options->sets[parsing->options->n_sets++] = text;
        return FSDP_OK;
    }
    /* --color and --no-color exclude each other: the later one cancels the earlier one. */
    if (option->id == OPT_COLOR || option->id == OPT_NO_COLOR)
        parsing->options->of[option->id == OPT_COLOR ? OPT_NO_COLOR : OPT_COLOR].text = NULL;
    /* an empty text, if the option allows one, means that it is not given */
    value->text = *text == '\0' ? NULL : text;
    snprintf(value->origin, sizeof value->origin, "%s", origin);
    return FSDP_OK;
}

static bool on_command_line(const struct options *options, enum option_id id)
{
    return options->of[id].origin[0] == '-';
}

static enum fsdp_status read_variable(const struct parsing *parsing, const struct option *option,
                                      const char *name)
{
    const char *text = parsing->input->get_env(parsing->input->arg, name);
    bool is_color = option->id == OPT_COLOR || option->id == OPT_NO_COLOR;

    if (text == NULL || *text == '\0' || on_command_line(parsing->options, option->id) ||
        parsing->options->of[option->id].text != NULL)
        return FSDP_OK;
    if (is_color && on_command_line(parsing->options, option->id == OPT_COLOR ? OPT_NO_COLOR : OPT_COLOR))
        return FSDP_OK;
    return take(parsing, option, name, text);
}

/*
 * Reads the environment variables of an option, the strongest one first. After one has set the option, the
 * others are not read, so a wrong value in them does no harm.
 */
static enum fsdp_status read_variables(const struct parsing *parsing, const struct option *option)
{
    char name[OPTION_ORIGIN_BYTES];

    if (option->no_env)
        return FSDP_OK;
    OK_OR_RETURN(read_variable(parsing, option, option_env_name(option, "FSDPRUN_", name)));
    if (option->pet)
        OK_OR_RETURN(read_variable(parsing, option, option_env_name(option, "PET_", name)));
    return option->also == NULL ? FSDP_OK : read_variable(parsing, option, option->also);
}

static enum fsdp_status read_environment(const struct parsing *parsing)
{
    enum fsdp_status status = FSDP_OK;

    for (size_t i = 0; i < option_table_size && status == FSDP_OK; i++)
        status = read_variables(parsing, &option_table[i]);
    return status;
}

/* Do the first `length` bytes of `name` and `written` agree? An underscore in `written` counts as a dash. */
static bool same_start(const char *name, const char *written, size_t length)
{
    for (size_t i = 0; i < length; i++)
        if (name[i] != (written[i] == '_' ? '-' : written[i]))
            return false;
    return true;
}

/*
 * Reports an ambiguous name: "--n may be --nnodes, --node-rank or --no-python". `n` is how many options begin
 * so.
 */
static void name_candidates(const struct parsing *parsing, const char *written, size_t length, size_t n)
{
    char names[FSDP_ERR_MESSAGE_BYTES] = "";
    size_t used = 0;

    for (size_t i = 0; i < option_table_size; i++) {
        if (!same_start(option_table[i].name, written, length))
            continue;
        n--;
        used += (size_t)snprintf(names + used, sizeof names - used, "--%s%s", option_table[i].name,
                                 n == 0   ? ""
                                 : n == 1 ? " or "
                                          : ", ");
        if (used >= sizeof names)
            break;
    }
    fsdp_fail(parsing->err, FSDP_ERR_CONFIG, "--%.*s may be %s", (int)length, written, names);
}

static void no_option(const struct parsing *parsing, const char *dashes, const char *written, size_t length)
{
    char meant[OPTION_MEANT_BYTES];

    if (options_meant(parsing->options, parsing->input, written, length, meant))
        fsdp_fail(parsing->err, FSDP_ERR_CONFIG, "%s%.*s is no option; did you mean %s?", dashes, (int)length,
                  written, meant);
    else
        fsdp_fail(parsing->err, FSDP_ERR_CONFIG, "%s%.*s is no option (see %s --help)", dashes, (int)length,
                  written, parsing->options->program);
}

/*
 * Finds the option that has the name `written`, or whose name begins so. If several begin so, three groups
 * are tried in this order: torchrun's thirty options, its later ones, ours. The first group with exactly one
 * such option decides. If a group has more, the name is ambiguous.
 */
static const struct option *find_long(const struct parsing *parsing, const char *written, size_t length)
{
    static const enum option_origin order[] = { OPTION_TORCHRUN, OPTION_TORCHRUN_LATER, OPTION_OURS };
    const struct option *found[3] = { NULL };
    size_t n[3] = { 0 };

    for (size_t i = 0; i < option_table_size && length > 0; i++) {
        const struct option *option = &option_table[i];

        if (!same_start(option->name, written, length))
            continue;
        if (strlen(option->name) == length)
            return option;
        found[option->from] = option;
        n[option->from]++;
    }
    for (size_t i = 0; i < 3; i++) {
        if (n[order[i]] == 1)
            return found[order[i]];
        if (n[order[i]] > 1) {
            name_candidates(parsing, written, length, n[0] + n[1] + n[2]);
            return NULL;
        }
    }
    no_option(parsing, "--", written, length);
    return NULL;
}

static const struct option *find_letter(const struct parsing *parsing, char letter)
{
    for (size_t i = 0; i < option_table_size; i++)
        if (option_table[i].letter != 0 && option_table[i].letter == letter)
            return &option_table[i];
    no_option(parsing, "-", &letter, 1);
    return NULL;
}

/*
 * Does the argument look like an option? As in Python's argparse, "-", negative numbers ("-1", "-0.5") and
 * texts with a space are values.
 */
static bool looks_like_option(const char *text)
{
    const char *digits = text + 1;

    if (text[0] != '-' || *digits == '\0' || strchr(text, ' ') != NULL)
        return false;
    digits += strspn(digits, "0123456789");
    if (*digits == '.' && isdigit((unsigned char)digits[1]))
        digits += 1 + strspn(digits + 1, "0123456789");
    return *digits != '\0';
}

/*
 * Reads an option with its value. `attached` is the value if it is in the same argument. NULL: the next
 * argument is the value.
 */
static enum fsdp_status take_argument(struct parsing *parsing, const struct option *option,
                                      const char *attached)
{
    char origin[OPTION_ORIGIN_BYTES];
    const char *text = attached;

    snprintf(origin, sizeof origin, "--%s", option->name);
    if (option->kind == OPTION_FLAG) {
        if (attached != NULL)
            return fsdp_fail(parsing->err, FSDP_ERR_CONFIG, "%s takes no value (%.60s)", origin, attached);
        return take(parsing, option, origin, "1");
    }
    if (text == NULL) {
        text = parsing->next < parsing->input->argc ? parsing->input->argv[parsing->next] : NULL;
        if (text == NULL || looks_like_option(text))
            return fsdp_fail(parsing->err, FSDP_ERR_CONFIG, "%s needs a value: %s %s", origin, origin,
                             option->argument);
        parsing->next++;
    }
    if (option->kind == OPTION_SETTING)
        snprintf(origin, sizeof origin, "--set %zu", parsing->options->n_sets + 1);
    return take(parsing, option, origin, text);
}

/* Reads options by letter: -r3, -r 3, -r=3, -m. Several flags may share one dash, as in -qm. */
static enum fsdp_status read_letters(struct parsing *parsing, const char *letters)
{
    for (; *letters != '\0'; letters++) {
        const struct option *option = find_letter(parsing, *letters);
        const char *attached = letters[1] == '\0' ? NULL : letters + 1 + (letters[1] == '=');

        if (option == NULL)
            return FSDP_ERR_CONFIG;
        if (option->kind != OPTION_FLAG)
            return take_argument(parsing, option, attached);
        OK_OR_RETURN(take_argument(parsing, option, letters[1] == '=' ? attached : NULL));
    }
    return FSDP_OK;
}

static enum fsdp_status read_option(struct parsing *parsing, const char *argument)
{
    const char *equals;
    const struct option *option;

    if (argument[1] != '-')
        return read_letters(parsing, argument + 1);
    equals = strchr(argument, '=');
    option = find_long(parsing, argument + 2,
                       equals == NULL ? strlen(argument + 2) : (size_t)(equals - argument - 2));
    if (option == NULL)
        return FSDP_ERR_CONFIG;
    return take_argument(parsing, option, equals == NULL ? NULL : equals + 1);
}

/*
 * Is `name` a job file? It is the first word that is no option. After a job file the options are still ours.
 */
static bool rest_is_job(const struct options *options, const char *name)
{
    return !options->as_torchrun && !options_has(options, OPT_MODULE) &&
           !options_has(options, OPT_NO_PYTHON) && !options_has(options, OPT_RUN_PATH) &&
           options_names_job(name);
}

/*
 * Does the user want only a page, or to change the link torchrun? Then nothing is run, and the rest of the
 * command line is not read.
 */
static bool is_page(const struct options *options)
{
    return options_has(options, OPT_HELP) || options_has(options, OPT_HELP_ALL) ||
           options_has(options, OPT_VERSION) || options_has(options, OPT_PRINT_COMPLETION) ||
           options_has(options, OPT_INSTALL_AS_TORCHRUN) || options_has(options, OPT_UNINSTALL_AS_TORCHRUN);
}

static enum fsdp_status read_arguments(struct parsing *parsing)
{
    struct options *options = parsing->options;
    const struct options_input *input = parsing->input;
    bool job = false;

    while (parsing->next < input->argc) {
        const char *argument = input->argv[parsing->next];
        bool is_option = argument[0] == '-' && argument[1] != '\0';

        if (!job && strcmp(argument, "--") == 0 && !options->dashes) {
            options->dashes = true;
            parsing->next++;
            continue;
        }
        if (job && !is_option)
            return fsdp_fail(parsing->err, FSDP_ERR_CONFIG,
                             "%.200s: nothing but options may follow a job file", argument);
        if (!is_option || (options->dashes && !job)) {
            options->rest = &input->argv[parsing->next++];
            job = rest_is_job(options, argument);
            options->n_rest = job ? 1 : input->argc - parsing->next + 1;
            if (!job)
                return FSDP_OK;
            continue;
        }
        parsing->next++;
        OK_OR_RETURN(read_option(parsing, argument));
        if (is_page(options))
            return FSDP_OK;
    }
    return FSDP_OK;
}

/* Checks options that need or exclude each other. */
static enum fsdp_status check_together(const struct options *options, struct fsdp_err *err)
{
    if (options->n_rest == 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "nothing to run: give %sa program (see %s --help)",
                         options->as_torchrun ? "" : "a job file or ", options->program);
    if (options_has(options, OPT_MODULE) && options_has(options, OPT_NO_PYTHON) &&
        !options_has(options, OPT_RUN_PATH))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "--module and --no-python exclude each other");
    if (options_has(options, OPT_GPUS) && !options_has(options, OPT_AGENT) &&
        !options_has(options, OPT_DETACH))
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "%s needs --agent or --detach: only an agent knows which GPUs are free",
                         options->of[OPT_GPUS].origin);
    if (options->n_sets > 0 && !rest_is_job(options, options->rest[0]))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "--set is for job files, and %.200s is none",
                         options->rest[0]);
    if (options_has(options, OPT_LOG_KEEP) && !options_has(options, OPT_LOG_LIMIT))
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s needs --log-limit", options->of[OPT_LOG_KEEP].origin);
    return FSDP_OK;
}

/*
 * Counts the devices for --nproc-per-node gpu, xpu or auto. It does so after parsing, because counting takes
 * time and depends on --virtual-local-rank.
 */
static enum fsdp_status count_devices(struct options *options, const struct options_input *input,
                                      struct fsdp_err *err)
{
    struct option_value *value = &options->of[OPT_NPROC_PER_NODE];
    char why[320] = "none are known here";
    int n = 0;

    if (value->text == NULL || value->number > 0)
        return FSDP_OK;
    if (input->count_devices != NULL)
        n = input->count_devices(input->arg, value->text, options_has(options, OPT_VIRTUAL_LOCAL_RANK), why,
                                 sizeof why);
    if (n == 0 && strcmp(value->text, "auto") == 0)
        n = input->n_cpus;
    if (n == 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s: no %s: %s", value->origin, value->text, why);
    value->number = value->least = n;
    return FSDP_OK;
}

static bool is_torchrun(const char *called)
{
    const char *slash = called == NULL ? NULL : strrchr(called, '/');

    return called != NULL && strcmp(slash == NULL ? called : slash + 1, "torchrun") == 0;
}

enum fsdp_status options_read(struct options *options, const struct options_input *input,
                              struct fsdp_err *err)
{
    struct parsing parsing = { .options = options, .input = input, .err = err, .next = 1 };
    enum fsdp_status status;

    memset(options, 0, sizeof *options);
    options->as_torchrun = is_torchrun(input->argc > 0 ? input->argv[0] : NULL);
    options->program = options->as_torchrun ? "torchrun" : "fsdprun";
    options->sets = calloc((size_t)input->argc + 1, sizeof *options->sets);
    if (options->sets == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the options");
    /*
     * These three are read first, because they decide where the arguments of the program begin.
     * read_environment() reads them again and reports their errors.
     */
    (void)read_variables(&parsing, option_find(OPT_MODULE));
    (void)read_variables(&parsing, option_find(OPT_NO_PYTHON));
    (void)read_variables(&parsing, option_find(OPT_RUN_PATH));
    status = read_arguments(&parsing);
    /*
     * Read after the command line. So a variable with a wrong value does not prevent --help, and an option on
     * the command line overrides it.
     */
    if (status == FSDP_OK && !is_page(options))
        status = read_environment(&parsing);
    if (status == FSDP_OK && !is_page(options))
        status = check_together(options, err);
    if (status == FSDP_OK && !is_page(options))
        status = count_devices(options, input, err);
    if (status != FSDP_OK)
        options_fini(options);
    return status;
}

enum fsdp_status options_default(struct options *options, enum option_id id, const char *origin,
                                 const char *text, struct fsdp_err *err)
{
    struct option_value *value = &options->of[id];

    if (value->text != NULL)
        return FSDP_OK;
    OK_OR_RETURN(option_check(option_find(id), origin, text, 0, value, err));
    value->text = text;
    value->is_weak = true;
    snprintf(value->origin, sizeof value->origin, "%s", origin);
    return FSDP_OK;
}

void options_fini(struct options *options)
{
    const char *program = options->program;

    free(options->sets);
    memset(options, 0, sizeof *options);
    options->program = program; /* still valid: the caller prints it in front of the error */
}

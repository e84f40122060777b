/*
 * Every option of a list, in every form: with dashes and with underscores, with "=" and without, and from the
 * environment. test_options.c has the letters. conformance/test_cli_torchrun.sh cuts every name at every
 * length.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/options.h"

static const struct known {
    enum option_id id;
    const char *name;
    bool flag, no_pet;
    const char *value, *other; /* two that it takes */
    const char *bad;           /* and one that it does not; NULL: it takes any */
    bool theirs;               /* one of torchrun's thirty */
} known[] = {
    { OPT_NNODES, "nnodes", false, false, "2", "1:4", "1:2:3", true },
    { OPT_NPROC_PER_NODE, "nproc-per-node", false, false, "3", "cpu", "tpu", true },
    { OPT_RDZV_BACKEND, "rdzv-backend", false, false, "c10d", "static", "etcd", true },
    { OPT_RDZV_ENDPOINT, "rdzv-endpoint", false, false, "h:1", "[::1]:2", NULL, true },
    { OPT_RDZV_ID, "rdzv-id", false, false, "one", "two", NULL, true },
    { OPT_RDZV_CONF, "rdzv-conf", false, false, "join_timeout=5", "a=b,c=d", "a=", true },
    { OPT_STANDALONE, "standalone", true, false, NULL, NULL, "yes", true },
    { OPT_MAX_RESTARTS, "max-restarts", false, false, "3", "240/1000000", "3/-1", true },
    { OPT_MONITOR_INTERVAL, "monitor-interval", false, false, "0.1", "5", "-1", true },
    { OPT_START_METHOD, "start-method", false, false, "spawn", "forkserver", "thread", true },
    { OPT_EVENT_LOG_HANDLER, "event-log-handler", false, false, "null", "null", "console", true },
    { OPT_ROLE, "role", false, false, "trainer", "reader", NULL, true },
    { OPT_MODULE, "module", true, false, NULL, NULL, "yes", true },
    { OPT_NO_PYTHON, "no-python", true, false, NULL, NULL, "yes", true },
    { OPT_RUN_PATH, "run-path", true, false, NULL, NULL, "yes", true },
    { OPT_LOG_DIR, "log-dir", false, false, "/a", "b", NULL, true },
    { OPT_REDIRECTS, "redirects", false, false, "3", "0:1,11:2", "4", true },
    { OPT_TEE, "tee", false, false, "1", "10:3", "0:", true },
    { OPT_LOCAL_RANKS_FILTER, "local-ranks-filter", false, false, "0", "1,12", "a", true },
    { OPT_DUPLICATE_STDOUT_FILTERS, "duplicate-stdout-filters", false, false, "a", "a,,b,c", "a,", true },
    { OPT_DUPLICATE_STDERR_FILTERS, "duplicate-stderr-filters", false, false, "a", "x", ",,,", true },
    { OPT_NODE_RANK, "node-rank", false, false, "0", "7", "-1", true },
    { OPT_MASTER_ADDR, "master-addr", false, false, "h", "::1", NULL, true },
    { OPT_MASTER_PORT, "master-port", false, false, "29500", "0", "65536", true },
    { OPT_LOCAL_ADDR, "local-addr", false, false, "10.0.0.1", "h", NULL, true },
    { OPT_LOGS_SPECS, "logs-specs", false, true, NULL, NULL, "mine", true },
    { OPT_NUMA_BINDING, "numa-binding", false, true, "node", "core-complex", "core", true },
    { OPT_SIGNALS_TO_HANDLE, "signals-to-handle", false, false, "SIGTERM", "TERM,SIGUSR1", "SIGKILL", true },
    { OPT_SHUTDOWN_TIMEOUT, "shutdown-timeout", false, false, "0", "60", "-5", true },
    { OPT_VIRTUAL_LOCAL_RANK, "virtual-local-rank", true, false, NULL, NULL, "yes", true },
    { OPT_LOG_LINE_PREFIX_TEMPLATE, "log-line-prefix-template", false, false, "${rank}:", "x", NULL, false },
    { OPT_FORWARD_SIGNALS, "forward-signals", false, true, "USR1", "SIGUSR1,usr2", "STOP", false },
    { OPT_LOG_LIMIT, "log-limit", false, true, "100M", "4096", "0", false },
    { OPT_ARBITER, "arbiter", false, true, "none", "directory", "", false },
    { OPT_SECRET_FILE, "secret-file", false, true, "/s", "t", "", false },
    { OPT_INSECURE, "insecure", true, true, NULL, NULL, "yes", false },
    { OPT_SAVE_ON_SIGNAL, "save-on-signal", true, true, NULL, NULL, "yes", false },
    { OPT_PREFIX, "prefix", true, true, NULL, NULL, "yes", false },
    { OPT_DIRECT_OUTPUT, "direct-output", true, true, NULL, NULL, "yes", false },
    { OPT_QUIET, "quiet", true, true, NULL, NULL, "yes", false },
    { OPT_PYTHON_STACKS, "python-stacks", true, true, NULL, NULL, "yes", false },
    { OPT_HANG_TIMEOUT, "hang-timeout", false, true, "60", "0", "-1", false },
    { OPT_AGENT, "agent", false, true, "/a", "b", "", false },
};
enum { N_KNOWN = sizeof known / sizeof *known, MAX_WORDS = 8 };

/* One variable at most is set. */
struct case_input {
    const char *words[MAX_WORDS];
    const char *variable, *variable_value;
};

static const char *get_env(void *arg, const char *name)
{
    const struct case_input *in = arg;

    return in->variable != NULL && strcmp(in->variable, name) == 0 ? in->variable_value : NULL;
}

static enum fsdp_status read_case(struct options *options, struct case_input *in, struct fsdp_err *err)
{
    static char *argv[MAX_WORDS + 2] = { "fsdprun" }; /* borrowed by `options` */
    struct options_input input = { .argc = 1, .argv = argv, .get_env = get_env, .arg = in, .n_cpus = 6 };

    for (size_t i = 0; in->words[i] != NULL; i++)
        argv[input.argc++] = (char *)(uintptr_t)in->words[i];
    argv[input.argc] = NULL;
    *err = (struct fsdp_err){ 0 };
    return options_read(options, &input, err);
}

static void is_taken(const struct known *k, struct case_input in, const char *value, const char *how)
{
    struct options options;
    struct fsdp_err err;
    enum fsdp_status status = read_case(&options, &in, &err);

    cr_expect(eq(int, status, FSDP_OK), "%s, %s: %s", k->name, how, err.message);
    if (status != FSDP_OK)
        return;
    if (k->flag)
        cr_expect(options_has(&options, k->id), "%s, %s", k->name, how);
    else
        cr_expect_str_eq(options.of[k->id].text == NULL ? "" : options.of[k->id].text, value, "%s, %s",
                         k->name, how);
    cr_expect(options.n_rest == 2 && strcmp(options.rest[0], "prog") == 0, "%s, %s", k->name, how);
    options_fini(&options);
}

static void is_refused(struct case_input in, const char *how)
{
    struct options options;
    struct fsdp_err err;

    cr_expect(ne(int, read_case(&options, &in, &err), FSDP_OK), "%s", how);
    cr_expect(strchr(err.message, '\n') == NULL && strlen(err.message) > 8, "%s: %s", how, err.message);
}

/* `name` after two dashes as an argument: with the value in the next word, and with "=". */
static void taken_by_name(const struct known *k, const char *name)
{
    char written[80], joined[160];

    snprintf(written, sizeof written, "--%s", name);
    if (k->flag) {
        is_taken(k, (struct case_input){ .words = { written, "prog", "arg" } }, NULL, written);
        return;
    }
    for (int i = 0; i < 2; i++) {
        const char *value = i == 0 ? k->value : k->other;

        is_taken(k, (struct case_input){ .words = { written, value, "prog", "arg" } }, value, written);
        snprintf(joined, sizeof joined, "--%s=%s", name, value);
        is_taken(k, (struct case_input){ .words = { joined, "prog", "arg" } }, value, joined);
        is_taken(k, (struct case_input){ .words = { joined, "--", "prog", "arg" } }, value, joined);
    }
    if (k->bad != NULL) {
        snprintf(joined, sizeof joined, "--%s=%s", name, k->bad);
        is_refused((struct case_input){ .words = { joined, "prog" } }, joined);
        is_refused((struct case_input){ .words = { written, k->bad, "prog" } }, joined);
    }
    is_refused((struct case_input){ .words = { written } }, written);
    is_refused((struct case_input){ .words = { written, "--tee", "0", "prog" } }, written);
}

Test(options_forms, dashes_and_underscores_with_a_value_apart_or_attached, .timeout = 600)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        char name[64];

        if (known[i].id == OPT_LOGS_SPECS)
            continue;
        taken_by_name(&known[i], known[i].name);
        strcpy(name, known[i].name);
        for (char *c = name; *c != '\0'; c++)
            *c = *c == '-' ? '_' : *c;
        taken_by_name(&known[i], name);
    }
}

static void variable_name(char *out, const char *prefix, const char *name)
{
    sprintf(out, "%s%s", prefix, name);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

/* The variable is not read. */
static void is_left_out(const struct known *k, struct case_input *in)
{
    struct options options;
    struct fsdp_err err;

    cr_expect(eq(int, read_case(&options, in, &err), FSDP_OK), "%s: %s", in->variable, err.message);
    cr_expect_null(options.of[k->id].text, "%s is read", in->variable);
    options_fini(&options);
}

Test(options_forms, variables_of_the_environment)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        const struct known *k = &known[i];
        const char *value = k->flag ? "1" : k->value;
        char name[80];

        for (int ours = 0; ours < 2; ours++) {
            struct case_input in = { .words = { "prog", "arg" }, .variable = name, .variable_value = value };

            variable_name(name, ours ? "FSDPRUN_" : "PET_", k->name);
            if (k->id == OPT_LOGS_SPECS || (!ours && k->no_pet)) {
                in.variable_value = k->bad;
                is_left_out(k, &in);
                continue;
            }
            is_taken(k, in, value, name);
            if (k->bad != NULL && *k->bad != '\0') {
                in.variable_value = k->bad;
                is_refused(in, name);
            }
            in.variable_value = ""; /* as if it were not there */
            is_left_out(k, &in);
        }
    }
}

Test(options_forms, a_flag_in_the_environment_is_a_number)
{
    static const struct {
        const char *text;
        int want; /* -1: refused */
    } cases[] = {
        { "0", 0 }, { "1", 1 }, { "2", 1 }, { "00", 0 }, { "-1", 1 }, { "true", -1 }, { "1x", -1 }
    };

    for (size_t i = 0; i < N_KNOWN; i++)
        for (size_t c = 0; known[i].flag && c < sizeof cases / sizeof *cases; c++) {
            char name[80];
            struct case_input in = { .words = { "prog" }, .variable = name, .variable_value = cases[c].text };
            struct options options;
            struct fsdp_err err;
            enum fsdp_status status;

            variable_name(name, "FSDPRUN_", known[i].name);
            status = read_case(&options, &in, &err);
            cr_expect(eq(int, status == FSDP_OK, cases[c].want >= 0), "%s=%s", name, cases[c].text);
            if (status == FSDP_OK)
                cr_expect(eq(int, options_has(&options, known[i].id), cases[c].want), "%s=%s", name,
                          cases[c].text);
            options_fini(&options);
        }
}

Test(options_forms, the_thirty_are_thirty)
{
    size_t n = 0;

    for (size_t i = 0; i < N_KNOWN; i++) {
        const struct option *option = option_find(known[i].id);

        n += known[i].theirs;
        cr_expect_not_null(option);
        cr_expect(eq(int, option->from == OPTION_TORCHRUN, known[i].theirs), "%s", known[i].name);
        cr_expect(eq(int, option->pet, !known[i].no_pet), "%s", known[i].name);
    }
    cr_assert(eq(sz, n, 30));
}

/*
 * Every option in every form in which it may be written, held against a list of torchrun's own that is written down
 * here once more: with dashes, with underscores, cut at every length, with "=" and without, by its letter, and by
 * the environment.
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
    char letter;
    bool flag, no_pet;
    const char *value, *other; /* two that it takes */
    const char *bad;           /* and one that it does not; NULL: it takes any */
    bool theirs;               /* one of torchrun's thirty */
} known[] = {
    { OPT_NNODES, "nnodes", 0, false, false, "2", "1:4", "1:2:3", true },
    { OPT_NPROC_PER_NODE, "nproc-per-node", 0, false, false, "3", "cpu", "tpu", true },
    { OPT_RDZV_BACKEND, "rdzv-backend", 0, false, false, "c10d", "static", "etcd", true },
    { OPT_RDZV_ENDPOINT, "rdzv-endpoint", 0, false, false, "h:1", "[::1]:2", NULL, true },
    { OPT_RDZV_ID, "rdzv-id", 0, false, false, "one", "two", NULL, true },
    { OPT_RDZV_CONF, "rdzv-conf", 0, false, false, "join_timeout=5", "a=b,c=d", "a=", true },
    { OPT_STANDALONE, "standalone", 0, true, false, NULL, NULL, "yes", true },
    { OPT_MAX_RESTARTS, "max-restarts", 0, false, false, "3", "0", "-1", true },
    { OPT_MONITOR_INTERVAL, "monitor-interval", 0, false, false, "0.1", "5", "-1", true },
    { OPT_START_METHOD, "start-method", 0, false, false, "spawn", "forkserver", "thread", true },
    { OPT_EVENT_LOG_HANDLER, "event-log-handler", 0, false, false, "null", "null", "console", true },
    { OPT_ROLE, "role", 0, false, false, "trainer", "reader", NULL, true },
    { OPT_MODULE, "module", 'm', true, false, NULL, NULL, "yes", true },
    { OPT_NO_PYTHON, "no-python", 0, true, false, NULL, NULL, "yes", true },
    { OPT_RUN_PATH, "run-path", 0, true, false, NULL, NULL, "yes", true },
    { OPT_LOG_DIR, "log-dir", 0, false, false, "/a", "b", NULL, true },
    { OPT_REDIRECTS, "redirects", 'r', false, false, "3", "0:1,11:2", "4", true },
    { OPT_TEE, "tee", 't', false, false, "1", "10:3", "0:", true },
    { OPT_LOCAL_RANKS_FILTER, "local-ranks-filter", 0, false, false, "0", "1,12", "a", true },
    { OPT_DUPLICATE_STDOUT_FILTERS, "duplicate-stdout-filters", 0, false, false, "a", "a,,b,c", "a,", true },
    { OPT_DUPLICATE_STDERR_FILTERS, "duplicate-stderr-filters", 0, false, false, "a", "x", ",,,", true },
    { OPT_NODE_RANK, "node-rank", 0, false, false, "0", "7", "-1", true },
    { OPT_MASTER_ADDR, "master-addr", 0, false, false, "h", "::1", NULL, true },
    { OPT_MASTER_PORT, "master-port", 0, false, false, "29500", "0", "65536", true },
    { OPT_LOCAL_ADDR, "local-addr", 0, false, false, "10.0.0.1", "h", NULL, true },
    { OPT_LOGS_SPECS, "logs-specs", 0, false, true, NULL, NULL, "mine", true },
    { OPT_NUMA_BINDING, "numa-binding", 0, false, true, "node", "core-complex", "core", true },
    { OPT_SIGNALS_TO_HANDLE, "signals-to-handle", 0, false, false, "SIGTERM", "TERM,SIGUSR1", "SIGKILL",
      true },
    { OPT_SHUTDOWN_TIMEOUT, "shutdown-timeout", 0, false, false, "0", "60", "-5", true },
    { OPT_VIRTUAL_LOCAL_RANK, "virtual-local-rank", 0, true, false, NULL, NULL, "yes", true },
    { OPT_LOG_LINE_PREFIX_TEMPLATE, "log-line-prefix-template", 0, false, false, "${rank}:", "x", NULL,
      false },
    { OPT_FORWARD_SIGNALS, "forward-signals", 0, false, true, "USR1", "SIGUSR1,usr2", "STOP", false },
    { OPT_LOG_LIMIT, "log-limit", 0, false, true, "100M", "4096", "0", false },
    { OPT_SECRET_FILE, "secret-file", 0, false, true, "/s", "t", "", false },
    { OPT_INSECURE, "insecure", 0, true, true, NULL, NULL, "yes", false },
    { OPT_SAVE_ON_SIGNAL, "save-on-signal", 0, true, true, NULL, NULL, "yes", false },
    { OPT_PREFIX, "prefix", 0, true, true, NULL, NULL, "yes", false },
    { OPT_DIRECT_OUTPUT, "direct-output", 0, true, true, NULL, NULL, "yes", false },
    { OPT_QUIET, "quiet", 'q', true, true, NULL, NULL, "yes", false },
    { OPT_AGENT, "agent", 0, false, true, "/a", "b", "", false },
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

/* `name` after two dashes as an argument: alone with the value behind it, and with "=". */
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

static void underscored(char *out, const char *name)
{
    strcpy(out, name);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : *c;
}

Test(options_forms, dashes_and_underscores_with_a_value_apart_or_attached, .timeout = 600)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        char name[64];

        if (known[i].id == OPT_LOGS_SPECS)
            continue;
        taken_by_name(&known[i], known[i].name);
        underscored(name, known[i].name);
        taken_by_name(&known[i], name);
    }
}

/* How many of torchrun's thirty, and --help, begin so. */
static size_t count_theirs(const char *start)
{
    size_t n = strncmp("help", start, strlen(start)) == 0;

    for (size_t i = 0; i < N_KNOWN; i++)
        n += known[i].theirs && strncmp(known[i].name, start, strlen(start)) == 0;
    return n;
}

Test(options_forms, a_name_may_be_cut_wherever_torchruns_is_the_only_one, .timeout = 600)
{
    size_t n_cut = 0, n_ambiguous = 0;

    for (size_t i = 0; i < N_KNOWN; i++)
        for (size_t length = 1; known[i].theirs && length < strlen(known[i].name); length++) {
            char start[64], under[64], written[80];
            struct options options;
            struct fsdp_err err;
            struct case_input in = { .words = { written, "prog" } };

            snprintf(start, sizeof start, "%.*s", (int)length, known[i].name);
            underscored(under, start);
            if (count_theirs(start) == 1) {
                n_cut++;
                if (known[i].id != OPT_LOGS_SPECS) {
                    taken_by_name(&known[i], start);
                    taken_by_name(&known[i], under);
                }
                continue;
            }
            n_ambiguous++;
            snprintf(written, sizeof written, "--%s", start);
            cr_expect(eq(int, read_case(&options, &in, &err), FSDP_ERR_CONFIG), "%s", written);
            for (size_t j = 0; j < N_KNOWN; j++) {
                snprintf(under, sizeof under, "--%s", known[j].name);
                if (strncmp(known[j].name, start, length) == 0)
                    cr_expect_not_null(strstr(err.message, under), "%s of %s", under, err.message);
            }
        }
    cr_expect(n_cut > 200 && n_ambiguous > 20, "%zu cut, %zu ambiguous", n_cut, n_ambiguous);
}

Test(options_forms, letters)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        const struct known *k = &known[i];
        char apart[4], joined[80];

        if (k->letter == 0)
            continue;
        snprintf(apart, sizeof apart, "-%c", k->letter);
        if (k->flag) {
            is_taken(k, (struct case_input){ .words = { apart, "prog", "arg" } }, NULL, apart);
            continue;
        }
        is_taken(k, (struct case_input){ .words = { apart, k->other, "prog", "arg" } }, k->other, apart);
        snprintf(joined, sizeof joined, "-%c%s", k->letter, k->other);
        is_taken(k, (struct case_input){ .words = { joined, "prog", "arg" } }, k->other, joined);
        snprintf(joined, sizeof joined, "-%c=%s", k->letter, k->other);
        is_taken(k, (struct case_input){ .words = { joined, "prog", "arg" } }, k->other, joined);
    }
}

static void variable_name(char *out, const char *prefix, const char *name)
{
    sprintf(out, "%s%s", prefix, name);
    for (char *c = out; *c != '\0'; c++)
        *c = *c == '-' ? '_' : (char)toupper((unsigned char)*c);
}

Test(options_forms, variables_of_the_environment)
{
    for (size_t i = 0; i < N_KNOWN; i++) {
        const struct known *k = &known[i];
        const char *value = k->flag ? "1" : k->value;
        char name[80];

        for (int ours = 0; ours < 2; ours++) {
            struct case_input in = { .words = { "prog", "arg" }, .variable = name, .variable_value = value };
            struct options options;
            struct fsdp_err err;

            variable_name(name, ours ? "FSDPRUN_" : "PET_", k->name);
            if (k->id == OPT_LOGS_SPECS || (!ours && k->no_pet)) {
                in.variable_value = k->bad;
                cr_expect(eq(int, read_case(&options, &in, &err), FSDP_OK), "%s is read", name);
                cr_expect_null(options.of[k->id].text, "%s is read", name);
                options_fini(&options);
                continue;
            }
            is_taken(k, in, value, name);
            if (k->bad != NULL && *k->bad != '\0') {
                in.variable_value = k->bad;
                is_refused(in, name);
            }
            in.variable_value = ""; /* as if it were not there */
            cr_expect(eq(int, read_case(&options, &in, &err), FSDP_OK), "%s=: %s", name, err.message);
            cr_expect_null(options.of[k->id].text, "%s", name);
            options_fini(&options);
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

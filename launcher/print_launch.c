#include "launcher/print_launch.h"

#include <fsdp/link.h>
#include <inttypes.h>
#include <string.h>

#include "agent/os/json_text.h"

struct page {
    FILE *out;
    const struct options *options;
};

/* The end of a line: where its value came from. */
static void end_line(const struct page *page, enum option_id id)
{
    const struct option_value *value = &page->options->of[id];

    fprintf(page->out, " # %s\n", value->origin[0] == '\0' ? "default" : value->origin);
}

static void put_number(const struct page *page, const char *key, int64_t number, enum option_id id)
{
    fprintf(page->out, "%s: %" PRId64, key, number);
    end_line(page, id);
}

static void put_bool(const struct page *page, const char *key, bool yes, enum option_id id)
{
    fprintf(page->out, "%s: %s", key, yes ? "true" : "false");
    end_line(page, id);
}

static void put_text(const struct page *page, const char *key, const char *text, enum option_id id)
{
    fprintf(page->out, "%s: ", key);
    json_put_text(page->out, text);
    end_line(page, id);
}

static void put_texts(const struct page *page, const char *key, char *const *texts)
{
    fprintf(page->out, "%s: [", key);
    for (size_t i = 0; texts != NULL && texts[i] != NULL; i++) {
        fputs(i == 0 ? "" : ", ", page->out);
        json_put_text(page->out, texts[i]);
    }
    fputc(']', page->out);
}

static void put_streams(const struct page *page, const char *key, const unsigned char *streams, int n_workers,
                        enum option_id id)
{
    fprintf(page->out, "%s: [", key);
    for (int r = 0; r < n_workers; r++)
        fprintf(page->out, "%s%d", r == 0 ? "" : ", ", streams == NULL ? 0 : streams[r]);
    fputc(']', page->out);
    end_line(page, id);
}

static void put_shown(const struct page *page, const bool *shown, int n_workers)
{
    const char *between = "";

    fputs("shown_local_ranks: [", page->out);
    for (int r = 0; r < n_workers; r++) {
        if (shown != NULL && !shown[r])
            continue;
        fprintf(page->out, "%s%d", between, r);
        between = ", ";
    }
    fputc(']', page->out);
    end_line(page, OPT_LOCAL_RANKS_FILTER);
}

static void put_signals(const struct page *page, const char *key, uint64_t signals, enum option_id id)
{
    const char *between = "";

    fprintf(page->out, "%s: [", key);
    for (int s = 1; s < 64; s++) {
        if ((signals >> s & 1) == 0)
            continue;
        fprintf(page->out, "%s\"SIG%s\"", between, sigabbrev_np(s));
        between = ", ";
    }
    fputc(']', page->out);
    end_line(page, id);
}

static void put_world(const struct page *page, const struct agent_config *config)
{
    put_number(page, "nproc_per_node", config->n_workers, OPT_NPROC_PER_NODE);
    put_number(page, "min_nodes", config->min_nodes, OPT_NNODES);
    put_number(page, "max_nodes", config->n_nodes, OPT_NNODES);
    put_number(page, "max_restarts", config->max_restarts, OPT_MAX_RESTARTS);
    put_number(page, "shutdown_timeout_s", config->grace_ms / 1000, OPT_SHUTDOWN_TIMEOUT);
    put_signals(page, "signals_to_handle", config->stop_signals, OPT_SIGNALS_TO_HANDLE);
    put_signals(page, "forward_signals", config->forward_signals, OPT_FORWARD_SIGNALS);
    put_text(page, "role", config->role, OPT_ROLE);
    put_bool(page, "virtual_local_rank", config->virtual_local_rank, OPT_VIRTUAL_LOCAL_RANK);
    put_text(page, "numa_binding", page->options->of[OPT_NUMA_BINDING].text, OPT_NUMA_BINDING);
}

static void put_nodes(const struct page *page, const struct agent_config *config)
{
    static const char *const hosting[] = { "auto", "yes", "no" };
    const char *backend = page->options->of[OPT_RDZV_BACKEND].text;

    if (config->node_rank < 0)
        put_text(page, "node_rank", NULL, OPT_NODE_RANK); /* whichever is free */
    else
        put_number(page, "node_rank", config->node_rank, OPT_NODE_RANK);
    put_bool(page, "standalone", options_has(page->options, OPT_STANDALONE), OPT_STANDALONE);
    put_text(page, "rdzv_backend", backend == NULL ? "static" : backend, OPT_RDZV_BACKEND);
    put_text(page, "rdzv_id", config->run_id, OPT_RDZV_ID);
    put_text(page, "rdzv_host", config->rendezvous_host, OPT_RDZV_ENDPOINT);
    put_number(page, "rdzv_port", config->rendezvous_port, OPT_RDZV_ENDPOINT);
    put_text(page, "is_host", hosting[config->hosting], OPT_RDZV_CONF);
    put_number(page, "join_timeout_s", config->join_timeout_ms / 1000, OPT_RDZV_CONF);
    put_number(page, "last_call_timeout_s", config->last_call_timeout_ms / 1000, OPT_RDZV_CONF);
    put_text(page, "master_addr", config->master_address, OPT_MASTER_ADDR);
    put_number(page, "master_port", config->master_port, OPT_MASTER_PORT);
    put_text(page, "local_addr", config->local_address, OPT_LOCAL_ADDR);
    put_bool(page, "secret", config->secret != NULL, OPT_SECRET_FILE);
}

static void put_output(const struct page *page, const struct agent_config *config)
{
    const struct agent_output *output = &config->output;

    put_text(page, "log_dir", page->options->of[OPT_LOG_DIR].text, OPT_LOG_DIR);
    put_text(page, "run_dir", page->options->of[OPT_RUN_DIR].text, OPT_RUN_DIR);
    put_streams(page, "redirects", output->redirects, config->n_workers, OPT_REDIRECTS);
    put_streams(page, "tee", output->tees, config->n_workers, OPT_TEE);
    put_shown(page, output->shown, config->n_workers);
    put_texts(page, "duplicate_stdout_filters", output->stdout_filters);
    end_line(page, OPT_DUPLICATE_STDOUT_FILTERS);
    put_texts(page, "duplicate_stderr_filters", output->stderr_filters);
    end_line(page, OPT_DUPLICATE_STDERR_FILTERS);
    put_text(page, "log_line_prefix_template", output->prefix_template, OPT_LOG_LINE_PREFIX_TEMPLATE);
    put_bool(page, "direct_output", output->direct, OPT_DIRECT_OUTPUT);
    put_number(page, "log_limit_bytes", (int64_t)output->file_limit_bytes, OPT_LOG_LIMIT);
    put_number(page, "log_keep", output->n_rotated, OPT_LOG_KEEP);
}

int print_launch(const struct launch *launch, const struct options *options, FILE *out)
{
    const struct page page = { out, options };

    fputs("# Nothing was run: this is how it would be launched, and where each value came from.\n", out);
    put_texts(&page, "command", launch->config.argv);
    fputc('\n', out);
    put_world(&page, &launch->config);
    put_nodes(&page, &launch->config);
    put_output(&page, &launch->config);
    return fflush(out) == 0 && !ferror(out) ? 0 : FSDP_EXIT_IO;
}

#include "shard_runtime/trainer/plan_report.h"

#include <inttypes.h>
#include <string.h>

#include "shard_runtime/core/text.h"

enum { SIZE_BYTES = 32, INDENT = 8 };

static const char arena_words[] = "its parts below are not largest at the same time:";
static const char snapshot_words[] = "two copies, held by the agent; not in the total";
static const char copies_words[] = "the same for a rank of another node";
static const char shared_words[] = "of the transport; all ranks of the node map it";

/* Writes a size for people: "1.25 GiB", with three digits or more. */
static const char *human(char out[SIZE_BYTES], uint64_t bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double value = (double)bytes;
    int unit = 0;

    while (value >= 1024 && unit < 6) {
        value /= 1024;
        unit++;
    }
    snprintf(out, SIZE_BYTES,
             value < 10 && unit > 0    ? "%.2f %s"
             : value < 100 && unit > 0 ? "%.1f %s"
                                       : "%.0f %s",
             value, units[unit]);
    return out;
}

/* The outputs that have a line of a table. The text and the JSON come from one table. */
enum place { IN_BOTH, IN_TEXT, IN_JSON };

struct line {
    const char *name; /* the key in JSON; in text, it is indented if the line is a part of the line above */
    const char *what; /* description for people; NULL with IN_JSON */
    uint64_t bytes;
    enum place place;
};

/* One table: its title as text, its key in JSON, and a line for each class of memory. */
typedef void put_table(void *out, const char *title, const char *key, const struct line *lines, size_t n);

static void put_table_text(void *out, const char *title, const char *key, const struct line *lines, size_t n)
{
    char size[SIZE_BYTES];

    (void)key;
    fprintf(out, "%s\n", title);
    for (size_t i = 0; i < n; i++)
        if (lines[i].place != IN_JSON)
            fprintf(out, "  %-12s %10s   %s\n", lines[i].name, human(size, lines[i].bytes), lines[i].what);
}

static void put_table_json(void *out, const char *title, const char *key, const struct line *lines, size_t n)
{
    (void)title;
    json_open(out, key, '{');
    for (size_t i = 0; i < n; i++)
        if (lines[i].place != IN_TEXT)
            json_field(out, lines[i].name + strspn(lines[i].name, " "), "%" PRIu64, lines[i].bytes);
    json_close(out, '}');
}

/* For cuda: prints the device memory of a rank, and its host memory. */
static void put_device_memory(put_table *put, void *out, const struct forecast *f)
{
    const struct fsdp_memory *memory = &f->need.memory;
    const struct fsdp_forecast_apart *apart = &f->need.apart;
    const enum place if_evaluates = f->evaluation > 0 ? IN_BOTH : IN_JSON;
    const struct line device[] = {
        { "parameters", "this rank's rows, padded to equal shards", apart->parameters, IN_BOTH },
        { "gradients", "the same of gradients", apart->gradients, IN_BOTH },
        { "optimizer", "its state of these rows", apart->optimizer, IN_BOTH },
        { "arena", arena_words, memory->arena, IN_TEXT },
        { "  gather", "gathered parameters", memory->gather, IN_BOTH },
        { "  reduce", "whole gradients, until they are reduced", memory->reduce, IN_BOTH },
        { "  activations", "what forward keeps, and their gradients", memory->activations, IN_BOTH },
        { "  scratch", "for norms and attention", memory->scratch, IN_BOTH },
        { "arena", NULL, memory->arena, IN_JSON },
        { "evaluation", "an arena of its own", memory->evaluation, if_evaluates },
        { "inputs", "a batch", apart->inputs, IN_BOTH },
        { "workspace", "of cuBLASLt", apart->workspace, IN_BOTH },
        { "kernels", "scratch outside the arena", apart->kernels, IN_BOTH },
        { "allocated", "all of that; compare memory_bytes of metrics.jsonl", apart->allocated, IN_BOTH },
        { "collectives", "NCCL's buffers: an estimate", apart->collectives, IN_BOTH },
        { "snapshot", NULL, 0, IN_JSON },
        { "copies", NULL, 0, IN_JSON },
        { "shared", NULL, 0, IN_JSON },
        { "offloaded", NULL, f->need.offloaded, IN_JSON },
        { "staging", NULL, 0, IN_JSON },
        { "baseline", "the CUDA context and code: a constant, not measured", f->baseline, IN_BOTH },
        { "total", "", f->total, IN_BOTH },
    };
    const struct line host[] = {
        { "parameters", "offloaded, page-locked", apart->host_parameters, IN_BOTH },
        { "gradients", "the same", apart->host_gradients, IN_BOTH },
        { "optimizer", f->need.offloaded > 0 ? "the window of its state" : "the same", apart->host_optimizer,
          IN_BOTH },
        { "logits", "of an evaluation", apart->host_logits, if_evaluates },
        { "staging", "between ranks, by way of the host", apart->host_staging + f->need.staging, IN_BOTH },
        { "snapshot", snapshot_words, f->snapshot, f->snapshot > 0 ? IN_BOTH : IN_JSON },
        { "copies", copies_words, f->copies, f->copies > 0 ? IN_BOTH : IN_JSON },
        { "shared", shared_words, f->need.shared, IN_BOTH },
        { "baseline", "the process, measured here, without the driver", f->host_baseline, IN_BOTH },
        { "total", "", f->host_total, IN_BOTH },
    };

    put(out, "device memory of a rank", "per_rank", device, sizeof device / sizeof *device);
    put(out, "\nhost memory of a rank", "per_rank_host", host, sizeof host / sizeof *host);
}

static void put_memory(put_table *put, void *out, const struct forecast *f)
{
    const struct fsdp_memory *memory = &f->need.memory;
    const struct line lines[] = {
        { "parameters", "this rank's rows, padded to equal shards", memory->parameters, IN_BOTH },
        { "gradients", "the same of gradients", memory->gradients, IN_BOTH },
        { "optimizer", f->need.offloaded > 0 ? "the window of its state" : "its state of these rows",
          f->need.optimizer, IN_BOTH },
        { "arena", arena_words, memory->arena, IN_TEXT },
        { "  gather", "gathered parameters", memory->gather, IN_BOTH },
        { "  reduce", "whole gradients, until they are reduced", memory->reduce, IN_BOTH },
        { "  activations", "what forward keeps, and their gradients", memory->activations, IN_BOTH },
        { "  scratch", "for products and norms", memory->scratch, IN_BOTH },
        { "arena", NULL, memory->arena, IN_JSON },
        { "evaluation", "an arena of its own", memory->evaluation, f->evaluation > 0 ? IN_BOTH : IN_JSON },
        { "staging", "of the transport between ranks", f->need.staging, IN_BOTH },
        { "snapshot", snapshot_words, f->snapshot, f->snapshot > 0 ? IN_BOTH : IN_JSON },
        { "copies", copies_words, f->copies, f->copies > 0 ? IN_BOTH : IN_JSON },
        { "shared", shared_words, f->need.shared, IN_BOTH },
        { "offloaded", NULL, f->need.offloaded, IN_JSON },
        { "baseline", "the process itself, measured in this one", f->baseline, IN_BOTH },
        { "total", "", f->total, IN_BOTH },
    };

    put(out, "memory of a rank", "per_rank", lines, sizeof lines / sizeof *lines);
}

static void put_tables(put_table *put, void *out, const struct forecast *f)
{
    if (f->on_device)
        put_device_memory(put, out, f);
    else
        put_memory(put, out, f);
}

static void put_traffic(FILE *out, const struct forecast *f)
{
    const struct {
        const char *name;
        const struct fsdp_forecast_collectives *calls;
    } rows[] = { { "all_gather", &f->need.all_gather },
                 { "reduce_scatter", &f->need.reduce_scatter },
                 { "all_reduce", &f->need.all_reduce } };
    char size[SIZE_BYTES];

    fprintf(out, "\nsent by a rank in a step\n");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        fprintf(out, "  %-14s %8s   in %" PRIu64 " calls\n", rows[i].name,
                human(size, rows[i].calls->sent_bytes), rows[i].calls->n_calls);
}

static void put_advice(FILE *out, const struct advice *advice, int n, uint64_t sent_now)
{
    for (int i = 0; i < n; i++) {
        char total[SIZE_BYTES], sent[SIZE_BYTES], before[SIZE_BYTES], words[256];

        fprintf(out, "  --set %-44s %10s  %s\n", advice[i].setting, human(total, advice[i].total),
                advice[i].fits ? "fits" : "");
        snprintf(words, sizeof words, "%s; %s", advice_effect_words(advice[i].effect), advice[i].cost);
        fprintf(out, "%*s", INDENT, "");
        text_wrap(out, words, INDENT, INDENT, TEXT_COLUMNS);
        if (advice[i].sent_bytes != sent_now)
            fprintf(out, "        sends %s a step instead of %s\n", human(sent, advice[i].sent_bytes),
                    human(before, sent_now));
    }
}

void plan_report_text(FILE *out, const struct job *job, const struct forecast *f, size_t limit,
                      const struct advice_list *advice)
{
    char size[SIZE_BYTES];

    fprintf(out,
            "%s: %zu parameters on %d ranks, %d a node\n%" PRIu64 " micro-steps of %" PRIu64 " x %" PRIu64
            " tokens a rank\n\n",
            job->run.name, f->n_parameters, f->W, f->ranks_per_host, f->n_micro, f->batch, job->model.seq);
    put_tables(put_table_text, out, f);
    if (f->need.offloaded > 0)
        fprintf(out, "  %-12s %10s   on a disk, of each rank: all of its optimizer state\n", "offloaded",
                human(size, f->need.offloaded));
    fprintf(out, "  %d ranks of a node: %s of host memory\n", f->ranks_per_host,
            human(size, forecast_node_bytes(f)));
    put_traffic(out, f);
    if (limit == 0)
        return;
    if (f->snapshot > 0 && f->total <= limit && f->snapshot + f->copies > limit - f->total)
        fputs("\nsnapshots do not fit in addition to the rest: training waits for the disk when it saves\n",
              out);
    fprintf(out, "\n%s in %s (%.0f %%)\n", f->total <= limit ? "it fits" : "it does not fit",
            human(size, limit), 100.0 * (double)f->total / (double)limit);
    if (advice == NULL)
        return;
    if (advice->n_alone == 0 && !advice->left_out)
        fputs("no key of this version would save memory: more nodes, or a smaller model\n", out);
    else if (advice->n_alone > 0)
        fputs("\nwhat would save memory, each alone\n", out);
    put_advice(out, advice->alone, advice->n_alone, forecast_sent_bytes(f));
    if (advice->n_together > 1) {
        fputs("\nand one after the other\n", out);
        put_advice(out, advice->together, advice->n_together, forecast_sent_bytes(f));
    }
    if (advice->left_out)
        fprintf(out, "\nnot all changes were tried: a plan of %" PRIu64 " blocks takes long\n",
                job->model.layers);
    else if (advice->n_together > 0 && !advice->together[advice->n_together - 1].fits)
        fputs("\neven with all of that it does not fit: a smaller model\n", out);
}

static void put_advice_json(struct json_text *out, const char *key, const struct advice *advice, int n)
{
    json_open(out, key, '[');
    for (int i = 0; i < n; i++) {
        json_open(out, NULL, '{');
        json_field_string(out, "set", advice[i].setting);
        json_field(out, "total", "%zu", advice[i].total);
        json_field(out, "sent", "%" PRIu64, advice[i].sent_bytes);
        json_field_bool(out, "fits", advice[i].fits);
        json_field_string(out, "effect", advice_effect_words(advice[i].effect));
        json_field_string(out, "cost", advice[i].cost);
        json_close(out, '}');
    }
    json_close(out, ']');
}

void plan_report_json(struct json_text *out, const struct forecast *f, size_t limit,
                      const struct advice_list *advice)
{
    json_open(out, NULL, '{');
    put_tables(put_table_json, out, f);
    json_open(out, "traffic_per_step", '{');
    json_field(out, "all_gather", "%" PRIu64, f->need.all_gather.sent_bytes);
    json_field(out, "reduce_scatter", "%" PRIu64, f->need.reduce_scatter.sent_bytes);
    json_field(out, "all_reduce", "%" PRIu64, f->need.all_reduce.sent_bytes);
    json_close(out, '}');
    json_field(out, "world_size", "%d", f->W);
    json_field(out, "n_parameters", "%zu", f->n_parameters);
    json_field(out, "fits", limit == 0 ? "null" : f->total <= limit ? "true" : "false");
    json_open(out, "per_node", '{');
    json_field(out, "ranks", "%d", f->ranks_per_host);
    json_field(out, "host_total", "%" PRIu64, forecast_node_bytes(f));
    json_close(out, '}');
    if (advice != NULL) {
        put_advice_json(out, "change", advice->alone, advice->n_alone);
        put_advice_json(out, "change_together", advice->together, advice->n_together);
        json_field_bool(out, "changes_left_out", advice->left_out);
    }
    json_close(out, '}');
}

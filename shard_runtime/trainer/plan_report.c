#include "shard_runtime/trainer/plan_report.h"

#include <inttypes.h>

enum { SIZE_BYTES = 32 };

/* "1.25 GiB", three digits or more. */
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

struct line {
    const char *name, *what; /* name NULL: there is no such thing */
    uint64_t bytes;
};

static void put_lines(FILE *out, const struct line *lines, size_t n)
{
    char size[SIZE_BYTES];

    for (size_t i = 0; i < n; i++)
        if (lines[i].name != NULL)
            fprintf(out, "  %-12s %10s   %s\n", lines[i].name, human(size, lines[i].bytes), lines[i].what);
}

/* On cuda: a rank's device memory, and what it has in the host's. */
static void put_device_memory(FILE *out, const struct forecast *f)
{
    const struct fsdp_memory *memory = &f->need.memory;
    const struct fsdp_forecast_apart *apart = &f->need.apart;
    const struct line offloaded = { "offloaded", "on a disk, of each rank: all of its optimizer state",
                                    f->need.offloaded };
    const struct line device[] = {
        { "parameters", "this rank's rows, padded to equal shards", apart->parameters },
        { "gradients", "the same of gradients", apart->gradients },
        { "optimizer", "its state of these rows", apart->optimizer },
        { "arena",
          "beside the place of gradients, for what follows, not at its most at once:", memory->arena },
        { "  gather", "gathered parameters", memory->gather },
        { "  reduce", "whole gradients, until they are reduced", memory->reduce },
        { "  activations", "what forward keeps, and their gradients", memory->activations },
        { "  scratch", "beside norms and attention", memory->scratch },
        { f->evaluation > 0 ? "evaluation" : NULL, "an arena of its own", memory->evaluation },
        { "inputs", "a batch", apart->inputs },
        { "workspace", "of cuBLASLt", apart->workspace },
        { "kernels", "scratch outside the arena", apart->kernels },
        { "allocated", "all of that: comparable with memory_bytes of metrics.jsonl", apart->allocated },
        { "collectives", "NCCL's buffers: an estimate", apart->collectives },
        { "baseline", "the CUDA context and code: a constant, not measured", f->baseline },
        { "total", "", f->total },
    };
    const struct line host[] = {
        { "parameters", "offloaded, page-locked", apart->host_parameters },
        { "gradients", "the same", apart->host_gradients },
        { "optimizer", f->need.offloaded > 0 ? "the window of its state" : "the same",
          apart->host_optimizer },
        { f->evaluation > 0 ? "logits" : NULL, "of an evaluation", apart->host_logits },
        { "staging", "between ranks, by way of the host", apart->host_staging + f->need.staging },
        { "shared", "segments of the transport that all ranks of the node map", f->need.shared },
        { "baseline", "the process itself, measured in this one, without the driver's", f->host_baseline },
        { "total", "", f->host_total },
    };

    fprintf(out, "device memory of a rank\n");
    put_lines(out, device, sizeof device / sizeof *device);
    fprintf(out, "\nhost memory of a rank\n");
    put_lines(out, host, sizeof host / sizeof *host);
    if (f->need.offloaded > 0)
        put_lines(out, &offloaded, 1);
}

static void put_memory(FILE *out, const struct forecast *f)
{
    const struct line offloaded = { "offloaded", "on a disk, of each rank: all of its optimizer state",
                                    f->need.offloaded };
    const struct fsdp_memory *memory = &f->need.memory;
    const struct line lines[] = {
        { "parameters", "this rank's rows, padded to equal shards", memory->parameters },
        { "gradients", "the same of gradients", memory->gradients },
        { "optimizer", f->need.offloaded > 0 ? "the window of its state" : "its state of these rows",
          f->need.optimizer },
        { "arena",
          "beside the place of gradients, for what follows, not at its most at once:", memory->arena },
        { "  gather", "gathered parameters", memory->gather },
        { "  reduce", "whole gradients, until they are reduced", memory->reduce },
        { "  activations", "what forward keeps, and their gradients", memory->activations },
        { "  scratch", "beside products and norms", memory->scratch },
        { f->evaluation > 0 ? "evaluation" : NULL, "an arena of its own", memory->evaluation },
        { "staging", "of the transport between ranks", f->need.staging },
        { "shared", "segments of the transport that all ranks of the node map", f->need.shared },
        { "baseline", "the process itself, measured in this one", f->baseline },
        { "total", "", f->total },
    };

    fprintf(out, "memory of a rank\n");
    put_lines(out, lines, sizeof lines / sizeof *lines);
    if (f->need.offloaded > 0)
        put_lines(out, &offloaded, 1);
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
        char total[SIZE_BYTES], sent[SIZE_BYTES], before[SIZE_BYTES];

        fprintf(out, "  --set %-44s %10s  %s\n", advice[i].setting, human(total, advice[i].total),
                advice[i].fits ? "fits" : "");
        fprintf(out, "        %s; %s\n", advice_effect_words(advice[i].effect), advice[i].cost);
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
            "%s: %zu parameters on %d ranks, %d a node; %" PRIu64 " micro-steps of %" PRIu64 " x %" PRIu64
            " tokens a rank\n\n",
            job->run.name, f->n_parameters, f->W, f->ranks_per_host, f->n_micro, f->batch, job->model.seq);
    if (f->on_device)
        put_device_memory(out, f);
    else
        put_memory(out, f);
    fprintf(out, "  %d ranks of a node: %s of host memory\n", f->ranks_per_host,
            human(size, forecast_node_bytes(f)));
    put_traffic(out, f);
    if (limit == 0)
        return;
    fprintf(out, "\n%s in %s (%.0f %%)\n", f->total <= limit ? "it fits" : "it does not fit",
            human(size, limit), 100.0 * (double)f->total / (double)limit);
    if (advice == NULL)
        return;
    if (advice->n_alone == 0 && !advice->left_out)
        fputs("no key that this version supports would save memory: more nodes, or a smaller model\n", out);
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

static void put_advice_json(FILE *out, const char *name, const struct advice *advice, int n)
{
    fprintf(out, ", \"%s\": [", name);
    for (int i = 0; i < n; i++)
        fprintf(out,
                "%s{\"set\": \"%s\", \"total\": %zu, \"sent\": %" PRIu64
                ", \"fits\": %s, \"effect\": \"%s\", "
                "\"cost\": \"%s\"}",
                i == 0 ? "" : ", ", advice[i].setting, advice[i].total, advice[i].sent_bytes,
                advice[i].fits ? "true" : "false", advice_effect_words(advice[i].effect), advice[i].cost);
    fputs("]", out);
}

static void put_device_memory_json(FILE *out, const struct forecast *f)
{
    const struct fsdp_memory *memory = &f->need.memory;
    const struct fsdp_forecast_apart *apart = &f->need.apart;

    fprintf(
        out,
        "\"per_rank\": {\"parameters\": %zu, \"gradients\": %zu, \"optimizer\": %zu, \"gather\": %zu, "
        "\"reduce\": %zu, \"activations\": %zu, \"scratch\": %zu, \"arena\": %zu, \"evaluation\": %zu, "
        "\"inputs\": %zu, "
        "\"workspace\": %zu, \"kernels\": %zu, \"allocated\": %zu, \"collectives\": %zu, \"snapshot\": 0, "
        "\"shared\": 0, \"offloaded\": %" PRIu64 ", \"staging\": 0, \"baseline\": %zu, \"total\": %zu}, ",
        apart->parameters, apart->gradients, apart->optimizer, memory->gather, memory->reduce,
        memory->activations, memory->scratch, memory->arena, memory->evaluation, apart->inputs,
        apart->workspace, apart->kernels, apart->allocated, apart->collectives, f->need.offloaded,
        f->baseline, f->total);
    fprintf(
        out,
        "\"per_rank_host\": {\"parameters\": %zu, \"gradients\": %zu, \"optimizer\": %zu, \"logits\": %zu, "
        "\"snapshot\": 0, \"shared\": %zu, \"staging\": %zu, \"baseline\": %zu, \"total\": %zu}, ",
        apart->host_parameters, apart->host_gradients, apart->host_optimizer, apart->host_logits,
        f->need.shared, apart->host_staging + f->need.staging, f->host_baseline, f->host_total);
}

static void put_memory_json(FILE *out, const struct forecast *f)
{
    const struct fsdp_memory *memory = &f->need.memory;

    fprintf(out,
            "\"per_rank\": {\"parameters\": %zu, \"gradients\": %zu, \"optimizer\": %zu, \"gather\": %zu, "
            "\"reduce\": %zu, \"activations\": %zu, \"scratch\": %zu, \"arena\": %zu, \"evaluation\": %zu, "
            "\"snapshot\": 0, \"shared\": %zu, \"offloaded\": %" PRIu64
            ", \"staging\": %zu, \"baseline\": %zu, \"total\": %zu}, ",
            memory->parameters, memory->gradients, f->need.optimizer, memory->gather, memory->reduce,
            memory->activations, memory->scratch, memory->arena, memory->evaluation, f->need.shared,
            f->need.offloaded, f->need.staging, f->baseline, f->total);
}

void plan_report_json(FILE *out, const struct forecast *f, size_t limit, const struct advice_list *advice)
{
    fputs("{", out);
    if (f->on_device)
        put_device_memory_json(out, f);
    else
        put_memory_json(out, f);
    fprintf(out,
            "\"traffic_per_step\": {\"all_gather\": %" PRIu64 ", \"reduce_scatter\": %" PRIu64
            ", \"all_reduce\": %" PRIu64 "}, \"world_size\": %d, \"n_parameters\": %zu, \"fits\": %s",
            f->need.all_gather.sent_bytes, f->need.reduce_scatter.sent_bytes, f->need.all_reduce.sent_bytes,
            f->W, f->n_parameters,
            limit == 0          ? "null"
            : f->total <= limit ? "true"
                                : "false");
    fprintf(out, ", \"per_node\": {\"ranks\": %d, \"host_total\": %" PRIu64 "}", f->ranks_per_host,
            forecast_node_bytes(f));
    if (advice != NULL) {
        put_advice_json(out, "change", advice->alone, advice->n_alone);
        put_advice_json(out, "change_together", advice->together, advice->n_together);
        fprintf(out, ", \"changes_left_out\": %s", advice->left_out ? "true" : "false");
    }
    fputs("}\n", out);
}

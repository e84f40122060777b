#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shard_runtime/job/tree.h"
#include "tests/unit/job/resolve_text.h"

#define DATA     "data: {path: /d}\n"
#define N(array) (sizeof(array) / sizeof *(array))

static char lines[8192];

static struct job_place origin_of(const struct job_origins *origins, const char *path)
{
    return origins->of[job_key_index(job_key_find_path(path))];
}

static const char *origin_text(const struct job_origins *origins, const char *path)
{
    static char text[4600];

    return job_place_text(origin_of(origins, path), text, sizeof text);
}

static void resolves(struct job *job, struct job_origins *origins, const char *text,
                     const struct job_setting *settings, size_t n_settings)
{
    enum fsdp_status status =
        resolve_text(job, origins, text, strlen(text), settings, n_settings, lines, sizeof lines);

    cr_assert(eq(int, status, FSDP_OK), "%s", lines);
}

static void setting_gives(const char *text, const char *want)
{
    struct job_setting setting = { "--set 2", text };
    struct job_origins origins;
    struct job job;

    cr_expect(eq(int, resolve_text(&job, &origins, DATA, strlen(DATA), &setting, 1, lines, sizeof lines),
                 FSDP_ERR_CONFIG),
              "%s", text);
    cr_expect(eq(str, lines, (char *)want));
}

Test(resolve, defaults_are_filled_in_and_say_so)
{
    struct job_origins origins;
    struct job job;

    resolves(&job, &origins, DATA, NULL, 0);

    cr_assert(eq(str, job.data.path, "/d"));
    cr_assert(eq(str, job.run.name, "t"));
    cr_assert(eq(u64, job.model.dim, 512));
    cr_assert(eq(u64, job.launch.max_restarts, 3));
    cr_assert(eq(u64, job.launch.threads, 0));
    cr_assert(eq(u64, job.train.global_batch, 0));
    cr_assert(eq(dbl, job.optimizer.betas[1], 0.95));
    cr_assert(eq(str, (char *)origin_text(&origins, "model.dim"), "default"));
    cr_assert(eq(str, (char *)origin_text(&origins, "run.name"), "default (the job file's name)"));
    cr_assert(eq(str, (char *)origin_text(&origins, "data.path"), "t.yaml:1:14"));
    job_free(&job);
}

Test(resolve, the_sample_of_the_contract_is_read_as_it_stands)
{
    static const char text[] =
        "run:        {name: quickstart, dir: runs, seed: 1234, log_every: 10, device: auto, collectives: "
        "auto} # auto | cpu\n"
        "launch:     {nproc_per_node: 2, nnodes: 1, max_restarts: 3, threads: auto}\n"
        "data:       {path: data/bible.txt, tokenizer: byte, order: shuffled, validation: 0.0}\n"
        "model:      {kind: transformer, layers: 10, dim: 512, heads: 8, vocab: 1024, seq: 64, dropout: 0.0, "
        "causal: true}\n"
        "train:      {steps: 200, batch: 8, grad_accumulation: 1, clip_norm: 1.0}\n"
        "optimizer:  {kind: adamw, lr: 1.0e-3, betas: [0.9, 0.95], eps: 1.0e-8, weight_decay: 0.1, decay: "
        "all, schedule: constant, warmup_steps: 0}\n"
        "parallel:   {replicate: 1, reshard_after_forward: auto, param_dtype: float32, reduce_dtype: "
        "float32, output_dtype: null,\n"
        "             offload: none, activation_checkpoint: none, gradient_sync: last, "
        "reshard_after_backward: true}\n"
        "checkpoint: {every: 50, keep: 3, resume: auto, export: none}\n";
    struct job_origins origins;
    struct job job;

    resolves(&job, &origins, text, NULL, 0);

    cr_assert(eq(u64, job.launch.nproc_per_node, 2));
    cr_assert(eq(dbl, job.optimizer.lr, 1e-3));
    cr_assert(eq(str, (char *)origin_text(&origins, "parallel.offload"), "t.yaml:8:23"));
    job_free(&job);
}

Test(resolve, a_preset_fills_what_nobody_gave)
{
    static const char text[] = "data: {path: /d}\nmodel: {kind: gpt2, preset: 355m, seq: 256}\n";
    struct job_origins origins;
    struct job job;

    resolves(&job, &origins, text, NULL, 0);

    cr_assert(eq(u64, job.model.layers, 24));
    cr_assert(eq(u64, job.model.dim, 1024));
    cr_assert(eq(u64, job.model.heads, 16));
    cr_assert(eq(u64, job.model.vocab, 50257));
    cr_assert(eq(u64, job.model.seq, 256));
    cr_assert(job.model.tied);
    cr_assert(eq(str, (char *)origin_text(&origins, "model.dim"), "model.preset"));
    cr_assert(eq(str, (char *)origin_text(&origins, "model.seq"), "t.yaml:2:40"));
    cr_assert(eq(str, (char *)origin_text(&origins, "model.tied"), "model.kind"));
    job_free(&job);
}

Test(resolve, a_gpt2_without_preset_has_the_sizes_of_the_keys)
{
    struct job_origins origins;
    struct job job;

    resolves(&job, &origins, "data: {path: /d}\nmodel: {kind: gpt2, layers: 3}\n", NULL, 0);

    cr_assert(eq(u64, job.model.layers, 3));
    cr_assert(eq(u64, job.model.dim, 512));
    cr_assert(job.model.tied);
    job_free(&job);
}

Test(resolve, a_byte_order_mark_windows_lines_and_document_marks_are_fine)
{
    struct job_origins origins;
    struct job job;

    resolves(&job, &origins,
             "\xef\xbb\xbf"
             "---\r\n# c\r\ndata:\r\n  path: /d\r\nrun:\r\n...\r\n",
             NULL, 0);

    cr_assert(eq(str, job.data.path, "/d"));
    cr_assert(eq(str, (char *)origin_text(&origins, "data.path"), "t.yaml:4:9"));
    job_free(&job);
}

Test(resolve, the_last_setting_wins_and_is_named)
{
    static const struct job_setting settings[] = {
        { "PET_NNODES", "launch.nnodes=2" },
        { "--set 1", "model.dim=128" },
        { "--set 2", "model.dim=256" },
        { "--set 3", "optimizer.betas=[0.5, 0.25]" },
        { "--set 4", "data.path=/a b#c: [d" },
        { "--set 5", "run.name=12" },
        { "--set 6", "parallel.reshard_after_forward=false" },
        { "--set 7", "train.global_batch=16" },
    };
    struct job_origins origins;
    struct job job;

    resolves(&job, &origins, DATA "model: {dim: 64}\n", settings, N(settings));

    cr_assert(eq(u64, job.model.dim, 256));
    cr_assert(eq(u64, job.launch.nnodes, 2));
    cr_assert(eq(dbl, job.optimizer.betas[1], 0.25));
    cr_assert(eq(str, job.data.path, "/a b#c: [d"));
    cr_assert(eq(str, job.run.name, "12"));
    cr_assert(eq(int, job.parallel.reshard_after_forward, JOB_RESHARD_FALSE));
    cr_assert(eq(str, (char *)origin_text(&origins, "model.dim"), "--set 2"));
    cr_assert(eq(str, (char *)origin_text(&origins, "launch.nnodes"), "PET_NNODES"));
    job_free(&job);
}

Test(resolve, a_setting_may_mend_what_the_file_has_wrong_together)
{
    static const struct job_setting setting = { "--set 1", "model.heads=4" };
    struct job_origins origins;
    struct job job;

    resolves(&job, &origins, DATA "model: {dim: 100, heads: 8}\n", &setting, 1);

    cr_assert(eq(u64, job.model.heads, 4));
    job_free(&job);
}

Test(resolve, a_wrong_setting_names_itself)
{
    setting_gives("model.dimm=4", "--set 2: model.dimm: is no key of a job file; did you mean dim?");
    setting_gives("modle.dim=4", "--set 2: modle.dim: is no key of a job file; did you mean model?");
    setting_gives("zebra.dim=4", "--set 2: zebra.dim: is no key of a job file");
    setting_gives("dim=4", "--set 2: dim is not section.key; did you mean model.dim?");
    setting_gives("model.dim", "--set 2: must be section.key=value");
    setting_gives("=4", "--set 2: must be section.key=value");
    setting_gives("", "--set 2: must be section.key=value");
    setting_gives("model.dim=", "--set 2: model.dim: must be a whole number from 1 to 1048576, not null");
    setting_gives("model.dim=x", "--set 2: model.dim: must be a whole number from 1 to 1048576, not x");
    setting_gives("model.dim=[4", "--set 2: model.dim: expected , or ]: a bracket is not closed, or a comma "
                                  "is missing (begun in line 1)");
    setting_gives("model.dim=&a 4", "--set 2: model.dim: anchors (&) are not allowed");
    setting_gives("model.dim={a: 4}", "--set 2: model.dim: must be one value, not a map");
    setting_gives("model.dim=4\xff", "--set 2: model.dim: is not UTF-8 text (byte 0xff)");
    setting_gives("data.path=a\xff", "--set 2: data.path: is not UTF-8 text");
    setting_gives("\xff.path=a", "--set 2: is not UTF-8 text");
    setting_gives("data.path=", "--set 2: data.path: must not be empty");
    setting_gives("model.heads=7", "--set 2: model.heads: 7 heads do not divide model.dim 512");
    setting_gives("parallel.offload=params",
                  "--set 2: parallel.offload: must be none, cpu or nvme, not params");
    setting_gives("parallel.offload_dir=/scratch",
                  "--set 2: parallel.offload_dir: is for parallel.offload: nvme");
}

Test(resolve, the_word_for_none_is_no_file_of_that_name)
{
    static const char text[] = "data: {path: d}\nmodel: {weights: w}\n";
    static const struct job_setting setting = { "--set 1", "model.weights=null" };
    struct job_origins origins;
    struct job job;

    cr_assert(eq(int, resolve_text(&job, &origins, text, sizeof text - 1, &setting, 1, lines, sizeof lines),
                 FSDP_OK));
    cr_assert(eq(str, job.model.weights, (char *)""));
    job_free(&job);
}

Test(resolve, an_input_path_starts_at_the_job_file_and_a_setting_at_the_working_directory)
{
    static const struct job_setting setting = { "--set 1", "data.path=x.txt" };
    struct job_input input = { "some/where/t.yaml", "data: {path: ../d.txt}\n", 23, NULL, 0 };
    struct job_origins origins;
    struct job_report report;
    struct job job;
    char cwd[4096], want[4200];

    cr_assert_not_null(getcwd(cwd, sizeof cwd));
    job_report_init(&report);
    cr_assert(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_OK));
    snprintf(want, sizeof want, "%s/some/where/../d.txt", cwd);
    cr_assert(eq(str, job.data.path, want));
    job_free(&job);

    input.path = "/etc/t.yaml";
    cr_assert(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_OK));
    cr_assert(eq(str, job.data.path, "/etc/../d.txt"));
    job_free(&job);

    input.settings = &setting;
    input.n_settings = 1;
    cr_assert(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_OK));
    snprintf(want, sizeof want, "%s/x.txt", cwd);
    cr_assert(eq(str, job.data.path, want));
    job_free(&job);
    job_report_fini(&report);
}

Test(resolve, what_is_printed_is_a_job_file_again_with_every_origin)
{
    static const struct job_setting settings[] = {
        { "--set 1", "optimizer.lr=0.30000000000000004" },
        { "--set 2", "data.path=/odd \"name\" # \\ \xc3\xa9" },
        { "--set 3", "run.dir=true" },
        { "--set 4", "parallel.reshard_after_forward=true" },
        { "--set 5", "launch.threads=3" },
        { "--set 6", "train.global_batch=12" },
        { "--set 7", "run.seed=9007199254740991" },
        { "--set 8", "optimizer.schedule=cosine" },
        { "--set 9", "run.name=12" },
    };
    struct job_origins origins, origins_again;
    struct job job, again;
    char *text = NULL, *json, *json_again;
    size_t size, n_lines = 0, n_comments = 0;
    FILE *out = open_memstream(&text, &size);

    resolves(&job, &origins, DATA, settings, N(settings));
    cr_assert(eq(int, job_print_yaml(&job, &origins, out, NULL), FSDP_OK));
    fclose(out);

    resolves(&again, &origins_again, text, NULL, 0);
    cr_assert(eq(int, job_to_json(&job, &json, NULL), FSDP_OK));
    cr_assert(eq(int, job_to_json(&again, &json_again, NULL), FSDP_OK));
    cr_assert(eq(str, json, json_again));
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        n_lines++;
        n_comments += strstr(line, " # ") != NULL;
    }
    cr_assert(eq(sz, n_lines, job_schema_size + job_sections_size));
    cr_assert(eq(sz, n_comments, n_lines));
    for (size_t i = 0; i < job_schema_size; i++)
        cr_assert(gt(int, origins_again.of[i].line, 0), "%s was not printed", job_schema[i].name);
    free(text);
    free(json);
    free(json_again);
    job_free(&job);
    job_free(&again);
}

Test(resolve, a_job_file_that_cannot_be_read_is_one_line)
{
    struct job_input input = { "/nonexistent/t.yaml", NULL, 0, NULL, 0 };
    struct job_origins origins;
    struct job_report report;
    struct job job;

    job_report_init(&report);
    cr_assert(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_ERR_CONFIG));
    cr_assert(eq(sz, report.n, 1));
    cr_assert(eq(str, report.problems[0].line,
                 "/nonexistent/t.yaml: cannot read the job file: No such file or directory"));
    job_report_fini(&report);

    input.path = "/";
    cr_assert(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_ERR_CONFIG));
    cr_assert(eq(str, report.problems[0].line, "/: cannot read the job file: Is a directory"));
    job_report_fini(&report);
}

Test(resolve, a_job_file_is_read_from_disk_and_one_too_large_is_refused)
{
    char path[] = "/tmp/fsdp-resolve-XXXXXX";
    int fd = mkstemp(path);
    struct job_input input = { path, NULL, 0, NULL, 0 };
    struct job_origins origins;
    struct job_report report;
    struct job job;

    cr_assert(eq(int, (int)write(fd, DATA, strlen(DATA)), (int)strlen(DATA)));
    job_report_init(&report);
    cr_assert(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_OK));
    job_free(&job);
    cr_assert(eq(int, ftruncate(fd, TREE_MAX_BYTES + 100), 0));
    cr_assert(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_ERR_CONFIG));
    cr_assert_not_null(strstr(report.problems[0].line, "is too large"));
    job_report_fini(&report);
    close(fd);
    unlink(path);
}

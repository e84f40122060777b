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
static struct job job;
static struct job_origins origins;

static void expect_origin(const char *path, const char *want)
{
    char text[4600];

    cr_expect_str_eq(job_place_text(origins.of[job_key_index(job_key_find_path(path))], text, sizeof text),
                     want);
}

/* `job` is then to be freed. */
static void resolves(const char *text, const struct job_setting *settings, size_t n_settings)
{
    enum fsdp_status status =
        resolve_text(&job, &origins, text, strlen(text), settings, n_settings, lines, sizeof lines);

    cr_assert(eq(int, status, FSDP_OK), "%s", lines);
}

static void setting_gives(const char *text, const char *want)
{
    struct job_setting setting = { "--set 2", text };

    cr_expect(eq(int, resolve_text(&job, &origins, DATA, strlen(DATA), &setting, 1, lines, sizeof lines),
                 FSDP_ERR_CONFIG),
              "%s", text);
    cr_expect(eq(str, lines, (char *)want));
}

Test(resolve, defaults_are_filled_in_and_say_so)
{
    resolves(DATA, NULL, 0);

    cr_assert(eq(str, job.data.path, "/d"));
    cr_assert(eq(str, job.run.name, "t"));
    cr_assert(eq(u64, job.model.dim, 512));
    cr_assert(eq(u64, job.launch.max_restarts, 3));
    cr_assert(eq(u64, job.launch.threads, 0));
    cr_assert(eq(u64, job.train.global_batch, 0));
    cr_assert(eq(dbl, job.optimizer.betas[1], 0.95));
    expect_origin("model.dim", "default");
    expect_origin("run.name", "default (the job file's name)");
    expect_origin("data.path", "t.yaml:1:14");
    job_free(&job);
}

Test(resolve, a_preset_fills_what_was_not_given_and_without_one_the_keys_do)
{
    resolves("data: {path: /d}\nmodel: {kind: gpt2, preset: 355m, seq: 256}\n", NULL, 0);
    cr_assert(job.model.layers == 24 && job.model.dim == 1024 && job.model.heads == 16);
    cr_assert(job.model.vocab == 50257 && job.model.seq == 256 && job.model.tied);
    expect_origin("model.dim", "model.preset");
    expect_origin("model.seq", "t.yaml:2:40");
    expect_origin("model.tied", "model.kind");
    job_free(&job);

    resolves("data: {path: /d}\nmodel: {kind: gpt2, layers: 3}\n", NULL, 0);
    cr_assert(job.model.layers == 3 && job.model.dim == 512 && job.model.tied);
    job_free(&job);
}

Test(resolve, a_byte_order_mark_windows_lines_and_document_marks_are_fine)
{
    resolves("\xef\xbb\xbf"
             "---\r\n# c\r\ndata:\r\n  path: /d\r\nrun:\r\n...\r\n",
             NULL, 0);

    cr_assert(eq(str, job.data.path, "/d"));
    expect_origin("data.path", "t.yaml:4:9");
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

    resolves(DATA "model: {dim: 64}\n", settings, N(settings));

    cr_assert(eq(u64, job.model.dim, 256));
    cr_assert(eq(u64, job.launch.nnodes, 2));
    cr_assert(eq(dbl, job.optimizer.betas[1], 0.25));
    cr_assert(eq(str, job.data.path, "/a b#c: [d"));
    cr_assert(eq(str, job.run.name, "12"));
    cr_assert(eq(int, job.parallel.reshard_after_forward, JOB_RESHARD_FALSE));
    expect_origin("model.dim", "--set 2");
    expect_origin("launch.nnodes", "PET_NNODES");
    job_free(&job);
}

Test(resolve, the_file_wins_over_defaults_from_elsewhere_and_they_over_ours)
{
    static const struct job_setting defaults[] = { { "SLURM_STEP_NUM_NODES", "launch.nnodes=4" },
                                                   { "SLURM_JOB_NAME", "run.name=llama" } };
    static const struct job_setting setting = { "--set 1", "run.log_every=7" };
    static const char text[] = DATA "launch: {nnodes: 2}\n";
    const struct job_input input = { .path = "t.yaml",
                                     .text = text,
                                     .length = sizeof text - 1,
                                     .settings = &setting,
                                     .n_settings = 1,
                                     .defaults = defaults,
                                     .n_defaults = N(defaults) };
    struct job_report report;

    job_report_init(&report);
    cr_assert(eq(int, job_resolve(&job, &origins, &input, &report), FSDP_OK));

    cr_expect(eq(u64, job.launch.nnodes, 2));
    cr_expect(eq(str, job.run.name, "llama"));
    cr_expect(eq(u64, job.run.log_every, 7));
    expect_origin("run.name", "SLURM_JOB_NAME");
    job_report_fini(&report);
    job_free(&job);
}

Test(resolve, a_setting_may_mend_what_the_file_has_wrong_together)
{
    static const struct job_setting setting = { "--set 1", "model.heads=4" };

    resolves(DATA "model: {dim: 100, heads: 8}\n", &setting, 1);

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

    cr_assert(eq(int, resolve_text(&job, &origins, text, sizeof text - 1, &setting, 1, lines, sizeof lines),
                 FSDP_OK));
    cr_assert(eq(str, job.model.weights, (char *)""));
    job_free(&job);
}

Test(resolve, an_input_path_starts_at_the_job_file_and_a_setting_at_the_working_directory)
{
    static const struct job_setting setting = { "--set 1", "data.path=x.txt" };
    struct job_input input = { .path = "some/where/t.yaml",
                               .text = "data: {path: ../d.txt}\n",
                               .length = 23 };
    struct job_report report;
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

Test(resolve, a_job_file_is_read_from_disk_or_one_line_says_why_not)
{
    char path[] = "/tmp/fsdp-resolve-XXXXXX";
    const int fd = mkstemp(path);
    const struct {
        const char *path, *words; /* NULL: it is read */
        off_t size_bytes;
    } cases[] = {
        { path, NULL, (off_t)strlen(DATA) },
        { path, "is too large", TREE_MAX_BYTES + 100 },
        { "/nonexistent/t.yaml", "/nonexistent/t.yaml: cannot read the job file: No such file or directory",
          0 },
        { "/", "/: cannot read the job file: Is a directory", 0 },
    };

    cr_assert(eq(int, (int)write(fd, DATA, strlen(DATA)), (int)strlen(DATA)));
    for (size_t i = 0; i < N(cases); i++) {
        struct job_input input = { .path = cases[i].path };
        const bool is_read = cases[i].words == NULL;
        struct job_report report;

        cr_assert(eq(int, ftruncate(fd, cases[i].size_bytes), 0));
        job_report_init(&report);
        cr_expect(eq(int, job_resolve(&job, &origins, &input, &report), is_read ? FSDP_OK : FSDP_ERR_CONFIG));
        cr_expect(eq(sz, report.n, is_read ? 0 : 1));
        cr_expect(is_read || strstr(report.problems[0].line, cases[i].words) != NULL, "case %zu", i);
        job_report_fini(&report);
        if (is_read)
            job_free(&job);
    }
    close(fd);
    unlink(path);
}

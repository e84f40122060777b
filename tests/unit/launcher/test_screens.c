/* The screens in docs/operations.md are what the code prints. A screen that is missing there is printed. */
#include <cjson/cJSON.h>
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/doctor/report.h"
#include "agent/output/log_index.h"
#include "agent/record/events.h"
#include "launcher/cmd_jobs.h"
#include "launcher/ending.h"
#include "launcher/job_table.h"
#include "launcher/plot.h"

static const char jobs[] =
    "[{\"job\":\"14178\",\"name\":\"quickstart\",\"state\":\"running\",\"nodes\":1,\"ranks\":2,"
    "\"generation\":1,"
    "\"step\":1547,\"loss\":1.30123,\"tokens_per_s\":22012,\"restarts\":1,\"age_s\":185,"
    "\"run_dir\":\"/home/ann/fsdprun/runs/quickstart\",\"workers\":["
    "{\"rank\":0,\"node\":0,\"pid\":14180,\"phase\":\"forward\",\"step\":1547,\"memory_bytes\":27262976,"
    "\"gpu\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null},"
    "{\"rank\":1,\"node\":0,\"pid\":14203,\"phase\":\"collective\",\"step\":1547,\"memory_bytes\":26738688,"
    "\"gpu\":null,\"gpu_percent\":null,\"gpu_memory_bytes\":null}]},"
    "{\"job\":\"20011\",\"name\":\"gpt2-medium-on-eight-gpus-with-a-long-name\",\"state\":\"running\","
    "\"nodes\":1,"
    "\"ranks\":2,\"generation\":0,\"step\":920,\"loss\":3.0214,\"tokens_per_s\":1412000,\"restarts\":0,"
    "\"age_s\":7865,\"run_dir\":\"/scratch/ann/gpt2/runs/gpt2-medium\",\"workers\":["
    "{\"rank\":0,\"node\":0,\"pid\":20020,\"phase\":\"backward\",\"step\":920,\"memory_bytes\":3435973837,"
    "\"gpu\":\"0000:3b:00.0\",\"gpu_percent\":97,\"gpu_memory_bytes\":65712160768},"
    "{\"rank\":1,\"node\":0,\"pid\":20021,\"phase\":\"backward\",\"step\":920,\"memory_bytes\":3435973837,"
    "\"gpu\":\"0000:5e:00.0\",\"gpu_percent\":98,\"gpu_memory_bytes\":65712160768}]},"
    "{\"job\":\"20333\",\"name\":\"train.py\",\"state\":\"starting\",\"nodes\":2,\"ranks\":16,\"generation\":"
    "0,"
    "\"step\":null,\"loss\":null,\"tokens_per_s\":null,\"restarts\":0,\"age_s\":4,\"run_dir\":null}]";

static void ps(const cJSON *all, const struct table_look *look, FILE *out)
{
    job_table_jobs(all, look, out);
}

static void status(const cJSON *all, const struct table_look *look, FILE *out)
{
    job_table_status(cJSON_GetArrayItem(all, 0), look, out);
}

static void top(const cJSON *all, const struct table_look *look, FILE *out)
{
    job_table_top(all, look, &(struct job_table_part){ 0 }, out);
}

static void plot(const cJSON *all, const struct table_look *look, FILE *out)
{
    struct plot run = { 0 };
    char line[128];

    (void)all;
    for (int i = 1; i <= 400; i++) {
        snprintf(line, sizeof line, "{\"step\": %d, \"loss\": %.6f, \"tokens_per_s\": %d}", i,
                 1.2 + 4.3 / (1 + i / 12.0), 21000 + 900 * (i * 7 % 11 - 5) - (i == 180 ? 9000 : 0));
        plot_take_metrics(&run, line, strlen(line));
    }
    strcpy(line, "{\"event\": \"resume\", \"generation\": 1, \"step\": 179}");
    plot_take_event(&run, line, strlen(line));
    plot_text(&run, look->columns, 8, look->ascii, out);
    plot_fini(&run);
}

static void ending(const cJSON *all, const struct table_look *look, FILE *out)
{
    char text[1024];

    (void)all, (void)look;
    ending_words(&(struct ending){ .steps = 160,
                                   .total_steps = 160,
                                   .seconds = 41,
                                   .tokens_per_s = 6104,
                                   .n_restarts = 1,
                                   .restarting_s = 2.1,
                                   .n_repeated = 4,
                                   .saved = true,
                                   .saved_step = 160,
                                   .resumes = true,
                                   .run_dir = "runs/demo" },
                 text, sizeof text);
    fputs(text, out);
}

static void program_ending(const cJSON *all, const struct table_look *look, FILE *out)
{
    char text[1024];

    (void)all, (void)look;
    ending_program_words(2, 7, "/scratch/ann/logs/train_x7q2k9dm", text, sizeof text);
    fputs(text, out);
}

static void queue(const cJSON *all, const struct table_look *look, FILE *out)
{
    cJSON *queued = cJSON_Parse(
        "[{\"job\":\"14178\",\"name\":\"a\",\"state\":\"running\",\"nodes\":1,\"ranks\":3,\"generation\":0,"
        "\"step\":35,\"loss\":3.217,\"tokens_per_s\":7412,\"restarts\":0,\"age_s\":64},"
        "{\"job\":\"14180\",\"name\":\"train.py\",\"state\":\"queued\",\"nodes\":1,\"ranks\":2,\"age_s\":12,"
        "\"waits_for\":\"waits for 2 GPUs: job a (14178) holds 0-2\"}]");

    (void)all;
    job_table_jobs(queued, look, out);
    cJSON_Delete(queued);
}

/* A run directory with events and logs, in which `events` and `logs` read. */

static const char *const folders[] = { "", "/logs", "/logs/g0", "/logs/g0/rank0", "/logs/g0/rank1" };
static const char *const files[] = { "/events.jsonl", "/logs/g0/index.jsonl", "/logs/g0/rank0/stdout.log",
                                     "/logs/g0/rank1/stdout.log" };
enum { N_FOLDERS = sizeof folders / sizeof *folders, N_FILES = sizeof files / sizeof *files };

static void make_run(struct registry_job *job)
{
    const int64_t began_us = INT64_C(1764342000120000);
    char path[sizeof job->run_dir + 64],
        text[N_FILES][1024] = { "", "",
                                "step 1/160  loss 5.5410  grad norm 1.44  6103 tokens/s  memory 26 MiB\n",
                                "the data begins at sequence 512\n" };

    snprintf(job->run_dir, sizeof job->run_dir, "/tmp/fsdp-screens-XXXXXX");
    cr_assert_not_null(mkdtemp(job->run_dir));
    for (int i = 1; i < N_FOLDERS; i++) {
        snprintf(path, sizeof path, "%s%s", job->run_dir, folders[i]);
        cr_assert(eq(int, mkdir(path, 0700), 0));
    }
    for (int rank = 0; rank < 2; rank++) {
        const struct log_index_entry entry = { .of_job = true,
                                               .rank = rank,
                                               .local_rank = rank,
                                               .pid = 14180 + rank,
                                               .host = "n1",
                                               .has_stdout = true };
        size_t n = strlen(text[0]);

        events_format(
            text[0] + n, sizeof text[0] - n, began_us + 900 * rank, 0, "spawn",
            (struct events_field[]){ EVENT_INT("rank", rank), EVENT_INT("pid", 14180 + rank), EVENT_END });
        n = strlen(text[1]);
        log_index_line(text[1] + n, sizeof text[1] - n, &entry, (double)began_us * 1e-6);
    }
    for (int i = 0; i < N_FILES; i++) {
        FILE *file;

        snprintf(path, sizeof path, "%s%s", job->run_dir, files[i]);
        file = fopen(path, "w");
        cr_assert_not_null(file);
        fputs(text[i], file);
        fclose(file);
    }
}

static void remove_run(const struct registry_job *job)
{
    char path[sizeof job->run_dir + 64];

    for (int i = 0; i < N_FILES + N_FOLDERS; i++) {
        snprintf(path, sizeof path, "%s%s", job->run_dir,
                 i < N_FILES ? files[i] : folders[N_FILES + N_FOLDERS - 1 - i]);
        remove(path);
    }
}

static void events(const cJSON *all, const struct table_look *look, FILE *out)
{
    struct registry_job job = { .id = "14178" };

    (void)all, (void)look;
    make_run(&job);
    cr_expect(eq(int, cmd_events(&job, &(struct job_words){ .rank = -1, .tail = -1 }, -1, out, NULL), 0));
    remove_run(&job);
}

static void logs(const cJSON *all, const struct table_look *look, FILE *out)
{
    struct registry_job job = { .id = "14178" };

    (void)all, (void)look;
    make_run(&job);
    cr_expect(
        eq(int,
           cmd_logs(&job, &(struct job_words){ .rank = -1 }, (struct logs_to_come){ 0 }, -1, out, out, NULL),
           0));
    remove_run(&job);
}

/* Prints the rows without the last line, which counts them: the document leaves rows out. */
static void print_rows(const struct doctor_row *rows, size_t n, FILE *out)
{
    struct doctor_report report = { 0 };
    char *text = NULL;
    size_t size;
    FILE *file = open_memstream(&text, &size);

    for (size_t i = 0; i < n; i++)
        cr_assert(doctor_report_add(&report, rows[i].node, rows[i].check, rows[i].state, rows[i].value,
                                    rows[i].advice));
    doctor_report_print(&report, file);
    fclose(file);
    text[size - 1] = '\0';
    fprintf(out, "%.*s\n", (int)(strrchr(text, '\n') - text), text);
    free(text);
    doctor_report_fini(&report);
}

static void doctor(const cJSON *all, const struct table_look *look, FILE *out)
{
    static const struct doctor_row rows[] = {
        { "install.trainer", DOCTOR_OK, "fsdp-train 0.1.0", "", "" },
        { "disk.space", DOCTOR_OK, "60.8 GiB free of 252 GiB", "", "" },
        { "disk.sync", DOCTOR_WARN, "67 MB/s in synced pieces of 1 MiB; a line 0.4 ms",
          "saves will be slow: keep checkpoint.async on, save less often, or use a faster disk", "" },
        { "disk.lock", DOCTOR_WARN, "mounted with nolock: other hosts do not see our lock",
          "two runs could use one directory: mount with locks (nfs: no nolock; lustre: flock)", "" },
        { "network.endpoint", DOCTOR_FAIL, "n7: Name or service not known",
          "the name must resolve on every node: an address in digits always does", "" },
    };

    (void)all, (void)look;
    print_rows(rows, sizeof rows / sizeof *rows, out);
}

static void doctor_of_two(const cJSON *all, const struct table_look *look, FILE *out)
{
    static const struct doctor_row rows[] = {
        { "disk.space", DOCTOR_OK, "18.2 TiB free of 40.0 TiB", "", "n0" },
        { "disk.space", DOCTOR_OK, "not shown, as it is ok and of another node", "", "n1" },
        { "cpus.load", DOCTOR_WARN, "load 70.2 on 64 CPUs",
          "something else computes here: steps will take longer, and vary", "n1" },
        { "nodes.version", DOCTOR_OK, "0.1.0 (b990963)", "", "n0" },
        { "nodes.bandwidth", DOCTOR_OK, "median 1104 MB/s; least 1098 MB/s, with n1", "", "n0" },
        { "nodes.roundtrip", DOCTOR_OK, "median 48 us; most 48 us, with n1", "", "n0" },
        { "nodes.clock", DOCTOR_OK, "+0.4 ms to the other nodes", "", "n0" },
        { "nodes.version", DOCTOR_OK, "0.1.0 (b990963)", "", "n1" },
        { "nodes.rundir", DOCTOR_OK, "/shared/runs is the directory of n0", "", "n1" },
        { "nodes.bandwidth", DOCTOR_OK, "median 1104 MB/s; least 1098 MB/s, with n0", "", "n1" },
        { "nodes.roundtrip", DOCTOR_OK, "median 48 us; most 48 us, with n0", "", "n1" },
        { "nodes.clock", DOCTOR_OK, "-0.4 ms to the other nodes", "", "n1" },
    };

    (void)all, (void)look;
    print_rows(rows, sizeof rows / sizeof *rows, out);
}

static const struct screen {
    const char *command;
    struct table_look look;
    void (*print)(const cJSON *all, const struct table_look *look, FILE *out);
} screens[] = {
    { "fsdprun ps", { .columns = 80 }, ps },
    { "fsdprun ps --wide", { .columns = 120, .wide = true }, ps },
    { "fsdprun status quickstart", { .columns = 80 }, status },
    { "fsdprun top", { .columns = 80 }, top },
    { "fsdprun plot runs/quickstart", { .columns = 80 }, plot },
    { "fsdprun job.yaml", { .columns = 80 }, ending },
    { "fsdprun train.py", { .columns = 80 }, program_ending },
    { "fsdprun ps", { .columns = 80 }, queue },
    { "fsdprun events quickstart", { .columns = 120, .wide = true }, events },
    { "fsdprun logs quickstart", { .columns = 80 }, logs },
    { "fsdprun doctor", { .columns = 80 }, doctor },
    { "fsdprun doctor --nnodes 2", { .columns = 80 }, doctor_of_two },
};

static char *document(void)
{
    char path[4096], *text = calloc(1, 1 << 18);
    FILE *file;

    snprintf(path, sizeof path, "%s/docs/operations.md", SOURCE_DIR);
    file = fopen(path, "r");
    cr_assert_not_null(file, "%s", path);
    cr_assert(gt(sz, fread(text, 1, (1 << 18) - 1, file), 0));
    fclose(file);
    return text;
}

Test(screens, those_of_the_document_are_what_is_printed)
{
    cJSON *all = cJSON_Parse(jobs);
    char *text = document();

    cr_assert_not_null(all);
    for (size_t i = 0; i < sizeof screens / sizeof *screens; i++) {
        char *screen = NULL;
        size_t size;
        FILE *out = open_memstream(&screen, &size);

        screens[i].print(all, &screens[i].look, out);
        fclose(out);
        cr_expect_not_null(strstr(text, screen), "docs/operations.md has not what `%s` prints:\n%s",
                           screens[i].command, screen);
        for (const char *line = screen; !screens[i].look.wide && *line != '\0';
             line += strcspn(line, "\n") + 1) {
            char one[512];

            snprintf(one, sizeof one, "%.*s", (int)strcspn(line, "\n"), line);
            cr_expect(le(int, table_width(one), screens[i].look.columns), "%s", one);
        }
        free(screen);
    }
    free(text);
    cJSON_Delete(all);
}

/* `fsdprun plot`: reads the files of a run directory. The job may still run or have ended. */
#include <cjson/cJSON.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/cmd_jobs.h"
#include "launcher/json_table.h"
#include "launcher/plot.h"
#include "launcher/terminal.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/files.h"

enum { PATH_BYTES = REGISTRY_PATH_BYTES + 64, DEFAULT_COLUMNS = 80, LINES = 12 };

/* Calls `take` with every line of the file `name` of the run. What is no regular file has no lines. */
static void read_lines(struct plot *plot, const char *run, const char *name,
                       void (*take)(struct plot *plot, const char *line, size_t length))
{
    char path[PATH_BYTES], *line = NULL;
    size_t size = 0;
    ssize_t n;
    FILE *file;
    int fd;

    snprintf(path, sizeof path, "%s/%s", run, name);
    fd = file_open_regular(path);
    file = fd < 0 ? NULL : fdopen(fd, "r");
    if (file == NULL) {
        if (fd >= 0)
            close(fd);
        return;
    }
    while ((n = getline(&line, &size, file)) > 0)
        take(plot, line, (size_t)n - (line[n - 1] == '\n'));
    free(line);
    fclose(file);
}

static int write_svg(const struct plot *plot, const char *run, const char *path, struct fsdp_err *err)
{
    FILE *out = fopen(path, "we");
    bool good = out != NULL;

    if (good) {
        plot_svg(plot, run, out);
        good = !ferror(out);
        good &= fclose(out) == 0;
    }
    if (good)
        return 0;
    fsdp_fail(err, FSDP_ERR_IO, "--svg: write %s: %s", path, strerror(errno));
    return FSDP_EXIT_IO;
}

/* Prints the values that are plotted: {"points": [{"step", "loss", "tokens_per_s"}], "restarts": [step]}. */
static int write_json(const struct plot *plot, FILE *out)
{
    cJSON *all = cJSON_CreateObject(), *points = cJSON_AddArrayToObject(all, "points");
    cJSON *restarts = cJSON_AddArrayToObject(all, "restarts");
    int status;

    for (size_t i = 0; i < plot->n; i++) {
        cJSON *point = cJSON_CreateObject();

        cJSON_AddNumberToObject(point, "step", plot->points[i].step);
        cJSON_AddNumberToObject(point, "loss", plot->points[i].loss); /* NaN is written as null */
        cJSON_AddNumberToObject(point, "tokens_per_s", plot->points[i].tokens_per_s);
        cJSON_AddItemToArray(points, point);
    }
    for (size_t i = 0; i < plot->n_restarts; i++)
        cJSON_AddItemToArray(restarts, cJSON_CreateNumber(plot->restarts[i]));
    status = json_print(all, out);
    cJSON_Delete(all);
    return status;
}

int cmd_plot(const struct registry_job *job, const struct job_words *words, FILE *out, struct fsdp_err *err)
{
    const struct table_look look = terminal_look(STDOUT_FILENO);
    const char *run = job->run_dir;
    struct plot plot = { 0 };
    int status = 0;

    if (run[0] == '\0') {
        fsdp_fail(err, FSDP_ERR_NOT_FOUND, "job %s has no run directory", job->id);
        return FSDP_EXIT_INPUT;
    }
    read_lines(&plot, run, "metrics.jsonl", plot_take_metrics);
    read_lines(&plot, run, "events.jsonl", plot_take_event);
    if (plot.failed) {
        status = exit_status_of(fsdp_fail(err, FSDP_ERR_NOMEM, "out of memory"));
    } else if (plot.n == 0) {
        fsdp_fail(err, FSDP_ERR_NOT_FOUND, "%.200s has no metrics.jsonl with a step in it", run);
        status = FSDP_EXIT_INPUT;
    } else if (words->svg != NULL || words->json) {
        if (words->svg != NULL)
            status = write_svg(&plot, run, words->svg, err);
        if (status == 0 && words->json)
            status = write_json(&plot, out);
    } else {
        plot_text(&plot, look.columns > 0 ? look.columns : DEFAULT_COLUMNS, LINES, look.ascii, out);
        status = json_written(out);
    }
    plot_fini(&plot);
    return status;
}

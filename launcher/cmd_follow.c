/*
 * `fsdprun events` and `fsdprun logs`. They read the files in the run directory, and send nothing to the run.
 */
#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/cmd_jobs.h"
#include "launcher/follow.h"
#include "launcher/log_since.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/json.h"

/*
 * SLACK_S: the clocks of nodes differ. So an index entry that is at most this much older than the run still
 * belongs to it.
 */
enum { SLACK_S = 5, INDEX_BYTES = 64 << 20 };

static int refuse_without_directory(const struct registry_job *job, struct fsdp_err *err)
{
    if (job->pid == 0) { /* the user named the directory itself */
        fsdp_fail(err, FSDP_ERR_NOT_FOUND,
                  "%.200s has no such files: it is no run directory, or none were kept", job->run_dir);
        return FSDP_EXIT_INPUT;
    }
    fsdp_fail(err, FSDP_ERR_NOT_FOUND, "job %s keeps no files: its output goes where it was started",
              job->id);
    return FSDP_EXIT_INPUT;
}

int cmd_events(const struct registry_job *job, const struct job_words *words, int ended_fd, FILE *out,
               struct fsdp_err *err)
{
    struct follow *follow = NULL;
    char path[PATH_MAX];
    enum fsdp_status status;
    bool goes_on = ended_fd >= 0;

    if (job->run_dir[0] == '\0' ||
        snprintf(path, sizeof path, "%s/events.jsonl", job->run_dir) >= (int)sizeof path)
        return refuse_without_directory(job, err);
    if (job->pid == 0 && access(path, F_OK) < 0)
        return refuse_without_directory(job, err);
    status = follow_create(&follow, words->follow, err);
    if (status == FSDP_OK)
        status = follow_add(follow, path, "", out, err);
    if (status == FSDP_OK && access(path, F_OK) < 0)
        /* the file does not exist yet: watch the directory in which it will appear */
        follow_watch(follow, job->run_dir);
    while (status == FSDP_OK && goes_on) {
        follow_watch(follow, path);
        status = follow_print(follow, false, err);
        if (status == FSDP_OK)
            goes_on = follow_wait(follow, ended_fd);
    }
    if (status == FSDP_OK)
        status = follow_print(follow, true, err);
    follow_destroy(follow);
    return exit_status_of(status);
}

/* Logs */

struct reader {
    const struct registry_job *job;
    struct follow *follow;
    int rank; /* -1: all */
    bool json;
    int least, most; /* the ranks of this run that the indexes name; -1: none yet */
    bool has_rank;   /* `rank` is one of them */
    FILE *out, *err_out;
    bool any; /* an index with a log file of this run was found */
};

/* Adds one log file of a rank to the files that are printed, and watches its folder. */
static enum fsdp_status add_log(struct reader *reader, const char *folder, int rank, const char *name,
                                bool is_stderr, struct fsdp_err *err)
{
    FILE *out = is_stderr && !reader->json ? reader->err_out : reader->out;
    char path[PATH_MAX], prefix[64];
    enum fsdp_status status;

    if (name == NULL || snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return FSDP_OK;
    snprintf(prefix, sizeof prefix,
             reader->json ? "{\"rank\": %d, \"stream\": \"%s\", \"line\": " : "[rank %d]: ", rank,
             is_stderr ? "stderr" : "stdout");
    status = follow_add(reader->follow, path, prefix, out, err);
    *strrchr(path, '/') = '\0';
    follow_watch(reader->follow, path);
    return status;
}

/* Adds the log files that one line of an index names (agent/output/log_index.h). */
static enum fsdp_status take_rank(struct reader *reader, const char *folder, const cJSON *entry,
                                  struct fsdp_err *err)
{
    const cJSON *rank = cJSON_GetObjectItemCaseSensitive(entry, "rank");
    const cJSON *time = cJSON_GetObjectItemCaseSensitive(entry, "time");
    const char *name_out = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "stdout"));
    const char *name_err = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(entry, "stderr"));
    enum fsdp_status status;

    if (!cJSON_IsNumber(rank) || !cJSON_IsNumber(time) ||
        time->valuedouble < reader->job->started_s - SLACK_S)
        return FSDP_OK; /* the line is of an earlier run in the same directory */
    reader->any |= name_out != NULL || name_err != NULL;
    if (reader->least < 0 || rank->valueint < reader->least)
        reader->least = rank->valueint;
    if (rank->valueint > reader->most)
        reader->most = rank->valueint;
    reader->has_rank |= reader->rank == rank->valueint;
    if (reader->rank >= 0 && reader->rank != rank->valueint)
        return FSDP_OK;
    status = add_log(reader, folder, rank->valueint, name_out, false, err);
    return status != FSDP_OK ? status : add_log(reader, folder, rank->valueint, name_err, true, err);
}

static enum fsdp_status take_index(struct reader *reader, const char *folder, const char *name,
                                   struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    char path[PATH_MAX], *text = NULL, *line;
    size_t length;
    int fd;

    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
        return FSDP_OK;
    fd = file_open_regular(path);
    if (fd < 0)
        return FSDP_OK;
    if (file_read(fd, INDEX_BYTES, &text, &length) != FSDP_OK)
        status = file_fail(err, "read", path);
    close(fd);
    for (line = text; status == FSDP_OK && line != NULL && *line != '\0';) {
        const size_t n = strcspn(line, "\n");
        /* NULL if the line has no end: it is still being written */
        cJSON *entry = line[n] == '\n' ? json_parse_object(line, n) : NULL;

        status = take_rank(reader, folder, entry, err);
        cJSON_Delete(entry);
        line += n + (line[n] == '\n');
    }
    free(text);
    return status;
}

static int is_index(const struct dirent *file)
{
    return strncmp(file->d_name, "index.", 6) == 0 && strstr(file->d_name, ".jsonl") != NULL;
}

static int is_generation(const struct dirent *file)
{
    return (file->d_name[0] == 'g' && file->d_name[1] >= '0' && file->d_name[1] <= '9') ||
           strncmp(file->d_name, "attempt_", 8) == 0;
}

/* Sorts by the number in the name: g2 before g10. */
static int compare_numbers(const struct dirent **a, const struct dirent **b)
{
    const char *one = (*a)->d_name, *other = (*b)->d_name;

    return atoi(one + strcspn(one, "0123456789")) - atoi(other + strcspn(other, "0123456789"));
}

/*
 * Calls `take` with each file in `folder` for which `wanted` returns true, in order of the numbers in the
 * names. If the folder does not exist, it calls nothing.
 */
static enum fsdp_status for_each(struct reader *reader, const char *folder,
                                 int (*wanted)(const struct dirent *file),
                                 enum fsdp_status (*take)(struct reader *reader, const char *folder,
                                                          const char *name, struct fsdp_err *err),
                                 struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;
    struct dirent **files = NULL;
    int n;

    follow_watch(reader->follow, folder); /* watch before reading the folder, so that no change is missed */
    n = scandir(folder, &files, wanted, compare_numbers);
    for (int i = 0; i < n; i++) {
        if (status == FSDP_OK)
            status = take(reader, folder, files[i]->d_name, err);
        free(files[i]);
    }
    free(files);
    return status;
}

static enum fsdp_status take_generation(struct reader *reader, const char *folder, const char *name,
                                        struct fsdp_err *err)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/%s", folder, name) < (int)sizeof path
               ? for_each(reader, path, is_index, take_index, err)
               : FSDP_OK;
}

/* Finds the log files of all generations. A job has them in logs/, a program in the run directory itself. */
static enum fsdp_status find_files(struct reader *reader, struct fsdp_err *err)
{
    char logs[PATH_MAX];
    enum fsdp_status status = for_each(reader, reader->job->run_dir, is_generation, take_generation, err);

    if (status != FSDP_OK || snprintf(logs, sizeof logs, "%s/logs", reader->job->run_dir) >= (int)sizeof logs)
        return status;
    return for_each(reader, logs, is_generation, take_generation, err);
}

int cmd_logs(const struct registry_job *job, const struct job_words *words, struct logs_to_come come,
             int ended_fd, FILE *out, FILE *err_out, struct fsdp_err *err)
{
    struct reader reader = { .job = job,
                             .rank = words->rank,
                             .json = words->json,
                             .least = -1,
                             .most = -1,
                             .out = out,
                             .err_out = err_out };
    bool goes_on = ended_fd >= 0;
    enum fsdp_status status;
    int64_t since_ms = 0;

    if (job->run_dir[0] == '\0')
        return refuse_without_directory(job, err);
    if (words->since != NULL &&
        log_since_read(words->since, clock_epoch_us() / 1000, &since_ms, err) != FSDP_OK)
        return FSDP_EXIT_USAGE;
    status = follow_create(&reader.follow, words->follow, err);
    if (status == FSDP_OK)
        follow_since(reader.follow, since_ms);
    if (status == FSDP_OK && words->json)
        follow_as_json(reader.follow);
    if (status == FSDP_OK && words->tail >= 0) {
        status = find_files(&reader, err);
        follow_tail(reader.follow, (size_t)words->tail);
    }
    while (status == FSDP_OK && goes_on) {
        status = find_files(&reader, err);
        if (status == FSDP_OK)
            status = follow_print(reader.follow, false, err);
        if (status == FSDP_OK)
            goes_on = follow_wait(reader.follow, ended_fd);
    }
    if (status == FSDP_OK)
        status = find_files(&reader, err);
    if (status == FSDP_OK)
        status = follow_print(reader.follow, true, err);
    follow_destroy(reader.follow);
    if (status == FSDP_OK && reader.rank >= 0 && reader.most >= 0 && !reader.has_rank && !come.rank) {
        fsdp_fail(err, FSDP_ERR_CONFIG, "no rank %d ran here: the ranks are %d to %d", reader.rank,
                  reader.least, reader.most);
        return FSDP_EXIT_USAGE;
    }
    if (status == FSDP_OK && !reader.any && !(come.all && (come.rank || words->rank < 0)) &&
        (!words->follow || job->pid == 0))
        return refuse_without_directory(job, err);
    return exit_status_of(status);
}

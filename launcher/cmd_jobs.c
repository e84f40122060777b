#include "launcher/cmd_jobs.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/agent_jobs.h"
#include "launcher/job_table.h"
#include "launcher/json_table.h"
#include "launcher/say.h"
#include "launcher/terminal.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/text.h"

enum {
    HELP_INDENT = 22,
    /* how many killed runs `ps` names, the newest; more would push the table off the screen */
    LOST_NAMED = 8,
};

int cmd_jobs_help(const struct subcommand *command, FILE *out)
{
    int column;

    fprintf(out, "fsdprun %s: %s.\n\n", command->name, command->brief);
    column = fprintf(out, "  fsdprun %s ", command->name);
    text_wrap(out, command->usage, column, column, TEXT_COLUMNS);
    fputc('\n', out);
    for (const struct subcommand_option *option = command->options; option->name != NULL; option++) {
        char name[64], letter[8] = "    ";

        if (option->letter != 0)
            snprintf(letter, sizeof letter, "-%c, ", option->letter);
        snprintf(name, sizeof name, "%s--%s%s%s", letter, option->name, option->argument != NULL ? " " : "",
                 option->argument != NULL ? option->argument : "");
        fprintf(out, "  %-*s", HELP_INDENT - 2, name);
        text_wrap(out, option->help, HELP_INDENT, HELP_INDENT, TEXT_COLUMNS);
    }
    if (command->options->name != NULL)
        fputc('\n', out);
    if (strstr(command->usage, "JOB") != NULL)
        text_fill(out, "JOB is the id of a job, its name, or a prefix of either that no other job has.\n");
    if (what_takes_run(command) &&
        strchr(command->name, ' ') == NULL) /* not for commands of ckpt, whose RUN is always a path */
        text_fill(out, "RUN is a run directory; or the id, the name or a prefix of a job that runs.\n");
    if (command->more != NULL)
        text_fill(out, command->more);
    return json_written(out);
}

static int list_words(const struct registry_list *list, const struct job_words *words, FILE *out)
{
    for (size_t i = 0; i < list->n; i++) {
        if (words->quiet)
            fprintf(out, "%s\n", list->jobs[i].id);
        if (words->names)
            fprintf(out, "%s\n", list->jobs[i].name);
    }
    return json_written(out);
}

/* Prints one line for each run that was killed together with its agent, with its run directory. */
static void name_lost(const struct registry_list *list, FILE *err_out)
{
    const size_t older = list->n_lost > LOST_NAMED ? list->n_lost - LOST_NAMED : 0;

    if (older > 0)
        say(err_out, "fsdprun ps: %zu more jobs were killed in the last hour, before these:", older);
    for (size_t i = older; i < list->n_lost; i++) {
        char id[TABLE_CELL_BYTES], name[TABLE_CELL_BYTES], run_dir[TABLE_CELL_BYTES];

        table_text(id, list->lost[i].id);
        table_text(name, list->lost[i].name);
        table_text(run_dir, list->lost[i].run_dir);
        say(err_out, "fsdprun ps: job %s (%s) was killed; its run directory is %s", id, name, run_dir);
    }
}

static void look_of(const struct job_words *words, struct table_look *look)
{
    *look = terminal_look(STDOUT_FILENO);
    look->wide = words->wide;
}

static int list_jobs(const struct registry_list *list, const struct job_words *words, FILE *out)
{
    struct table_look look;
    cJSON **answers, *all;
    int status;

    if (words->quiet || words->names)
        return list_words(list, words, out);
    answers = calloc(list->n + 1, sizeof *answers);
    all = cJSON_CreateArray();
    if (answers == NULL)
        return FSDP_EXIT_IO;
    jobs_ask(list, DESK_PS, answers);
    for (size_t i = 0; i < list->n; i++)
        cJSON_AddItemToArray(all, answers[i] != NULL ? answers[i] : jobs_stand_in(&list->jobs[i]));
    free(answers);
    if (words->json)
        status = json_print(all, out);
    else {
        look_of(words, &look);
        job_table_jobs(all, &look, out);
        status = json_written(out);
    }
    cJSON_Delete(all);
    return status;
}

/* Prints the table of `top` once. `job` is the only job in it; NULL: all jobs are. */
static int show_ranks(const struct registry_list *list, const struct registry_job *job,
                      const struct job_words *words, FILE *out, struct fsdp_err *err)
{
    cJSON **answers = calloc(list->n + 1, sizeof *answers), *all = cJSON_CreateArray();
    struct table_look look;
    int status = 0;

    if (answers != NULL && job != NULL)
        answers[0] = jobs_ask_one(list, job, DESK_STATUS, err);
    else if (answers != NULL)
        jobs_ask(list, DESK_STATUS, answers);
    for (size_t i = 0; answers != NULL && i < (job != NULL ? 1 : list->n); i++) {
        jobs_add_memory(answers[i]);
        if (answers[i] != NULL || job == NULL)
            cJSON_AddItemToArray(all, answers[i] != NULL ? answers[i] : jobs_stand_in(&list->jobs[i]));
    }
    free(answers);
    look_of(words, &look);
    if (job != NULL && cJSON_GetArraySize(all) == 0)
        status = FSDP_EXIT_PEER;
    else if (words->json)
        status = json_print(job != NULL ? cJSON_GetArrayItem(all, 0) : all, out);
    else
        job_table_top(all, &look, &(struct job_table_part){ 0 }, out);
    cJSON_Delete(all);
    return status != 0 ? status : json_written(out);
}

static int show_job(const struct registry_list *list, const struct registry_job *job, enum desk_word word,
                    const struct job_words *words, FILE *out, struct fsdp_err *err)
{
    cJSON *view = jobs_ask_one(list, job, word, err);
    struct table_look look;
    int status = 0;

    if (view == NULL)
        return FSDP_EXIT_PEER;
    jobs_add_memory(view);
    if (word == DESK_INSPECT) {
        char *text = cJSON_Print(view);

        fprintf(out, "%s\n", text != NULL ? text : "");
        cJSON_free(text);
        status = json_written(out);
    } else if (words->json) {
        status = json_print(view, out);
    } else {
        look_of(words, &look);
        job_table_status(view, &look, out);
        status = json_written(out);
    }
    cJSON_Delete(view);
    return status;
}

static int number_of(const cJSON *object, const char *key, int otherwise)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsNumber(member) ? member->valueint : otherwise;
}

static const char *words_of(const cJSON *object, const char *key, const char *otherwise)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);

    return cJSON_IsString(member) && member->valuestring[0] != '\0' ? member->valuestring : otherwise;
}

/* Returns the exit status of `stop` or `restart`. `result` is the last answer of the job. */
static int judge(const cJSON *result, enum desk_word word, const struct registry_job *job,
                 struct fsdp_err *err)
{
    const int refused = number_of(result, "refused", 0), ended = number_of(result, "ended", -1);

    char words[TABLE_CELL_BYTES];

    if (refused != 0) {
        table_text(words, words_of(result, "words", "refused")); /* it may be another user's job */
        fsdp_fail(err, FSDP_ERR_PEER, "job %s: %.300s", job->id, words);
        return refused;
    }
    if (cJSON_HasObjectItem(result, "generation") || (word == DESK_STOP && ended >= 0))
        return 0;
    if (ended < 0) {
        fsdp_fail(err, FSDP_ERR_PEER, "job %s has ended, and its agent did not say how", job->id);
        return FSDP_EXIT_LINK;
    }
    if (word == DESK_SAVE && (ended == 0 || ended == FSDP_EXIT_NOTICE))
        return 0;
    table_text(words, words_of(result, "words", ended == 0 ? "it was complete" : "no reason was given"));
    fsdp_fail(err, FSDP_ERR_PEER, "job %s has ended with status %d %s: %.300s", job->id, ended,
              word == DESK_SAVE ? "and did not save" : "in place of starting again", words);
    return ended != 0 ? ended : FSDP_EXIT_PEER;
}

/* Waits for the end of an order. Returns the exit status. */
static int end_order(struct jobs_order *order, const struct registry_job *job, enum desk_word word, bool json,
                     FILE *out, struct fsdp_err *err)
{
    cJSON *result = jobs_order_end(order, job, err);
    int status;

    if (result == NULL)
        return FSDP_EXIT_PEER;
    if (json)
        json_print(result, out);
    status = judge(result, word, job, err);
    cJSON_Delete(result);
    return status;
}

static int give_order(const struct registry_list *list, const struct registry_job *job, enum desk_word word,
                      bool json, FILE *out, struct fsdp_err *err)
{
    struct jobs_order order;

    jobs_order_begin(&order, list, job, word);
    return end_order(&order, job, word, json, out, err);
}

/* Asks a job that runs which files of its ranks are still to come. */
static struct logs_to_come logs_to_come(const struct registry_list *list, const struct registry_job *job,
                                        int rank)
{
    cJSON *view = job->pid > 0 ? jobs_ask_one(list, job, DESK_STATUS, NULL) : NULL;
    const char *state = words_of(view, "state", "");
    struct logs_to_come come = { .all = strcmp(state, "starting") == 0 || strcmp(state, "queued") == 0 };
    const cJSON *worker;

    come.rank = come.all && rank < number_of(view, "ranks", 0);
    cJSON_ArrayForEach(worker, cJSON_GetObjectItemCaseSensitive(view, "workers"))
    {
        come.rank |= number_of(worker, "rank", -1) == rank;
    }
    cJSON_Delete(view);
    return come;
}

static int read_files(const struct subcommand *command, const struct registry_list *list,
                      const struct registry_job *job, const struct job_words *words, FILE *out, FILE *err_out,
                      struct fsdp_err *err)
{
    const int ended_fd = words->follow && job->pid > 0 ? jobs_watch(list, job) : -1;
    int status;

    if (strcmp(command->name, "events") == 0) {
        status = cmd_events(job, words, ended_fd, out, err);
    } else {
        const struct logs_to_come come = logs_to_come(list, job, words->rank);

        status = cmd_logs(job, words, come, ended_fd, out, err_out, err);
    }

    if (ended_fd >= 0)
        close(ended_fd);
    return status;
}

/* Does the command draw its table again whenever something changes? */
static bool is_watched(const struct subcommand *command, const struct job_words *words)
{
    return words->watch || (strcmp(command->name, "top") == 0 && !words->json && isatty(STDOUT_FILENO));
}

/* Runs a command on the one job that the user named. */
static int run_on(const struct subcommand *command, const struct registry_list *list,
                  const struct registry_job *job, const struct job_words *words, FILE *out, FILE *err_out,
                  struct fsdp_err *err)
{
    if (is_watched(command, words))
        return cmd_watch(command, job, words, out, err);
    if (strcmp(command->name, "top") == 0)
        return show_ranks(list, job, words, out, err);
    if (strcmp(command->name, "status") == 0)
        return show_job(list, job, DESK_STATUS, words, out, err);
    if (strcmp(command->name, "inspect") == 0)
        return show_job(list, job, DESK_INSPECT, words, out, err);
    if (strcmp(command->name, "restart") == 0)
        return give_order(list, job, DESK_RESTART, words->json, out, err);
    if (strcmp(command->name, "plot") == 0)
        return cmd_plot(job, words, out, err);
    return read_files(command, list, job, words, out, err_out, err);
}

/* What a job is asked of which the user has given the word. */
struct asked {
    const struct registry_job *job; /* NULL: there is none of that name, or it was asked already */
    struct jobs_order order;
    int status;
};

/*
 * Stops all jobs that the user named: asks all of them, and then waits for each. Prints a line for each that
 * failed, and returns the status of the first that did.
 *   missing  the status for a job that is not found
 */
static int stop_jobs(const struct subcommand *command, const struct registry_list *list,
                     const struct job_words *words, int missing, FILE *out, FILE *err_out)
{
    const enum desk_word word = words->save ? DESK_SAVE : DESK_STOP;
    const size_t n = 1 + words->n_others;
    struct asked *all = calloc(n, sizeof *all);
    struct fsdp_err err = { 0 };
    int status = 0;

    if (all == NULL) {
        say(err_out, "fsdprun %s: out of memory", command->name);
        return exit_status_of(FSDP_ERR_NOMEM);
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = i == 0 ? words->job : words->others[i - 1];
        const enum fsdp_status found = jobs_find(&all[i].job, list, name, &err);

        if (found != FSDP_OK) {
            all[i].job = NULL;
            all[i].status = found == FSDP_ERR_NOT_FOUND ? missing : exit_status_of_request(found);
            say(err_out, "fsdprun %s: %s", command->name, err.message);
            fsdp_err_clear(&err);
        }
        for (size_t k = 0; k < i; k++)
            if (all[k].job == all[i].job)
                all[i].job = NULL;
        if (all[i].job != NULL)
            jobs_order_begin(&all[i].order, list, all[i].job, word);
    }
    for (size_t i = 0; i < n; i++) {
        if (all[i].job != NULL)
            all[i].status = end_order(&all[i].order, all[i].job, word, words->json, out, &err);
        if (err.status != FSDP_OK && all[i].status != 0)
            say(err_out, "fsdprun %s: %s", command->name, err.message);
        fsdp_err_clear(&err);
        if (status == 0)
            status = all[i].status;
    }
    free(all);
    return status;
}

static int run(const struct subcommand *command, const struct job_words *words, FILE *out, FILE *err_out,
               struct fsdp_err *err)
{
    struct registry_job run;
    const struct registry_job *job = &run;
    struct registry_list list;
    const bool takes_run = what_takes_run(command);
    enum fsdp_status found =
        agent_jobs_read(&list, words->agent, takes_run ? words->job : NULL, AGENT_PATIENCE_MS, err);
    const bool is_refused = found == FSDP_ERR_CONFIG;
    /* the agent of FSDPRUN_AGENT does not answer: one's own jobs are there all the same */
    const bool is_partial = is_refused || (found == FSDP_ERR_PEER && words->agent == NULL);
    const int partial_status = exit_status_of(found);
    int status = partial_status;

    if (is_partial) {
        say(err_out, "fsdprun %s: %s%s", command->name, is_refused ? "" : "FSDPRUN_AGENT: ", err->message);
        fsdp_err_clear(err);
        found = FSDP_OK;
    }
    if (found == FSDP_OK && words->job == NULL) {
        status = is_watched(command, words)          ? cmd_watch(command, NULL, words, out, err)
                 : strcmp(command->name, "top") == 0 ? show_ranks(&list, NULL, words, out, err)
                                                     : list_jobs(&list, words, out);
        if (!words->quiet && !words->names && !is_watched(command, words) &&
            strcmp(command->name, "top") != 0)
            name_lost(&list, err_out);
        if (status == 0 && is_partial)
            status = partial_status;
    } else if (found == FSDP_OK && what_takes_jobs(command)) {
        status =
            stop_jobs(command, &list, words, is_refused ? partial_status : FSDP_EXIT_INPUT, out, err_out);
    } else if (found == FSDP_OK) {
        if (takes_run)
            found = jobs_find_run(&run, &list, words->job, err);
        else
            found = jobs_find(&job, &list, words->job, err);
        /* a job that is not found may be in the folder that is refused */
        status = is_refused && found == FSDP_ERR_NOT_FOUND ? partial_status : exit_status_of_request(found);
        if (found == FSDP_OK)
            status = run_on(command, &list, job, words, out, err_out, err);
    }
    registry_list_fini(&list);
    return status;
}

int cmd_jobs(const struct subcommand *command, const char *agent, char *const *words, int n, FILE *out,
             FILE *err_out)
{
    struct job_words said;
    struct fsdp_err err = { 0 };
    enum fsdp_status read = job_words_read(&said, command, words, n, &err);
    int status;

    if (said.agent == NULL)
        said.agent = agent;
    if (read != FSDP_OK)
        status = FSDP_EXIT_USAGE;
    else if (said.help)
        status = cmd_jobs_help(command, out);
    else
        status = run(command, &said, out, err_out, &err);
    if (status != 0 && err.status != FSDP_OK)
        say(err_out, "fsdprun %s: %s", command->name, err.message);
    job_words_fini(&said);
    return status;
}

/*
 * Between the coordinator and the world of this node: what the one asks of it, and what the other says, which goes to
 * the coordinator here or over the uplink.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/environment.h"
#include "agent/record/error_file.h"
#include "agent/run/run_impl.h"
#include "shard_runtime/core/exit_status.h"

/* --- job.json ----------------------------------------------------------------------------------------------------- */

/* What a program's run was, for whoever finds its directory. */
static char *describe_program(const struct agent_config *config)
{
    cJSON *root = cJSON_CreateObject(), *program = cJSON_AddObjectToObject(root, "program"),
          *argv = cJSON_AddArrayToObject(program, "argv"), *launch = cJSON_AddObjectToObject(root, "launch");
    char *text;

    for (char *const *arg = config->argv; *arg != NULL; arg++)
        cJSON_AddItemToArray(argv, cJSON_CreateString(*arg));
    cJSON_AddStringToObject(launch, "run_id", config->run_id);
    cJSON_AddNumberToObject(launch, "nproc_per_node", config->n_workers);
    cJSON_AddNumberToObject(launch, "nnodes", config->n_nodes);
    cJSON_AddNumberToObject(launch, "max_restarts", config->max_restarts);
    text = cJSON_Print(root);
    cJSON_Delete(root);
    return text;
}

/* With the first generation, and not before: a run that is refused leaves the directory as it was. */
static void write_job(struct run *run)
{
    struct fsdp_err err = { 0 };
    char *text = NULL;
    const char *job = run->config->job_json;

    if (run->job_written || run->rundir == NULL || run->coordinator == NULL)
        return;
    run->job_written = true;
    if (job == NULL)
        job = text = describe_program(run->config);
    if (job != NULL && rundir_write(run->rundir, "job.json", job, strlen(job), &err) != FSDP_OK)
        console_say(run->console, "fsdprun: %s", err.message);
    free(text);
}

/* A job's files are one place, which the coordinator names; a program's may be in a temporary one on each node. */
static void say_where(struct run *run)
{
    const bool job = run->config->job_json != NULL;

    if (run->said_where || run->rundir == NULL || run->config->quiet || run->config->output.no_files ||
        (job ? run->coordinator == NULL : !run->captured || !run->config->run_dir_temporary))
        return;
    run->said_where = true;
    run_say(run, "%s %s", job ? "run directory" : "the output of the ranks is kept in",
            rundir_path(run->rundir));
}

/* --- the coordinator's member on this node ------------------------------------------------------------------------ */

/* What is needed to run anything cannot be had here: the first rank fails, for everybody to hear. */
static void report_unfit(struct run *run, const struct world_plan *plan, enum fsdp_status status,
                         const char *words)
{
    struct death death = { .kind = DEATH_SPAWN,
                           .rank = plan->first_rank,
                           .local_rank = 0,
                           .code = exit_status_of(status),
                           .step = -1,
                           .phase = -1 };

    gethostname(death.host, sizeof death.host - 1);
    snprintf(death.words, sizeof death.words, "%.200s", words);
    uplink_exited(run->uplink, plan->generation, &death, NULL);
    uplink_stopped(run->uplink, plan->generation);
}

/* Of several nodes with a directory that a program's user names: the host marks it before the others look. */
static enum fsdp_status share_directory(struct run *run, const struct world_plan *plan, struct fsdp_err *err)
{
    if (run->rundir == NULL || !run->config->run_dir_named)
        return FSDP_OK;
    rundir_set_first_attempt(run->rundir, plan->first_attempt);
    if (plan->n_nodes == 1)
        return FSDP_OK;
    if (run->coordinator == NULL)
        return rundir_find_mark(run->rundir, plan->token, err);
    if (rundir_mark(run->rundir, plan->token, err) != FSDP_OK)
        run_say(run, "%s", err->message); /* the other nodes end the run */
    return FSDP_OK;
}

static void member_form(void *member, const struct world_plan *plan)
{
    struct run *run = member;
    struct fsdp_err err = { 0 };
    enum fsdp_status status = run->world != NULL ? FSDP_OK : run_open_as_member(run, &err);

    if (status == FSDP_OK)
        status = share_directory(run, plan, &err);
    if (status != FSDP_OK) {
        report_unfit(run, plan, status, err.message);
        return;
    }
    run->node_rank = plan->node_rank;
    say_where(run);
    world_form(run->world, plan);
    write_job(run); /* after the start: it waits for the disk */
}

static void member_stop(void *member, int signal, bool now)
{
    struct run *run = member;

    world_stop(run->world, signal, now);
}

static void member_forward(void *member, int signal)
{
    struct run *run = member;

    world_forward(run->world, signal);
}

static void member_notify(void *member, const struct fsdp_link_notice *notice)
{
    struct run *run = member;

    world_notify(run->world, notice);
}

static void member_publish(void *member, const struct fsdp_link_published *published)
{
    struct run *run = member;

    world_publish(run->world, published);
}

static void member_put(void *member, int generation, const char *key, const void *value, size_t size_bytes)
{
    struct run *run = member;

    world_put(run->world, generation, key, value, size_bytes);
}

/* Whoever started us as a worker of theirs is told in their error file what ended us, as torchrun does. */
static void pass_error_on(const struct run *run, const struct coordinator_end *end)
{
    const struct agent_config *config = run->config;
    const char *to = config->environment != NULL
                         ? environment_find(config->environment, "TORCHELASTIC_ERROR_FILE")
                         : getenv("TORCHELASTIC_ERROR_FILE");
    const char *from = end->node == run->node_rank && end->detail != NULL ? end->detail->error_file : NULL;
    struct fsdp_err err = { 0 };

    if (to == NULL || to[0] == '\0' || end->detail == NULL || end->detail->error_file[0] == '\0')
        return; /* nobody asked, or there is no error file */
    if (error_file_pass_on(from, to, end->detail, end->code, &err) != FSDP_OK)
        console_say(run->console, "fsdprun: TORCHELASTIC_ERROR_FILE: %s", err.message);
}

/* Where there is more about the failure, of what this node has. */
static void name_files(struct run *run, const struct coordinator_end *end, bool own)
{
    const char *log = own && end->detail->log[0] != '\0' ? end->detail->log : NULL;

    if (!end->recorded && log == NULL)
        return;
    snprintf(run->where, sizeof run->where, "fsdprun: more in %s%s%s%s\n",
             end->recorded ? rundir_path(run->rundir) : "", end->recorded ? "/errors.json" : "",
             end->recorded && log != NULL ? " and " : "", log != NULL ? log : "");
}

static void member_finish(void *member, const struct coordinator_end *end)
{
    struct run *run = member;
    const bool own = end->detail != NULL && end->node == run->node_rank;

    run->status = end->status;
    snprintf(run->line, sizeof run->line, "%s", end->line);
    name_files(run, end, own);
    if (!own || !errors_detail_went_by(end->detail, world_output(run->logs, run->relay)))
        errors_account(end->detail, run->account, sizeof run->account);
    pass_error_on(run, end);
    if (run->world != NULL)
        world_end(run->world);
    else
        run_world_ended(run);
}

const struct coordinator_member run_member = {
    .form = member_form,
    .stop = member_stop,
    .forward = member_forward,
    .notify = member_notify,
    .publish = member_publish,
    .put = member_put,
    .finish = member_finish,
};

/* --- the world's listener ----------------------------------------------------------------------------------------- */

static void on_exited(void *arg, int generation, const struct death *death,
                      const struct errors_detail *detail)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_exited(run->uplink, generation, death, detail);
    else
        coordinator_exited(run->coordinator, COORDINATOR_SELF, generation, death, detail);
}

static void on_stopped(void *arg, int generation)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_stopped(run->uplink, generation);
    else
        coordinator_stopped(run->coordinator, COORDINATOR_SELF, generation);
}

static void on_event(void *arg, int generation, int rank, const char *json, size_t length)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_event(run->uplink, generation, rank, json, length);
    else
        coordinator_event(run->coordinator, COORDINATOR_SELF, generation, rank, json, length);
}

static void on_saved(void *arg, int generation, int rank, const struct fsdp_link_saved *saved,
                     int manifest_fd)
{
    struct run *run = arg;

    if (run->uplink == NULL) {
        coordinator_saved(run->coordinator, COORDINATOR_SELF, generation, rank, saved, manifest_fd);
        return;
    }
    if (manifest_fd >= 0)
        close(manifest_fd); /* the head is rank 0's, and rank 0 lives with the coordinator */
    uplink_saved(run->uplink, generation, rank, saved);
}

static void on_put(void *arg, int generation, const char *key, const void *value, size_t size_bytes)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_put(run->uplink, generation, key, value, size_bytes);
    else
        coordinator_put(run->coordinator, COORDINATOR_SELF, generation, key, value, size_bytes);
}

static void on_record(void *arg, int generation, const char *event, const struct events_field *fields)
{
    struct run *run = arg;

    if (run->uplink != NULL)
        uplink_record(run->uplink, generation, event, fields);
    else
        coordinator_record(run->coordinator, COORDINATOR_SELF, generation, event, fields);
}

struct world_listener run_world_listener(struct run *run)
{
    return (struct world_listener){ .arg = run,
                                    .exited = on_exited,
                                    .stopped = on_stopped,
                                    .event = on_event,
                                    .saved = on_saved,
                                    .record = on_record,
                                    .put = run->config->n_nodes > 1 ? on_put : NULL,
                                    .ended = run_world_ended };
}

/*
 * Performs the coordinator's requests for this node's world. The coordinator may be in this process or on
 * another node.
 */
#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/record/error_file.h"
#include "agent/run/run_impl.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/require.h"

/* Job.json and errors.json */

/* Returns a description of a program's run as JSON, for a person who finds its directory later. */
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
    cJSON_AddNumberToObject(launch, "restart_window_s", (double)(config->restart_window_ms / 1000));
    text = cJSON_Print(root);
    cJSON_Delete(root);
    return text;
}

/* A file of the run directory on its way to the disk. */
struct record {
    struct disk_job job;
    struct run *run;
    const char *name;
    const char *text; /* the configuration's, or `own` */
    char *own;
    bool *written; /* set once the file is written; NULL: no caller needs to know */
    struct fsdp_err err;
};

static void do_write_record(struct disk_job *job)
{
    struct record *record = (struct record *)job;

    (void)rundir_write(record->run->rundir, record->name, record->text, strlen(record->text), &record->err);
}

static void on_record(struct disk_job *job)
{
    struct record *record = (struct record *)job;

    if (record->err.status != FSDP_OK)
        run_say(record->run, "%s", record->err.message);
    else if (record->written != NULL)
        *record->written = true;
    free(record->own);
    free(record);
}

/* Writes the file `name`. `own` is NULL or `text`, and is freed. */
static void write_record(struct run *run, const char *name, const char *text, char *own, bool *written)
{
    struct record *record = text == NULL ? NULL : calloc(1, sizeof *record);

    if (record == NULL) {
        run_say(run, "no memory for %s", name);
        free(own);
        return;
    }
    *record = (struct record){ .job = { .work = do_write_record, .done = on_record },
                               .run = run,
                               .name = name,
                               .text = text,
                               .own = own,
                               .written = written };
    disk_submit(run->disk, &record->job);
}

void run_write_errors(void *arg, char *text)
{
    struct run *run = arg;

    write_record(run, "errors.json", text, text, &run->recorded);
}

/* Writes job.json with the first generation. A run that is refused before leaves the directory unchanged. */
static void write_job(struct run *run)
{
    const char *text = run->config->job_json;
    char *own;

    if (run->job_written || run->rundir == NULL || run->coordinator == NULL)
        return;
    run->job_written = true;
    own = text == NULL ? describe_program(run->config) : NULL;
    write_record(run, "job.json", text == NULL ? own : text, own, NULL);
}

/*
 * Prints where the files of the run are. All nodes of a job share one directory, which only the coordinator's
 * node prints. The directories of a program may be temporary and differ on each node, so every node prints
 * its own.
 */
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

/* The coordinator's member on this node */

/*
 * Reports that this node cannot run any worker. Its first rank counts as failed, with the reason, so that all
 * nodes learn the reason.
 */
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
    run->reporter.exited(run->reporter.to, plan->generation, &death, NULL);
    run->reporter.stopped(run->reporter.to, plan->generation);
}

enum fsdp_status run_check_directory(void *arg, const struct world_plan *plan, struct fsdp_err *err)
{
    const struct run *run = arg;

    if (run->rundir != NULL)
        OK_OR_RETURN(rundir_begin(run->rundir, err));
    return run->rundir == NULL || !run->config->run_dir_named || plan->n_nodes == 1 ||
                   run->coordinator != NULL
               ? FSDP_OK
               : rundir_find_mark(run->rundir, plan->token, err);
}

/* Prints a line of PyTorch's store. This node has a generation's store if it has the first seat in it. */
static void say_of_store(void *arg, const char *words)
{
    const struct run *run = arg;

    if (!run->config->quiet)
        run_say(run, "%s", words);
}

static void open_store(struct run *run, int generation, const struct proto_open *order)
{
    if (run->store == NULL)
        run->store = store_host_create(run->loop, &run->reporter, say_of_store, run);
    if (run->store != NULL) {
        store_host_open(run->store, generation, order);
        return;
    }
    run->reporter.store(run->reporter.to, generation,
                        &(struct reporter_store){ .question = order->question,
                                                  .kind = REPORTER_STORE_FAILED,
                                                  .words = "out of memory" });
}

static void form(struct run *run, const struct world_plan *plan)
{
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    /*
     * Close our store if the first seat is now another node's, or if another coordinator ordered it for
     * another generation.
     */
    if (plan->node_rank != 0 || store_host_generation(run->store) != plan->generation)
        store_host_close(run->store);
    status = run->world != NULL ? FSDP_OK : run_open_as_member(run, &err);

    if (status != FSDP_OK) {
        report_unfit(run, plan, status, err.message);
        return;
    }
    if (run->rundir != NULL && run->config->run_dir_named)
        rundir_set_first_attempt(run->rundir, plan->first_attempt);
    run->node_rank = plan->node_rank;
    say_where(run);
    world_form(run->world, plan);
    run_lead_sit(run, plan->node_rank);
    desk_formed(run->desk.desk, plan->generation);
    run_lead_lock(run);
    write_job(run); /* after the workers are started, because this waits for the disk */
}

/*
 * If another launcher started this one as a worker, writes the cause of failure to the error file that it
 * named, as torchrun does.
 */
static void pass_error_on(const struct run *run, const struct coordinator_end *end)
{
    const char *to = getenv("TORCHELASTIC_ERROR_FILE");
    const char *from = end->node == run->node_rank ? end->detail.error_file : NULL;
    struct fsdp_err err = { 0 };

    if (to == NULL || to[0] == '\0' || end->detail.error_file[0] == '\0')
        return; /* no launcher asked for it, or there is no error file */
    if (error_file_pass_on(from, to, &end->detail, end->code, &err) != FSDP_OK)
        console_say(run->console, "fsdprun: TORCHELASTIC_ERROR_FILE: %s", err.message);
}

static void finish(struct run *run, const struct coordinator_end *end)
{
    const bool own = end->node >= 0 && end->node == run->node_rank;

    store_host_close(run->store);
    if (run_lead_steps_down(run))
        return;
    run->status = end->status;
    run_lead_resign(run, end->status);
    snprintf(run->line, sizeof run->line, "%s", end->line);
    run->explained = end->explained;
    if (own)
        snprintf(run->log, sizeof run->log, "%s", end->detail.log);
    if (!own || !errors_detail_went_by(&end->detail, output_taken(run->output)))
        errors_account(&end->detail, run->account, sizeof run->account);
    pass_error_on(run, end);
    if (run->world != NULL)
        world_end(run->world);
    else
        run_world_ended(run);
}

static bool is_for_world(enum proto_type type)
{
    return type != PROTO_START && type != PROTO_FINISH && type != PROTO_OPEN && type != PROTO_CLOSE &&
           type != PROTO_ENDED;
}

void run_member(void *member, enum proto_type type, int generation, const void *message)
{
    struct run *run = member;
    const struct proto_stop *stop = message;
    const struct proto_put *put = message;
    const struct proto_look *look = message;
    const struct proto_hung *hung = message;

    if (run->world == NULL && is_for_world(type))
        return; /* this node could not open a store for the generation, and reports that */
    switch (type) {
    case PROTO_START:
        form(run, message);
        break;
    case PROTO_STOP:
        if (stop->lost)
            world_lost(run->world);
        world_stop(run->world, stop->signal, stop->now);
        break;
    case PROTO_FORWARD:
        world_forward(run->world, stop->signal);
        break;
    case PROTO_NOTICE:
        world_notify(run->world, message);
        break;
    case PROTO_PUBLISHED:
        world_publish(run->world, message);
        break;
    case PROTO_ENTRY:
        world_take_entry(run->world, message);
        break;
    case PROTO_PUT:
        world_put(run->world, generation, put->key, put->value, put->value_bytes);
        break;
    case PROTO_OPEN:
        open_store(run, generation, message);
        break;
    case PROTO_CLOSE:
        store_host_close(run->store);
        break;
    case PROTO_ENDED:
        ended_take(&run->ended, message);
        break;
    case PROTO_LOOK:
        store_host_look(run->store);
        world_answer(run->world, generation, look->question, look->shown_ns);
        break;
    case PROTO_SHOW:
        world_show(run->world, generation);
        break;
    case PROTO_HUNG:
        world_hung(run->world, generation, hung->rank, hung->words);
        break;
    case PROTO_FINISH:
        finish(run, message);
        break;
    default: /* messages that members send, not the coordinator */
        break;
    }
}

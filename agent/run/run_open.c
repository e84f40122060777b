/* Opens the parts of a run: directory, output, coordinator, world. */
#include <string.h>
#include <unistd.h>

#include "agent/rendezvous/identity.h"
#include "agent/run/run_impl.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/io_beneath.h"

static bool is_captured(const struct agent_config *config)
{
    for (int i = 0; i < config->n_workers; i++)
        for (unsigned stream = AGENT_STDOUT; stream <= AGENT_STDERR; stream++) {
            const enum output_mode mode = worker_output_mode(config, i, stream);

            if (mode == OUTPUT_FILE || mode == OUTPUT_TEE)
                return true;
        }
    return false;
}

/* Returns whether the stderr of some worker goes to no log file, because it is inherited or dropped. */
static bool is_relayed(const struct agent_config *config)
{
    for (int i = 0; i < config->n_workers; i++) {
        const enum output_mode mode = worker_output_mode(config, i, AGENT_STDERR);

        if (mode == OUTPUT_INHERIT || mode == OUTPUT_NULL)
            return true;
    }
    return false;
}

static enum rundir_kind kind_of(const struct agent_config *config)
{
    if (config->job_json != NULL)
        return RUNDIR_JOB;
    return config->run_dir_named ? RUNDIR_NAMED : RUNDIR_PROGRAM;
}

static void on_event_refused(void *arg, const char *words)
{
    run_say(arg, "%s; the job goes on", words);
}

static void use_events(struct run *run)
{
    const struct agent_observer *observer = &run->config->observer;

    if (run->events == NULL)
        return;
    events_watch(run->events, observer->event, observer->arg);
    events_write_on(run->events, run->disk);
    events_on_refusal(run->events, on_event_refused, run);
}

enum fsdp_status run_name_directory(struct run *run, struct fsdp_err *err)
{
    const struct rundir_spec spec = { .kind = kind_of(run->config),
                                      .path = run->config->run_dir,
                                      .temporary = run->config->run_dir_temporary };

    return run->rundir != NULL || spec.path == NULL ? FSDP_OK : rundir_create(&run->rundir, &spec, err);
}

enum fsdp_status run_open_directory(struct run *run, struct fsdp_err *err)
{
    OK_OR_RETURN(run_name_directory(run, err));
    return run->rundir == NULL ? FSDP_OK : rundir_begin(run->rundir, err);
}

/* Opens and locks the run directory on the host by the endpoint, before it leads. No rank runs yet. */
static enum fsdp_status begin_directory(struct run *run, struct fsdp_err *err)
{
    OK_OR_RETURN(run_open_directory(run, err));
    OK_OR_RETURN(rundir_lock(run->rundir, true, err)); /* it keeps other jobs out */
    return events_open(&run->events, rundir_fd(run->rundir), "events.jsonl", err);
}

/* Opens the parts of the run directory that only the coordinator needs. */
static enum fsdp_status open_directory(struct run *run, struct fsdp_err *err)
{
    enum fsdp_status status = FSDP_OK;

    if (run->config->run_dir == NULL && run->config->observer.event != NULL)
        status = events_open(&run->events, -1, "events.jsonl", err);
    else if (run->config->run_dir != NULL && run->lead.takes_over)
        run_lead_take_directory(run);
    else if (run->config->run_dir != NULL)
        status = begin_directory(run, err);
    use_events(run);
    if (status != FSDP_OK || run->rundir == NULL)
        return status;
    run->io = io_beneath_create(rundir_path(run->rundir), rundir_fd(run->rundir));
    return run->io == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the run directory") : FSDP_OK;
}

static enum fsdp_status open_output(struct run *run, struct fsdp_err *err)
{
    const struct agent_config *config = run->config;
    struct output_spec spec = { .limit_bytes = config->output.file_limit_bytes,
                                .n_rotated = config->output.n_rotated,
                                .out_fd = STDOUT_FILENO,
                                .err_fd = STDERR_FILENO,
                                .relays = is_relayed(config),
                                .direct = config->output.direct };
    enum fsdp_status status;

    run->captured = is_captured(config);
    if (config->output.no_files &&
        (config->output.stdout_filters != NULL || config->output.stderr_filters != NULL))
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "lines cannot be kept a second time (--duplicate-stdout-filters, "
                         "--duplicate-stderr-filters) where no log is kept");
    status = run->console != NULL
                 ? FSDP_OK
                 : console_create(&run->console, run->loop, STDOUT_FILENO, STDERR_FILENO, err);
    if (status != FSDP_OK || run->output != NULL)
        return status;
    spec.disk = run->disk;
    spec.rundir = config->output.no_files ? NULL : run->rundir;
    spec.console = run->console;
    spec.captures = run->captured || config->job_json != NULL;
    return output_create(&run->output, run->loop, &spec, err);
}

static enum fsdp_status open_coordinator(struct run *run, struct rendezvous *rendezvous, struct fsdp_err *err)
{
    struct coordinator_services services = { .loop = run->loop,
                                             .os = &agent_os_linux,
                                             .io = run->io != NULL ? run->io : &io_anywhere,
                                             .disk = run->disk,
                                             .rundir = run->rundir,
                                             .events = run->events,
                                             .console = run->console,
                                             .write_errors = run->rundir != NULL ? run_write_errors : NULL,
                                             .write_errors_arg = run,
                                             .ended = &run->ended };
    struct proto_join self;

    identity_fill(&self, run->config);
    if (run->lead.arbiter != NULL)
        memcpy(self.identity, run->lead.identity, sizeof self.identity);
    services.self = &self;
    run_lead_begin(run, rendezvous, &services);
    OK_OR_RETURN(coordinator_create(&run->coordinator, run->config, &services, err));
    run->reporter = coordinator_reporter(run->coordinator, COORDINATOR_SELF);
    return FSDP_OK;
}

static enum fsdp_status open_world(struct run *run, struct fsdp_err *err)
{
    const struct world_services services = { .loop = run->loop,
                                             .os = &agent_os_linux,
                                             .baseline = run->baseline,
                                             .placement = &run->placement,
                                             .disk = run->disk,
                                             .error_reader = run->error_reader,
                                             .rundir = run->rundir,
                                             .output = run->output,
                                             .console = run->console,
                                             .check = run_check_directory,
                                             .check_arg = run,
                                             .lease = run->lease,
                                             .ended = run_world_ended,
                                             .ended_arg = run };

    if (run->fit != FSDP_OK)
        return fsdp_fail(err, run->fit, "%s", run->unfit);
    if (run->world != NULL) {
        world_report_to(run->world, &run->reporter);
        return FSDP_OK;
    }
    return world_create(&run->world, run->config, &services, &run->reporter, err);
}

enum fsdp_status run_open_as_member(struct run *run, struct fsdp_err *err)
{
    enum fsdp_status status = run_name_directory(run, err);

    if (status == FSDP_OK)
        status = open_output(run, err);
    return status != FSDP_OK ? status : open_world(run, err);
}

enum fsdp_status run_open_as_coordinator(struct run *run, struct rendezvous *rendezvous, struct fsdp_err *err)
{
    struct pulse_lead pulses;
    enum fsdp_status status = open_directory(run, err);

    if (status == FSDP_OK)
        status = open_output(run, err);
    if (status == FSDP_OK)
        status = open_coordinator(run, rendezvous, err);
    if (status == FSDP_OK && rendezvous != NULL) {
        status = nodes_create(&run->nodes, run->config, rendezvous, run->coordinator, run->console,
                              run_lead_pulses(run, &pulses), err);
        rendezvous = NULL;
    }
    rendezvous_destroy(rendezvous);
    return status != FSDP_OK ? status : open_world(run, err);
}

void run_close_as_coordinator(struct run *run)
{
    events_close(run->events);
    run->events = NULL;
    io_beneath_destroy(run->io);
    run->io = NULL;
    if (run->rundir != NULL)
        rundir_unlock(run->rundir);
}

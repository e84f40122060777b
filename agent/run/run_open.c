/* What a run consists of, put together: directory, output, coordinator, world. */
#include "agent/run/run_impl.h"
#include "shard_runtime/shardfile/io_beneath.h"

static bool is_captured(const struct agent_config *config)
{
    for (int i = 0; i < config->n_workers; i++)
        for (unsigned stream = AGENT_STDOUT; stream <= AGENT_STDERR; stream++) {
            const enum logs_mode mode = worker_log_mode(config, i, stream);

            if (mode == LOGS_FILE || mode == LOGS_TEE)
                return true;
        }
    return false;
}

/* Is there a stderr that no log has the last words of? */
static bool is_relayed(const struct agent_config *config)
{
    for (int i = 0; i < config->n_workers; i++) {
        const enum logs_mode mode = worker_log_mode(config, i, AGENT_STDERR);

        if (mode == LOGS_INHERIT || mode == LOGS_NULL)
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

static enum fsdp_status open_directory(struct run *run, bool coordinates, struct fsdp_err *err)
{
    const struct rundir_spec spec = { .kind = kind_of(run->config),
                                      .path = run->config->run_dir,
                                      .lock = coordinates,
                                      .temporary = run->config->run_dir_temporary };
    enum fsdp_status status;

    if (run->config->run_dir == NULL)
        return FSDP_OK;
    status = rundir_open(&run->rundir, &spec, err);
    if (status != FSDP_OK || !coordinates)
        return status;
    run->io = io_beneath_create(rundir_path(run->rundir), rundir_fd(run->rundir));
    return run->io == NULL ? fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the run directory")
                           : events_open(&run->events, rundir_fd(run->rundir), "events.jsonl", err);
}

static enum fsdp_status open_output(struct run *run, struct fsdp_err *err)
{
    const struct agent_config *config = run->config;
    const struct logs_rotation rotation = { config->output.file_limit_bytes, config->output.n_rotated };
    enum fsdp_status status;

    run->captured = is_captured(config);
    if (config->output.no_files &&
        (config->output.stdout_filters != NULL || config->output.stderr_filters != NULL))
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "lines cannot be kept a second time (--duplicate-stdout-filters, "
                         "--duplicate-stderr-filters) where no log is kept");
    status = run->console != NULL
                 ? FSDP_OK
                 : console_create(&run->console, run->loop, config->stdio[1], config->stdio[2], err);
    if (status == FSDP_OK && run->relay == NULL && is_relayed(config))
        status = relay_create(&run->relay, run->loop, config->stdio[1], config->stdio[2],
                              config->output.direct, err);
    if (status != FSDP_OK || run->logs != NULL || (!run->captured && config->job_json == NULL))
        return status;
    return logs_create(&run->logs, run->loop, config->output.no_files ? NULL : run->rundir, run->console,
                       &rotation, err);
}

static enum fsdp_status open_coordinator(struct run *run, struct fsdp_err *err)
{
    const struct coordinator_services services = { .loop = run->loop,
                                                   .os = &agent_os_linux,
                                                   .io = run->io != NULL ? run->io : &io_posix,
                                                   .rundir = run->rundir,
                                                   .events = run->events,
                                                   .console = run->console };

    return coordinator_create(&run->coordinator, run->config, &services, err);
}

static enum fsdp_status open_world(struct run *run, struct fsdp_err *err)
{
    const struct world_services services = { .loop = run->loop,
                                             .os = &agent_os_linux,
                                             .baseline = run->baseline,
                                             .placement = &run->placement,
                                             .rundir = run->rundir,
                                             .logs = run->logs,
                                             .relay = run->relay,
                                             .console = run->console };
    const struct world_listener listener = run_world_listener(run);

    if (run->fit != FSDP_OK)
        return fsdp_fail(err, run->fit, "%s", run->unfit);
    return world_create(&run->world, run->config, &services, &listener, err);
}

enum fsdp_status run_open_as_member(struct run *run, struct fsdp_err *err)
{
    enum fsdp_status status = run->rundir != NULL ? FSDP_OK : open_directory(run, false, err);

    if (status == FSDP_OK)
        status = open_output(run, err);
    return status != FSDP_OK ? status : open_world(run, err);
}

enum fsdp_status run_open_as_coordinator(struct run *run, struct rendezvous *rendezvous, struct fsdp_err *err)
{
    enum fsdp_status status = open_directory(run, true, err);

    if (status == FSDP_OK)
        status = open_output(run, err);
    if (status == FSDP_OK)
        status = open_coordinator(run, err);
    if (status == FSDP_OK && rendezvous != NULL) {
        status = nodes_create(&run->nodes, run->config, rendezvous, run->coordinator, run->console, err);
        rendezvous = NULL;
    }
    rendezvous_destroy(rendezvous);
    return status != FSDP_OK ? status : open_world(run, err);
}

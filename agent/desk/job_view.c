#include "agent/desk/job_view.h"

#include <inttypes.h>
#include <stddef.h>

#include "agent/record/first_cause.h"

const char *job_state_name(enum job_state state)
{
    static const char *const names[JOB_STATES] = {
        [JOB_STARTING] = "starting", [JOB_RUNNING] = "running",   [JOB_RESTARTING] = "restarting",
        [JOB_STOPPING] = "stopping", [JOB_COMPLETE] = "complete", [JOB_FAILED] = "failed",
        [JOB_QUEUED] = "queued",
    };

    return names[state];
}

static void put_count(struct json_text *out, const char *key, int64_t count)
{
    if (count < 0)
        json_field(out, key, "null");
    else
        json_field(out, key, "%" PRId64, count);
}

void job_view_put(struct json_text *out, const struct job_view *view)
{
    json_field_string(out, "job", view->id);
    json_field_string(out, "name", view->name);
    json_field_string(out, "state", job_state_name(view->state));
    json_field(out, "nodes", "%d", view->n_nodes);
    json_field(out, "ranks", "%d", view->n_ranks);
    json_field(out, "generation", "%d", view->generation);
    put_count(out, "step", view->step);
    json_field_real(out, "loss", "%.9g", view->loss);
    json_field_real(out, "tokens_per_s", "%.9g", view->tokens_per_s);
    json_field(out, "restarts", "%d", view->n_restarts);
    json_field_real(out, "age_s", "%.3f", view->age_s);
    json_field_string(out, "run_dir", view->run_dir);
    if (view->waits_for != NULL)
        json_field_string(out, "waits_for", view->waits_for);
}

void job_view_put_command(struct json_text *out, char *const *command)
{
    json_open(out, "command", '[');
    for (char *const *word = command; word != NULL && *word != NULL; word++) {
        json_next(out);
        json_add_string(out, *word);
    }
    json_close(out, ']');
}

void job_view_put_workers(struct json_text *out, const struct job_view *view)
{
    json_open(out, "workers", '[');
    for (int i = 0; i < view->n_workers; i++) {
        const struct job_worker *worker = &view->workers[i];

        json_open(out, NULL, '{');
        json_field(out, "rank", "%d", worker->rank);
        put_count(out, "node", view->node_rank);
        put_count(out, "pid", worker->pid > 0 ? worker->pid : -1);
        json_field_string(out, "phase", first_cause_phase_name(worker->phase));
        put_count(out, "step", worker->step);
        json_field_string(out, "gpu", worker->gpu[0] != '\0' ? worker->gpu : NULL);
        put_count(out, "gpu_percent", worker->gpu_percent);
        put_count(out, "gpu_memory_bytes", worker->gpu_memory_bytes);
        json_close(out, '}');
    }
    json_close(out, ']');
}

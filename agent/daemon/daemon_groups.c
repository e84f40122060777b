#include <string.h>

#include "agent/daemon/daemon_impl.h"

enum { AGAIN_MS = 100 };

/* Once all are removed, the timer rests. */
static void on_again(uv_timer_t *timer)
{
    struct service *service = timer->data;
    int n = 0;

    for (int i = 0; i < service->n_leaving; i++)
        if (!job_group_end(&service->groups, service->leaving[i]))
            service->leaving[n++] = service->leaving[i];
    service->n_leaving = n;
    if (n == 0)
        uv_timer_stop(timer);
}

void daemon_groups_begin(struct service *service)
{
    struct fsdp_err err = { 0 };

    uv_timer_init(&service->loop, &service->leaving_again);
    service->leaving_again.data = service;
    uv_unref((uv_handle_t *)&service->leaving_again);
    if (service->config->with_groups &&
        job_groups_begin(&service->groups, "/proc/self/cgroup", "/sys/fs/cgroup", &err) != FSDP_OK)
        daemon_log("%s: jobs stay in the agent's own", err.message);
}

void daemon_groups_end(struct service *service)
{
    uv_close((uv_handle_t *)&service->leaving_again, NULL);
}

enum fsdp_status daemon_group_make(struct service *service, unsigned *number, char *path,
                                   struct fsdp_err *err)
{
    *number = 0;
    path[0] = '\0';
    if (service->groups.folder[0] == '\0')
        return service->settings.job_memory_max == 0
                   ? FSDP_OK
                   : fsdp_fail(err, FSDP_ERR_CONFIG,
                               "job_memory_max needs a control group for each job: --job-groups, and "
                               "Delegate=yes in the unit");
    *number = job_group_make(&service->groups, service->settings.job_memory_max, path, err);
    return *number == 0 ? FSDP_ERR_IO : FSDP_OK;
}

void daemon_group_leave(struct service *service, unsigned number)
{
    if (job_group_end(&service->groups, number))
        return;
    if (service->n_leaving == DAEMON_MAX_CONNECTIONS)
        memmove(service->leaving, service->leaving + 1, --service->n_leaving * sizeof *service->leaving);
    service->leaving[service->n_leaving++] = number;
    uv_timer_start(&service->leaving_again, on_again, AGAIN_MS, AGAIN_MS);
}

/*
 * A daemon that ends by itself when it has had nothing to do for a while: no job, and no connection.
 *
 * A client may connect at that very moment. So the daemon first accepts what has connected, and stays if
 * there was something. A client that connects between that and the removal of the socket gets no answer, and
 * starts another daemon (launcher/own_agent.h). Its request was never read.
 */
#include "agent/daemon/daemon_impl.h"

static void on_idle(uv_timer_t *timer)
{
    struct service *service = timer->data;

    daemon_accept(service);
    if (service->n_clients == 0)
        daemon_stop(service);
}

enum fsdp_status daemon_idle_open(struct service *service)
{
    service->idle.data = service;
    if (uv_timer_init(&service->loop, &service->idle) != 0)
        return FSDP_ERR_IO;
    daemon_idle_look(service);
    return FSDP_OK;
}

void daemon_idle_look(struct service *service)
{
    const int seconds = service->config->idle_exit_s;

    if (seconds == 0 || service->stopping)
        return;
    if (service->n_clients > 0)
        uv_timer_stop(&service->idle);
    else
        uv_timer_start(&service->idle, on_idle, (uint64_t)seconds * 1000, 0);
}

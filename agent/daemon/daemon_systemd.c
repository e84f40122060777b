#include "agent/daemon/daemon_impl.h"
#include "agent/daemon/notify.h"

void daemon_tell_status(const struct service *service)
{
    int n = 0;

    for (const struct client *client = service->clients; client != NULL; client = client->next)
        n += client->child.pidfd >= 0;
    if (service->stopping)
        notify("STATUS=stops, after %d job%s", n, n == 1 ? "" : "s");
    else
        notify("READY=1\nSTATUS=serves %s, %d job%s", service->config->socket_path, n, n == 1 ? "" : "s");
}

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
        notify("READY=1\nSTATUS=%s %s, %d job%s", service->settings.drain ? "takes no new jobs at" : "serves",
               service->config->socket_path, n, n == 1 ? "" : "s");
}

void daemon_reload(struct service *service)
{
    const char *path = service->config->settings_path;
    struct fsdp_err err = { 0 };

    notify_reloading();
    if (path == NULL)
        daemon_log("HUP: there is no --config to read again");
    else if (settings_load(&service->settings, path, &err) == FSDP_OK)
        daemon_log("%s has been read again", path);
    else
        daemon_log("%s; the configuration stays as it was", err.message);
    daemon_tell_status(service);
}

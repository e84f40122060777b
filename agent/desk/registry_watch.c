#include <libgen.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <unistd.h>

#include "agent/desk/registry_impl.h"

void registry_watch(int fd)
{
    char path[REGISTRY_PATH_BYTES];

    for (int i = 0; i < REGISTRY_FOLDERS; i++) {
        if (!registry_folder_path(i, path))
            continue;
        /*
         * A path that is watched already is not watched twice. A folder that does not exist is created by the
         * first run.
         */
        (void)inotify_add_watch(fd, path, IN_MOVED_TO | IN_DELETE | IN_DELETE_SELF | IN_ONLYDIR);
        (void)inotify_add_watch(fd, dirname(path), IN_CREATE | IN_MOVED_TO | IN_ONLYDIR);
    }
}

/*
 * The directories above the folders, such as /tmp, are watched too: of their events, only those of our
 * folders count.
 */
static bool concerns_us(const struct inotify_event *event)
{
    const char *name = event->len > 0 ? event->name : "";
    const size_t length = strlen(name);

    return (event->mask & (IN_Q_OVERFLOW | IN_DELETE_SELF | IN_IGNORED)) != 0 ||
           strncmp(name, "fsdprun", strlen("fsdprun")) == 0 ||
           (length > 5 && name[0] != '.' && strcmp(name + length - 5, ".json") == 0);
}

bool registry_changed(int fd)
{
    _Alignas(struct inotify_event) char events[4096];
    bool changed = false;
    ssize_t n;

    while ((n = read(fd, events, sizeof events)) > 0) {
        for (ssize_t at = 0; at < n;) {
            const struct inotify_event *event = (const void *)(events + at);

            changed |= concerns_us(event);
            at += (ssize_t)(sizeof *event + event->len);
        }
    }
    return changed;
}

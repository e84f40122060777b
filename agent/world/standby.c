#include "agent/world/standby.h"

#include <stdlib.h>
#include <unistd.h>

struct place {
    struct os_child child;
    int socket;     /* -1: there is no process */
    int generation; /* for which one was last started */
};

struct standby {
    int n;
    struct place places[];
};

struct standby *standby_create(int n)
{
    struct standby *standby = calloc(1, sizeof *standby + (size_t)n * sizeof *standby->places);

    if (standby == NULL)
        return NULL;
    standby->n = n;
    for (int i = 0; i < n; i++)
        standby->places[i] = (struct place){ .socket = -1, .generation = -1 };
    return standby;
}

static void empty(struct place *place)
{
    close(place->socket);
    close(place->child.pidfd);
    place->socket = -1;
}

void standby_destroy(struct standby *standby, const struct agent_os *os)
{
    for (int i = 0; standby != NULL && i < standby->n; i++) {
        if (standby->places[i].socket < 0)
            continue;
        os->kill_group(os->arg, &standby->places[i].child, SIGKILL);
        empty(&standby->places[i]);
    }
    free(standby);
}

int standby_next(struct standby *standby, int generation)
{
    for (int i = 0; i < standby->n; i++) {
        if (standby->places[i].socket >= 0 || standby->places[i].generation == generation)
            continue;
        standby->places[i].generation = generation;
        return i;
    }
    return -1;
}

void standby_put(struct standby *standby, int local_rank, const struct os_child *child, int socket)
{
    standby->places[local_rank].child = *child;
    standby->places[local_rank].socket = socket;
}

bool standby_take(struct standby *standby, int local_rank, struct os_child *child, int *socket)
{
    struct place *place;

    if (standby == NULL || local_rank >= standby->n || standby->places[local_rank].socket < 0)
        return false;
    place = &standby->places[local_rank];
    *child = place->child;
    *socket = place->socket;
    place->socket = -1;
    return true;
}

void standby_ended(struct standby *standby, pid_t pid)
{
    for (int i = 0; standby != NULL && i < standby->n; i++)
        if (standby->places[i].socket >= 0 && standby->places[i].child.pid == pid)
            empty(&standby->places[i]);
}

size_t standby_pids(const struct standby *standby, pid_t *pids)
{
    size_t n = 0;

    for (int i = 0; standby != NULL && i < standby->n; i++)
        if (standby->places[i].socket >= 0)
            pids[n++] = standby->places[i].child.pid;
    return n;
}

#include "agent/link/standby.h"

#include <stdlib.h>
#include <unistd.h>

struct place {
    struct standby_process process; /* its socket is -1: there is none */
    int generation;                 /* for which one was last started */
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
        standby->places[i] = (struct place){ .process.socket = -1, .generation = -1 };
    return standby;
}

/* Empties the place of a local rank. Returns the descriptor of its exec, which stays open. */
static int empty(struct place *place)
{
    close(place->process.socket);
    close(place->process.child.pidfd);
    place->process.socket = -1;
    return place->process.exec_fd;
}

void standby_destroy(struct standby *standby, const struct agent_os *os)
{
    for (int i = 0; standby != NULL && i < standby->n; i++) {
        struct place *place = &standby->places[i];
        int exec_fd;

        if (place->process.socket < 0)
            continue;
        os->kill_group(os->arg, &place->process.child, SIGKILL);
        exec_fd = empty(place);
        if (exec_fd >= 0)
            close(exec_fd);
    }
    free(standby);
}

int standby_next(struct standby *standby, int generation)
{
    for (int i = 0; i < standby->n; i++) {
        if (standby->places[i].process.socket >= 0 || standby->places[i].generation == generation)
            continue;
        standby->places[i].generation = generation;
        return i;
    }
    return -1;
}

void standby_put(struct standby *standby, int local_rank, const struct standby_process *process)
{
    standby->places[local_rank].process = *process;
}

bool standby_take(struct standby *standby, int local_rank, struct standby_process *process)
{
    if (standby == NULL || local_rank >= standby->n || standby->places[local_rank].process.socket < 0)
        return false;
    *process = standby->places[local_rank].process;
    standby->places[local_rank].process.socket = -1;
    return true;
}

static bool has(const struct place *place, pid_t pid)
{
    return place->process.socket >= 0 && place->process.child.pid == pid;
}

int standby_ended(struct standby *standby, pid_t pid)
{
    for (int i = 0; standby != NULL && i < standby->n; i++)
        if (has(&standby->places[i], pid))
            return empty(&standby->places[i]);
    return -1;
}

size_t standby_pids(const struct standby *standby, pid_t *pids)
{
    size_t n = 0;

    for (int i = 0; standby != NULL && i < standby->n; i++)
        if (standby->places[i].process.socket >= 0)
            pids[n++] = standby->places[i].process.child.pid;
    return n;
}

/*
 * The life of this node's workers, one generation after another, as a state machine. Pure:
 * agent/world/world.c performs the actions and posts the events. The coordinator's decisions, also about
 * other nodes, are the events FORM, STOP and END.
 */
#ifndef AGENT_WORLD_FSM_H
#define AGENT_WORLD_FSM_H

#include <stdbool.h>

enum world_state {
    WS_UNSET,
    WS_DOWN, /* no worker is alive; the coordinator decides what happens next */
    WS_RUNNING,
    /* workers ended because another rank was gone: wait for a moment to see which rank ended first */
    WS_BLAMING,
    WS_LEAVING,  /* the workers were asked to save and stop */
    WS_STOPPING, /* TERM was sent, or KILL to the workers of a job */
    WS_KILLING,  /* KILL was sent */
    WS_DRAINING, /* every worker ended by itself; processes that they left running got TERM */
    WS_SWEEPING, /* every worker is gone; processes that they left running are being killed */
    WS_OVER,
    WS_COUNT
};

enum world_event {
    WE_UNSET,
    WE_FORM,      /* the coordinator: a generation begins */
    WE_FAILED,    /* a worker failed by itself, could not be started, or hangs */
    WE_PEER_LOST, /* a worker ended because another rank, or its link, was gone */
    WE_NOTICE,    /* the run is to save and stop */
    WE_STOP,      /* stop with the grace period, because of a signal or because another node failed */
    WE_STOP_NOW,  /* stop without the grace: a second Ctrl-C */
    WE_DEADLINE,  /* the deadline of the state has passed */
    WE_REAPED,    /* no worker of this node is left */
    WE_SWEPT,     /* no descendant is left */
    WE_END,       /* the coordinator says that no other generation will follow */
    WE_COUNT
};

enum world_action {
    WA_UNSET,
    WA_NONE,
    WA_SPAWN,
    WA_ABORT,   /* tell the other ranks that a rank is gone, and wait until the first cause is seen */
    WA_NOTIFY,  /* pass the notice on; start the grace */
    WA_TERM,    /* TERM to every worker; start the grace, which is 0 for a job: KILL instead of TERM */
    WA_CLEAR,   /* stop after a failure, and tell the ranks that wait for the failed one */
    WA_KILL,    /* KILL to every descendant */
    WA_DRAIN,   /* TERM to the processes that workers left running */
    WA_SWEEP,   /* KILL to the processes that workers left running */
    WA_ABANDON, /* name the processes that cannot be killed, and go on without them */
    WA_DOWN,    /* tell the coordinator that no process is left here */
    WA_CLOSE,
    WA_COUNT
};

/**
 * Makes one step. Returns false, and changes nothing, if the table has no such pair of state and event. That
 * is a bug, which the caller reports before it stops.
 */
bool world_fsm_step(enum world_state *state, enum world_event event, enum world_action *action);

const char *world_state_name(enum world_state state);
const char *world_event_name(enum world_event event);

#endif

/*
 * The life of this node's workers, one generation after another, as a table. Pure: agent/world/world.c performs the
 * actions and posts the events. What the other nodes do comes in as FORM, STOP and END, from the coordinator.
 */
#ifndef AGENT_WORLD_FSM_H
#define AGENT_WORLD_FSM_H

#include <stdbool.h>

enum world_state {
    WS_UNSET,
    WS_DOWN, /* nothing of this node is alive; the coordinator says what comes next */
    WS_RUNNING,
    WS_BLAMING,  /* workers left because a peer went: for a moment we wait to see who went first */
    WS_LEAVING,  /* asked to save and stop */
    WS_STOPPING, /* TERM was sent; to the workers of a job, KILL */
    WS_KILLING,  /* KILL was sent */
    WS_DRAINING, /* every worker ended by itself; what they left running was sent TERM */
    WS_SWEEPING, /* every worker is gone; what they left running is being killed */
    WS_OVER,
    WS_COUNT
};

enum world_event {
    WE_UNSET,
    WE_FORM,      /* the coordinator: a generation begins */
    WE_FAILED,    /* a worker failed by itself, could not be started, or hangs */
    WE_PEER_LOST, /* a worker left because a peer, or its link, went */
    WE_NOTICE,    /* save and stop */
    WE_STOP,      /* stop, with the grace: a signal, or the coordinator (another node failed) */
    WE_STOP_NOW,  /* stop without it: a second Ctrl-C */
    WE_DEADLINE,  /* the time of the state is up */
    WE_REAPED,    /* no worker of this node is left */
    WE_SWEPT,     /* no descendant is left */
    WE_END,       /* the coordinator: there will be no further generation */
    WE_COUNT
};

enum world_action {
    WA_UNSET,
    WA_NONE,
    WA_SPAWN,
    WA_ABORT,   /* tell the others that a peer is gone; give the first cause a moment to show */
    WA_NOTIFY,  /* pass the notice on; start the grace */
    WA_TERM,    /* TERM to every worker; start the grace, which is 0 for a job: KILL instead of TERM */
    WA_CLEAR,   /* the same after a failure: whoever waits for the one that failed is told, too */
    WA_KILL,    /* KILL to every descendant */
    WA_DRAIN,   /* TERM to what the workers left behind */
    WA_SWEEP,   /* KILL to what they left behind */
    WA_ABANDON, /* name those that cannot be killed and go on without them */
    WA_DOWN,    /* tell the coordinator that nothing is left here */
    WA_CLOSE,
    WA_COUNT
};

/** False, and nothing changes, for a pair that is not in the table: a bug, which the caller reports and stops on. */
bool world_fsm_step(enum world_state *state, enum world_event event, enum world_action *action);

const char *world_state_name(enum world_state state);
const char *world_event_name(enum world_event event);

#endif

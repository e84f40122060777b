/*
 * The life of a run as its one coordinator sees it. It forms a generation on every node, and clears it away
 * when any part fails. Then it forms the next one, or ends. Pure; agent/cluster/coordinator.c performs the
 * actions. On one node the coordinator is that node's agent, and it has one member.
 */
#ifndef AGENT_COORDINATOR_FSM_H
#define AGENT_COORDINATOR_FSM_H

#include <stdbool.h>

enum coordinator_state {
    CS_UNSET,
    CS_GATHERING, /* waiting until enough nodes are there */
    CS_PREPARING, /* removes unfinished files, and chooses the step to resume from */
    CS_UP,        /* a generation runs */
    CS_CLEARING,  /* the generation is being stopped on every node */
    CS_ENDED,
    CS_COUNT
};

enum coordinator_event {
    CE_UNSET,
    CE_GATHERED,
    CE_NEVER, /* not enough nodes came together in time */
    CE_PREPARED,
    /* the run cannot begin, because no checkpoint verifies; or need not, because it is complete */
    CE_REFUSED,
    CE_FAILED,     /* a node reported a failure, or was lost */
    CE_STOP,       /* a signal */
    CE_CHANGE,     /* nodes have come, or want to leave: another generation must be formed */
    CE_DOWN_OK,    /* every node is down, and every rank ended well */
    CE_DOWN_RETRY, /* every node is down, and another generation is allowed */
    CE_DOWN_FINAL, /* every node is down, and no other generation is allowed */
    CE_COUNT
};

enum coordinator_action { CA_UNSET, CA_NONE, CA_PREPARE, CA_FORM, CA_CLEAR, CA_END, CA_COUNT };

/**
 * Makes the transition for an event, and sets *action. Returns false, and changes nothing, if the state does
 * not allow the event.
 */
bool coordinator_fsm_step(enum coordinator_state *state, enum coordinator_event event,
                          enum coordinator_action *action);

const char *coordinator_state_name(enum coordinator_state state);
const char *coordinator_event_name(enum coordinator_event event);

#endif

/*
 * How the coordinator finds the rank that keeps the others waiting. Pure: agent/cluster/coordinator_hang.c
 * performs the actions.
 *
 *   1. A node reports that one of its ranks was silent for too long.
 *   2. The coordinator asks every node what its ranks are doing.
 *   3. When all ranks have answered, or after HANG_ASK_MS, it judges them (agent/watch/hang_verdict.h).
 *   4. If a rank is the culprit, it asks the other nodes for what the processes of their ranks show. When
 *      they have answered, or after HANG_SHOW_MS, it names that rank to the rank's node, which reports the
 *      hang. If no rank is the culprit, it waits a moment and asks again.
 *
 * After a culprit was named it waits, too: the report ends the generation, or the rank went on meanwhile.
 */
#ifndef AGENT_HANG_LEADER_H
#define AGENT_HANG_LEADER_H

#include <stdbool.h>

enum { HANG_ASK_MS = 500, HANG_AGAIN_MS = 1000, HANG_SHOW_MS = 500, HANG_NAMED_MS = 5000 };

enum hang_leader_state { HL_UNSET, HL_QUIET, HL_ASKING, HL_PAUSING, HL_COUNT };

enum hang_leader_event {
    HE_UNSET,
    HE_SUSPECT,  /* a node has a rank that was silent for too long */
    HE_ANSWERED, /* all ranks have answered */
    HE_DEADLINE, /* the deadline that the last action set has passed */
    HE_CLEAR,    /* the judge has found that no rank was silent for too long */
    HE_EXCUSED,  /* the judge has found that the silent ranks wait for ranks that may go on */
    HE_NAMED,    /* judged, and a culprit was named */
    HE_FORM,     /* a generation begins */
    HE_COUNT
};

enum hang_leader_action {
    HA_UNSET,
    HA_NONE,
    HA_ASK,   /* ask all nodes; the deadline is HANG_ASK_MS */
    HA_JUDGE, /* judge the answers that have come; CLEAR, EXCUSED or NAMED follows at once */
    /*
     * set the deadline: after CLEAR or EXCUSED the time that the judge named, at most HANG_AGAIN_MS; after
     * NAMED HANG_NAMED_MS
     */
    HA_PAUSE,
    HA_COUNT
};

/**
 * Makes the transition for an event, and sets *action. Returns false, and changes nothing, if the state does
 * not allow the event.
 */
bool hang_leader_step(enum hang_leader_state *state, enum hang_leader_event event,
                      enum hang_leader_action *action);

#endif

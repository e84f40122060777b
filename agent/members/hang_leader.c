#include "agent/members/hang_leader.h"

static const struct rule {
    enum hang_leader_state next;
    enum hang_leader_action action;
} rules[HL_COUNT][HE_COUNT] = {
    [HL_QUIET][HE_SUSPECT] = { HL_ASKING, HA_ASK },
    [HL_QUIET][HE_ANSWERED] = { HL_QUIET, HA_NONE },
    [HL_QUIET][HE_DEADLINE] = { HL_QUIET, HA_NONE },
    [HL_QUIET][HE_FORM] = { HL_QUIET, HA_NONE },

    [HL_ASKING][HE_SUSPECT] = { HL_ASKING, HA_NONE },
    [HL_ASKING][HE_ANSWERED] = { HL_ASKING, HA_JUDGE },
    [HL_ASKING][HE_DEADLINE] = { HL_ASKING, HA_JUDGE },
    [HL_ASKING][HE_CLEAR] = { HL_QUIET, HA_NONE },
    [HL_ASKING][HE_EXCUSED] = { HL_PAUSING, HA_PAUSE },
    [HL_ASKING][HE_NAMED] = { HL_PAUSING, HA_PAUSE },
    [HL_ASKING][HE_FORM] = { HL_QUIET, HA_NONE },

    [HL_PAUSING][HE_SUSPECT] = { HL_PAUSING, HA_NONE },
    [HL_PAUSING][HE_ANSWERED] = { HL_PAUSING, HA_NONE }, /* the answer to an earlier question */
    [HL_PAUSING][HE_DEADLINE] = { HL_ASKING, HA_ASK },
    [HL_PAUSING][HE_FORM] = { HL_QUIET, HA_NONE },
};

bool hang_leader_step(enum hang_leader_state *state, enum hang_leader_event event,
                      enum hang_leader_action *action)
{
    const struct rule *rule = &rules[*state][event];

    if (rule->next == HL_UNSET)
        return false;
    *state = rule->next;
    *action = rule->action;
    return true;
}

#include "agent/members/coordinator_fsm.h"

static const struct rule {
    enum coordinator_state next;
    enum coordinator_action action;
} rules[CS_COUNT][CE_COUNT] = {
    [CS_GATHERING][CE_GATHERED] = { CS_PREPARING, CA_PREPARE },
    [CS_GATHERING][CE_NEVER] = { CS_ENDED, CA_END },
    [CS_GATHERING][CE_FAILED] = { CS_GATHERING, CA_NONE }, /* a node that left may come back */
    [CS_GATHERING][CE_STOP] = { CS_ENDED, CA_END },

    [CS_PREPARING][CE_PREPARED] = { CS_UP, CA_FORM },
    [CS_PREPARING][CE_REFUSED] = { CS_ENDED, CA_END },
    /* too few nodes are left when preparing ends: wait for more */
    [CS_PREPARING][CE_FAILED] = { CS_GATHERING, CA_NONE },
    [CS_PREPARING][CE_STOP] = { CS_ENDED, CA_END },

    [CS_UP][CE_FAILED] = { CS_CLEARING, CA_CLEAR },
    [CS_UP][CE_STOP] = { CS_CLEARING, CA_CLEAR },
    [CS_UP][CE_CHANGE] = { CS_CLEARING, CA_CLEAR },
    [CS_UP][CE_DOWN_OK] = { CS_ENDED, CA_END },
    /* every rank has ended, because one rank failed or because the nodes change: form another generation */
    [CS_UP][CE_DOWN_RETRY] = { CS_GATHERING, CA_NONE },
    [CS_UP][CE_DOWN_FINAL] = { CS_ENDED, CA_END }, /* the ranks saved and stopped on notice */

    [CS_CLEARING][CE_FAILED] = { CS_CLEARING, CA_NONE },
    [CS_CLEARING][CE_STOP] = { CS_CLEARING, CA_NONE },
    [CS_CLEARING][CE_DOWN_OK] = { CS_ENDED, CA_END }, /* all ranks had finished when the signal came */
    [CS_CLEARING][CE_DOWN_RETRY] = { CS_GATHERING, CA_NONE },
    [CS_CLEARING][CE_DOWN_FINAL] = { CS_ENDED, CA_END },

    [CS_ENDED][CE_FAILED] = { CS_ENDED, CA_NONE },
    [CS_ENDED][CE_STOP] = { CS_ENDED, CA_NONE },
    [CS_ENDED][CE_PREPARED] = { CS_ENDED, CA_NONE }, /* the disk's answer came after the run had ended */
    [CS_ENDED][CE_REFUSED] = { CS_ENDED, CA_NONE },
    [CS_ENDED][CE_NEVER] = { CS_ENDED, CA_NONE },
    [CS_ENDED][CE_GATHERED] = { CS_ENDED, CA_NONE },
};

bool coordinator_fsm_step(enum coordinator_state *state, enum coordinator_event event,
                          enum coordinator_action *action)
{
    const struct rule *rule = &rules[*state][event];

    if (rule->next == CS_UNSET)
        return false;
    *state = rule->next;
    *action = rule->action;
    return true;
}

const char *coordinator_state_name(enum coordinator_state state)
{
    static const char *const names[CS_COUNT] = {
        [CS_UNSET] = "unset", [CS_GATHERING] = "gathering", [CS_PREPARING] = "preparing",
        [CS_UP] = "up",       [CS_CLEARING] = "clearing",   [CS_ENDED] = "ended",
    };

    return state < CS_COUNT ? names[state] : "?";
}

const char *coordinator_event_name(enum coordinator_event event)
{
    static const char *const names[CE_COUNT] = {
        [CE_UNSET] = "unset",
        [CE_GATHERED] = "gathered",
        [CE_NEVER] = "never",
        [CE_PREPARED] = "prepared",
        [CE_REFUSED] = "refused",
        [CE_FAILED] = "failed",
        [CE_STOP] = "stop",
        [CE_CHANGE] = "change",
        [CE_DOWN_OK] = "down_ok",
        [CE_DOWN_RETRY] = "down_retry",
        [CE_DOWN_FINAL] = "down_final",
    };

    return event < CE_COUNT ? names[event] : "?";
}

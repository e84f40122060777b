#include "agent/world/world_fsm.h"

#include <stddef.h>

static const struct rule {
    enum world_state next;
    enum world_action action;
} rules[WS_COUNT][WE_COUNT] = {
    [WS_DOWN][WE_FORM] = { WS_RUNNING, WA_SPAWN },
    [WS_DOWN][WE_STOP] = { WS_DOWN, WA_NONE }, /* the coordinator was told too, and ends */
    [WS_DOWN][WE_STOP_NOW] = { WS_DOWN, WA_NONE },
    [WS_DOWN][WE_NOTICE] = { WS_DOWN, WA_NONE },
    [WS_DOWN][WE_END] = { WS_OVER, WA_CLOSE },

    [WS_RUNNING][WE_FAILED] = { WS_STOPPING, WA_CLEAR },
    [WS_RUNNING][WE_PEER_LOST] = { WS_BLAMING, WA_ABORT },
    [WS_RUNNING][WE_NOTICE] = { WS_LEAVING, WA_NOTIFY },
    [WS_RUNNING][WE_STOP] = { WS_STOPPING, WA_TERM },
    [WS_RUNNING][WE_STOP_NOW] = { WS_KILLING, WA_KILL },
    [WS_RUNNING][WE_REAPED] = { WS_DRAINING, WA_DRAIN },

    [WS_BLAMING][WE_FAILED] = { WS_STOPPING, WA_CLEAR }, /* there it is */
    [WS_BLAMING][WE_PEER_LOST] = { WS_BLAMING, WA_NONE },
    [WS_BLAMING][WE_NOTICE] = { WS_BLAMING, WA_NONE },
    [WS_BLAMING][WE_STOP] = { WS_STOPPING, WA_TERM },
    [WS_BLAMING][WE_STOP_NOW] = { WS_KILLING, WA_KILL },
    [WS_BLAMING][WE_DEADLINE] = { WS_STOPPING, WA_CLEAR },
    [WS_BLAMING][WE_REAPED] = { WS_SWEEPING, WA_SWEEP },

    [WS_LEAVING][WE_FAILED] = { WS_STOPPING, WA_CLEAR },
    [WS_LEAVING][WE_PEER_LOST] = { WS_BLAMING, WA_ABORT },
    [WS_LEAVING][WE_NOTICE] = { WS_LEAVING, WA_NONE },
    [WS_LEAVING][WE_STOP] = { WS_STOPPING, WA_TERM },
    [WS_LEAVING][WE_STOP_NOW] = { WS_KILLING, WA_KILL },
    [WS_LEAVING][WE_DEADLINE] = { WS_KILLING, WA_KILL },
    [WS_LEAVING][WE_REAPED] = { WS_DRAINING, WA_DRAIN },

    [WS_STOPPING][WE_FAILED] = { WS_STOPPING, WA_NONE },
    [WS_STOPPING][WE_PEER_LOST] = { WS_STOPPING, WA_NONE },
    [WS_STOPPING][WE_NOTICE] = { WS_STOPPING, WA_NONE },
    [WS_STOPPING][WE_STOP] = { WS_STOPPING, WA_NONE },    /* a second SIGTERM changes nothing */
    [WS_STOPPING][WE_STOP_NOW] = { WS_KILLING, WA_KILL }, /* a second Ctrl-C does not wait */
    [WS_STOPPING][WE_DEADLINE] = { WS_KILLING, WA_KILL },
    [WS_STOPPING][WE_REAPED] = { WS_SWEEPING, WA_SWEEP },

    [WS_KILLING][WE_FAILED] = { WS_KILLING, WA_NONE },
    [WS_KILLING][WE_PEER_LOST] = { WS_KILLING, WA_NONE },
    [WS_KILLING][WE_NOTICE] = { WS_KILLING, WA_NONE },
    [WS_KILLING][WE_STOP] = { WS_KILLING, WA_NONE },
    [WS_KILLING][WE_STOP_NOW] = { WS_KILLING, WA_KILL },
    [WS_KILLING][WE_DEADLINE] = { WS_DOWN, WA_ABANDON }, /* nothing waits without a bound */
    [WS_KILLING][WE_REAPED] = { WS_SWEEPING, WA_SWEEP },

    [WS_DRAINING][WE_NOTICE] = { WS_DRAINING, WA_NONE },
    [WS_DRAINING][WE_STOP] = { WS_DRAINING, WA_NONE },
    [WS_DRAINING][WE_STOP_NOW] = { WS_SWEEPING, WA_SWEEP },
    [WS_DRAINING][WE_DEADLINE] = { WS_SWEEPING, WA_SWEEP },
    [WS_DRAINING][WE_SWEPT] = { WS_DOWN, WA_DOWN },

    [WS_SWEEPING][WE_NOTICE] = { WS_SWEEPING, WA_NONE },
    [WS_SWEEPING][WE_STOP] = { WS_SWEEPING, WA_NONE },
    [WS_SWEEPING][WE_STOP_NOW] = { WS_SWEEPING, WA_SWEEP },
    [WS_SWEEPING][WE_DEADLINE] = { WS_DOWN, WA_ABANDON },
    [WS_SWEEPING][WE_SWEPT] = { WS_DOWN, WA_DOWN },

    [WS_OVER][WE_STOP] = { WS_OVER, WA_NONE },
    [WS_OVER][WE_STOP_NOW] = { WS_OVER, WA_NONE },
    [WS_OVER][WE_NOTICE] = { WS_OVER, WA_NONE },
};

bool world_fsm_step(enum world_state *state, enum world_event event, enum world_action *action)
{
    const struct rule *rule = &rules[*state][event];

    if (rule->next == WS_UNSET)
        return false;
    *state = rule->next;
    *action = rule->action;
    return true;
}

const char *world_state_name(enum world_state state)
{
    static const char *const names[WS_COUNT] = {
        [WS_UNSET] = "unset",     [WS_DOWN] = "down",         [WS_RUNNING] = "running",
        [WS_BLAMING] = "blaming", [WS_LEAVING] = "leaving",   [WS_STOPPING] = "stopping",
        [WS_KILLING] = "killing", [WS_DRAINING] = "draining", [WS_SWEEPING] = "sweeping",
        [WS_OVER] = "over",
    };

    return state < WS_COUNT && names[state] != NULL ? names[state] : "?";
}

const char *world_event_name(enum world_event event)
{
    static const char *const names[WE_COUNT] = {
        [WE_UNSET] = "unset",         [WE_FORM] = "form",         [WE_FAILED] = "failed",
        [WE_PEER_LOST] = "peer_lost", [WE_NOTICE] = "notice",     [WE_STOP] = "stop",
        [WE_STOP_NOW] = "stop_now",   [WE_DEADLINE] = "deadline", [WE_REAPED] = "reaped",
        [WE_SWEPT] = "swept",         [WE_END] = "end",
    };

    return event < WE_COUNT && names[event] != NULL ? names[event] : "?";
}

#include "agent/world/world_fsm.h"

#include <criterion/criterion.h>
#include <string.h>

/* An event that comes where the table has no cell for it ends the run as a bug. */
static bool may_come(enum world_state state, enum world_event event)
{
    switch (event) {
    case WE_NOTICE:
    case WE_STOP:
    case WE_STOP_NOW: /* at any time */
        return state != WS_UNSET;
    case WE_FAILED:
    case WE_PEER_LOST:
    case WE_REAPED: /* while there are workers */
        return state >= WS_RUNNING && state <= WS_KILLING;
    case WE_DEADLINE:
        return state >= WS_BLAMING && state <= WS_SWEEPING;
    case WE_SWEPT:
        return state == WS_DRAINING || state == WS_SWEEPING;
    default:
        return state == WS_DOWN && event != WE_UNSET;
    }
}

Test(world_fsm, every_cell_is_whole_and_down_is_told_on_every_way_down)
{
    for (int s = 0; s < WS_COUNT; s++)
        for (int e = 0; e < WE_COUNT; e++) {
            const char *from = world_state_name((enum world_state)s),
                       *event = world_event_name((enum world_event)e);
            enum world_state state = (enum world_state)s;
            enum world_action action = WA_UNSET;
            const bool taken = world_fsm_step(&state, (enum world_event)e, &action);

            cr_expect(taken == may_come((enum world_state)s, (enum world_event)e), "%s, %s", from, event);
            cr_expect(taken ? state > WS_UNSET && state < WS_COUNT && action > WA_UNSET && action < WA_COUNT
                            : (int)state == s && action == WA_UNSET,
                      "%s, %s", from, event);
            if (taken && s != WS_DOWN && state == WS_DOWN)
                cr_expect(action == WA_DOWN || action == WA_ABANDON, "%s, %s", from, event);
            cr_expect(strcmp(from, "?") != 0 && strcmp(event, "?") != 0, "state %d, event %d", s, e);
        }
    cr_expect_str_eq(world_state_name(WS_COUNT), "?");
}

/* Alone: only by what happens by itself, whatever the workers do. */
static bool reaches(enum world_state from, enum world_state to, bool alone)
{
    bool seen[WS_COUNT] = { false };
    bool grown = true;

    seen[from] = true;
    while (grown) {
        grown = false;
        for (int s = 0; s < WS_COUNT; s++)
            for (int e = 0; seen[s] && e < WE_COUNT; e++) {
                enum world_state state = (enum world_state)s;
                enum world_action action;

                if (!(alone && e != WE_DEADLINE) && world_fsm_step(&state, (enum world_event)e, &action) &&
                    !seen[state])
                    seen[state] = grown = true;
            }
    }
    return seen[to];
}

Test(world_fsm, every_live_state_reaches_over_and_once_stopping_began_deadlines_alone_lead_down)
{
    for (int s = WS_DOWN; s < WS_COUNT; s++) {
        cr_expect(reaches((enum world_state)s, WS_OVER, false), "%s", world_state_name((enum world_state)s));
        if (s != WS_DOWN && s != WS_RUNNING && s != WS_OVER)
            cr_expect(reaches((enum world_state)s, WS_DOWN, true), "%s",
                      world_state_name((enum world_state)s));
    }
}

Test(world_fsm, a_second_stop_changes_nothing_and_stop_now_kills)
{
    enum world_state state = WS_STOPPING;
    enum world_action action;

    cr_assert(world_fsm_step(&state, WE_STOP, &action));
    cr_expect(state == WS_STOPPING && action == WA_NONE);
    cr_assert(world_fsm_step(&state, WE_STOP_NOW, &action));
    cr_expect(state == WS_KILLING && action == WA_KILL);
}

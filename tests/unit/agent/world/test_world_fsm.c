#include "agent/world/world_fsm.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

/* What may happen in each state, said a second time: a row that appears or goes must be meant. */
static const struct {
    enum world_state state;
    unsigned long events;
} legal[] = {
#define E(event) (1ul << (event))
    { WS_DOWN, E(WE_FORM) | E(WE_STOP) | E(WE_STOP_NOW) | E(WE_NOTICE) | E(WE_END) },
    { WS_RUNNING,
      E(WE_FAILED) | E(WE_PEER_LOST) | E(WE_NOTICE) | E(WE_STOP) | E(WE_STOP_NOW) | E(WE_REAPED) },
    { WS_BLAMING, E(WE_FAILED) | E(WE_PEER_LOST) | E(WE_NOTICE) | E(WE_STOP) | E(WE_STOP_NOW) |
                      E(WE_DEADLINE) | E(WE_REAPED) },
    { WS_LEAVING, E(WE_FAILED) | E(WE_PEER_LOST) | E(WE_NOTICE) | E(WE_STOP) | E(WE_STOP_NOW) |
                      E(WE_DEADLINE) | E(WE_REAPED) },
    { WS_STOPPING, E(WE_FAILED) | E(WE_PEER_LOST) | E(WE_NOTICE) | E(WE_STOP) | E(WE_STOP_NOW) |
                       E(WE_DEADLINE) | E(WE_REAPED) },
    { WS_KILLING, E(WE_FAILED) | E(WE_PEER_LOST) | E(WE_NOTICE) | E(WE_STOP) | E(WE_STOP_NOW) |
                      E(WE_DEADLINE) | E(WE_REAPED) },
    { WS_DRAINING, E(WE_NOTICE) | E(WE_STOP) | E(WE_STOP_NOW) | E(WE_DEADLINE) | E(WE_SWEPT) },
    { WS_SWEEPING, E(WE_NOTICE) | E(WE_STOP) | E(WE_STOP_NOW) | E(WE_DEADLINE) | E(WE_SWEPT) },
    { WS_OVER, E(WE_STOP) | E(WE_STOP_NOW) | E(WE_NOTICE) },
#undef E
};

static bool is_legal(enum world_state state, enum world_event event)
{
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
        if (legal[i].state == state)
            return (legal[i].events >> event & 1) != 0;
    return false;
}

Test(world_fsm, nothing_unlisted_is_accepted_and_every_cell_is_whole)
{
    for (int s = 0; s < WS_COUNT; s++)
        for (int e = 0; e < WE_COUNT; e++) {
            enum world_state state = (enum world_state)s;
            enum world_action action = WA_UNSET;
            bool taken = world_fsm_step(&state, (enum world_event)e, &action);

            cr_expect(taken == is_legal((enum world_state)s, (enum world_event)e), "%s, %s",
                      world_state_name((enum world_state)s), world_event_name((enum world_event)e));
            cr_expect(taken ? state > WS_UNSET && state < WS_COUNT && action > WA_UNSET && action < WA_COUNT
                            : (int)state == s && action == WA_UNSET,
                      "%s, %s", world_state_name((enum world_state)s), world_event_name((enum world_event)e));
        }
}

static bool reaches(enum world_state from, enum world_state to, bool without_help)
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

                /* Without help: only what happens by itself, whatever the workers do. */
                if (without_help && e != WE_DEADLINE)
                    continue;
                if (world_fsm_step(&state, (enum world_event)e, &action) && !seen[state])
                    seen[state] = grown = true;
            }
    }
    return seen[to];
}

Test(world_fsm, every_live_state_reaches_over)
{
    for (int s = WS_DOWN; s < WS_COUNT; s++)
        cr_expect(reaches((enum world_state)s, WS_OVER, false), "%s", world_state_name((enum world_state)s));
}

Test(world_fsm, once_stopping_began_deadlines_alone_lead_down)
{
    static const enum world_state stopping[] = { WS_BLAMING, WS_LEAVING,  WS_STOPPING,
                                                 WS_KILLING, WS_DRAINING, WS_SWEEPING };

    for (size_t i = 0; i < sizeof stopping / sizeof *stopping; i++)
        cr_expect(reaches(stopping[i], WS_DOWN, true), "%s", world_state_name(stopping[i]));
}

Test(world_fsm, down_is_told_on_every_way_down)
{
    for (int s = 0; s < WS_COUNT; s++)
        for (int e = 0; e < WE_COUNT; e++) {
            enum world_state state = (enum world_state)s;
            enum world_action action;

            if (s != WS_DOWN && world_fsm_step(&state, (enum world_event)e, &action) && state == WS_DOWN)
                cr_expect(action == WA_DOWN || action == WA_ABANDON, "%s, %s",
                          world_state_name((enum world_state)s), world_event_name((enum world_event)e));
        }
}

Test(world_fsm, deadline_while_stopping_kills)
{
    enum world_state state = WS_STOPPING;
    enum world_action action;

    cr_assert(world_fsm_step(&state, WE_DEADLINE, &action));
    cr_expect(state == WS_KILLING);
    cr_expect(action == WA_KILL);
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

Test(world_fsm, every_state_and_event_has_a_name)
{
    for (int s = 0; s < WS_COUNT; s++)
        cr_expect(strcmp(world_state_name((enum world_state)s), "?") != 0, "state %d", s);
    for (int e = 0; e < WE_COUNT; e++)
        cr_expect(strcmp(world_event_name((enum world_event)e), "?") != 0, "event %d", e);
    cr_expect_str_eq(world_state_name(WS_COUNT), "?");
}

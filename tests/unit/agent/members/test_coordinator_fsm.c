#include "agent/members/coordinator_fsm.h"

#include <criterion/criterion.h>
#include <string.h>

/* An event that comes where the table has no cell for it ends the run as a bug. */
static bool may_come(enum coordinator_state state, enum coordinator_event event)
{
    switch (event) {
    case CE_FAILED:
    case CE_STOP: /* at any time */
        return state != CS_UNSET;
    case CE_GATHERED:
    case CE_NEVER: /* an answer may come late */
        return state == CS_GATHERING || state == CS_ENDED;
    case CE_PREPARED:
    case CE_REFUSED:
        return state == CS_PREPARING || state == CS_ENDED;
    case CE_CHANGE:
        return state == CS_UP;
    default:
        return event != CE_UNSET && (state == CS_UP || state == CS_CLEARING);
    }
}

Test(coordinator_fsm, every_cell_is_whole_and_ended_is_entered_once_with_end)
{
    for (int s = 0; s < CS_COUNT; s++)
        for (int e = 0; e < CE_COUNT; e++) {
            const char *from = coordinator_state_name((enum coordinator_state)s),
                       *event = coordinator_event_name((enum coordinator_event)e);
            enum coordinator_state state = (enum coordinator_state)s;
            enum coordinator_action action = CA_UNSET;
            const bool taken = coordinator_fsm_step(&state, (enum coordinator_event)e, &action);

            cr_expect(taken == may_come((enum coordinator_state)s, (enum coordinator_event)e), "%s, %s", from,
                      event);
            cr_expect(taken ? state > CS_UNSET && state < CS_COUNT && action > CA_UNSET && action < CA_COUNT
                            : (int)state == s && action == CA_UNSET,
                      "%s, %s", from, event);
            if (taken && state == CS_ENDED)
                cr_expect((action == CA_END) == (s != CS_ENDED), "%s, %s", from, event);
            cr_expect(from != NULL && event != NULL);
        }
    cr_expect_str_eq(coordinator_state_name(CS_COUNT), "?");
}

Test(coordinator_fsm, every_live_state_reaches_ended)
{
    for (int s = CS_GATHERING; s < CS_COUNT; s++) {
        bool seen[CS_COUNT] = { false }, grown = true;

        seen[s] = true;
        while (grown) {
            grown = false;
            for (int from = 0; from < CS_COUNT; from++)
                for (int e = 0; seen[from] && e < CE_COUNT; e++) {
                    enum coordinator_state state = (enum coordinator_state)from;
                    enum coordinator_action action;

                    if (coordinator_fsm_step(&state, (enum coordinator_event)e, &action) && !seen[state])
                        seen[state] = grown = true;
                }
        }
        cr_expect(seen[CS_ENDED], "%s", coordinator_state_name((enum coordinator_state)s));
    }
}

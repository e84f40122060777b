#include "agent/cluster/coordinator_fsm.h"

#include <criterion/criterion.h>
#include <string.h>

#define E(event) (1ul << (event))
static const struct {
    enum coordinator_state state;
    unsigned long events;
} legal[] = {
    { CS_GATHERING, E(CE_GATHERED) | E(CE_NEVER) | E(CE_FAILED) | E(CE_STOP) },
    { CS_PREPARING, E(CE_PREPARED) | E(CE_REFUSED) | E(CE_FAILED) | E(CE_STOP) },
    { CS_UP, E(CE_FAILED) | E(CE_STOP) | E(CE_CHANGE) | E(CE_DOWN_OK) | E(CE_DOWN_RETRY) | E(CE_DOWN_FINAL) },
    { CS_CLEARING, E(CE_FAILED) | E(CE_STOP) | E(CE_DOWN_OK) | E(CE_DOWN_RETRY) | E(CE_DOWN_FINAL) },
    { CS_ENDED, E(CE_GATHERED) | E(CE_NEVER) | E(CE_PREPARED) | E(CE_REFUSED) | E(CE_FAILED) | E(CE_STOP) },
};
#undef E

static bool is_legal(enum coordinator_state state, enum coordinator_event event)
{
    for (size_t i = 0; i < sizeof legal / sizeof *legal; i++)
        if (legal[i].state == state)
            return (legal[i].events >> event & 1) != 0;
    return false;
}

Test(coordinator_fsm, nothing_unlisted_is_accepted_and_every_cell_is_whole)
{
    for (int s = 0; s < CS_COUNT; s++)
        for (int e = 0; e < CE_COUNT; e++) {
            enum coordinator_state state = (enum coordinator_state)s;
            enum coordinator_action action = CA_UNSET;
            bool taken = coordinator_fsm_step(&state, (enum coordinator_event)e, &action);

            cr_expect(taken == is_legal((enum coordinator_state)s, (enum coordinator_event)e), "%s, %s",
                      coordinator_state_name((enum coordinator_state)s),
                      coordinator_event_name((enum coordinator_event)e));
            cr_expect(taken ? state > CS_UNSET && state < CS_COUNT && action > CA_UNSET && action < CA_COUNT
                            : (int)state == s && action == CA_UNSET);
        }
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

Test(coordinator_fsm, ended_is_entered_once_with_end)
{
    for (int s = 0; s < CS_COUNT; s++)
        for (int e = 0; e < CE_COUNT; e++) {
            enum coordinator_state state = (enum coordinator_state)s;
            enum coordinator_action action;

            if (coordinator_fsm_step(&state, (enum coordinator_event)e, &action) && state == CS_ENDED)
                cr_expect((action == CA_END) == (s != CS_ENDED), "%s, %s",
                          coordinator_state_name((enum coordinator_state)s),
                          coordinator_event_name((enum coordinator_event)e));
        }
}

Test(coordinator_fsm, every_state_and_event_has_a_name)
{
    for (int s = 0; s < CS_COUNT; s++)
        cr_expect_not_null(coordinator_state_name((enum coordinator_state)s));
    for (int e = 0; e < CE_COUNT; e++)
        cr_expect_not_null(coordinator_event_name((enum coordinator_event)e));
    cr_expect_str_eq(coordinator_state_name(CS_COUNT), "?");
}

#include "agent/members/hang_leader.h"

#include <criterion/criterion.h>

/* CLEAR, EXCUSED and NAMED answer JUDGE, which is performed while it asks. The rest may come at any time. */
static bool may_come(int state, int event)
{
    if (event == HE_CLEAR || event == HE_EXCUSED || event == HE_NAMED)
        return state == HL_ASKING;
    return event != HE_UNSET && state != HL_UNSET;
}

Test(hang_leader, every_cell_is_whole)
{
    for (int s = 0; s < HL_COUNT; s++)
        for (int e = 0; e < HE_COUNT; e++) {
            enum hang_leader_state state = (enum hang_leader_state)s;
            enum hang_leader_action action = HA_UNSET;
            const bool taken = hang_leader_step(&state, (enum hang_leader_event)e, &action);

            cr_expect_eq(taken, may_come(s, e), "state %d, event %d", s, e);
            cr_expect(taken ? state != HL_UNSET && action != HA_UNSET
                            : state == (enum hang_leader_state)s && action == HA_UNSET,
                      "state %d, event %d", s, e);
            if (taken && e == HE_FORM)
                cr_expect(state == HL_QUIET && action == HA_NONE, "state %d", s);
        }
}

/* A node that never answers, and an answer that comes late, hold nothing up. */
Test(hang_leader, each_question_ends_by_its_deadline_and_a_pause_by_another_question)
{
    enum hang_leader_state state = HL_QUIET;
    enum hang_leader_action action;

    cr_assert(hang_leader_step(&state, HE_SUSPECT, &action) && action == HA_ASK);
    cr_assert(hang_leader_step(&state, HE_SUSPECT, &action) && action == HA_NONE);
    cr_assert(hang_leader_step(&state, HE_DEADLINE, &action) && action == HA_JUDGE);
    cr_assert(hang_leader_step(&state, HE_EXCUSED, &action) && action == HA_PAUSE);
    cr_assert(hang_leader_step(&state, HE_ANSWERED, &action) && action == HA_NONE);
    cr_assert(hang_leader_step(&state, HE_DEADLINE, &action) && action == HA_ASK);
    cr_assert(hang_leader_step(&state, HE_ANSWERED, &action) && action == HA_JUDGE);
    cr_assert(hang_leader_step(&state, HE_CLEAR, &action) && state == HL_QUIET);
}

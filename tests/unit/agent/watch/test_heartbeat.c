#include "agent/watch/heartbeat.h"

#include <criterion/criterion.h>
#include <string.h>

Test(heartbeat, any_byte_is_a_beat_and_lines_say_where_the_program_is)
{
    static const char text[] =
        "x\nstep 12\nphase evaluate\nstep 13x\nstep -1\nstep 99999999999999999999999999999999999999"
        "99999999999999999999999999999999999999\nphase load";
    struct heartbeat beat;

    heartbeat_init(&beat);
    cr_assert_not(beat.used);
    for (size_t i = 0; i < sizeof text - 1; i++)
        heartbeat_take(&beat, &text[i], 1);

    cr_assert(beat.used);
    cr_assert_eq(beat.step, 12);
    cr_assert_str_eq(beat.phase, "evaluate");
    heartbeat_take(&beat, "\n", 1);
    cr_assert_str_eq(beat.phase, "load");
}

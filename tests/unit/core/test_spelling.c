#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "shard_runtime/core/spelling.h"

Test(spelling, a_third_of_the_letters_may_be_wrong_and_the_closest_wins)
{
    size_t best = (size_t)-1;
    char longer[2 * SPELLING_MAX_BYTES];

    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';

    cr_assert(not(spelling_is_close("lr", "ps", &best)));
    cr_assert(not(spelling_is_close(longer, "max-restarts", &best)));
    cr_assert(not(spelling_is_close("x", longer, &best)));
    cr_assert(spelling_is_close("max-retsart", "max-restarts", &best) && best == 2);
    cr_assert(not(spelling_is_close("max-retsart", "max-resta", &best)), "no closer than the one before");
    cr_assert(spelling_is_close("max-retsart", "max-retsarts", &best) && best == 1);
}

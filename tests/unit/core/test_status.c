#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include <fsdp/status.h>

Test(status, words_are_recorded_put_in_front_and_may_be_made_of_those_that_stand_there)
{
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, fsdp_fail(&err, FSDP_ERR_IO, "open %s: %d", "x", 5), FSDP_ERR_IO));
    cr_assert(eq(int, err.status, FSDP_ERR_IO));
    cr_assert(eq(str, err.message, "open x: 5"));
    fsdp_wrap(&err, "saving step %d", 7);
    cr_assert(eq(str, err.message, "saving step 7: open x: 5"));
    fsdp_fail(&err, FSDP_ERR_CONFIG, "again: %s", err.message);
    cr_assert(eq(str, err.message, "again: saving step 7: open x: 5"));
    cr_assert(eq(int, err.status, FSDP_ERR_CONFIG));

    cr_assert(eq(int, fsdp_fail(NULL, FSDP_ERR_ARG, "x"), FSDP_ERR_ARG));
    fsdp_wrap(NULL, "y");
    fsdp_err_clear(NULL);
}

Test(status, long_words_are_cut_not_overrun)
{
    struct fsdp_err err = { 0 };
    char text[2000];

    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fsdp_fail(&err, FSDP_ERR_IO, "%s", text);
    fsdp_wrap(&err, "%s", text);

    cr_assert(eq(sz, strlen(err.message), sizeof err.message - 1));
}

Test(status, every_status_has_a_name)
{
    for (int i = 0; i < FSDP_STATUS_COUNT; i++)
        cr_assert(ne(str, (char *)fsdp_status_name((enum fsdp_status)i), "unknown"), "status %d", i);
    cr_assert(eq(str, (char *)fsdp_status_name(FSDP_STATUS_COUNT), "unknown"));
}

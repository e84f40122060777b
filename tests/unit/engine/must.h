/* Checks of a call's status and of the words of its error. As macros, they report the line of the call. */
#ifndef TEST_ENGINE_MUST_H
#define TEST_ENGINE_MUST_H

#include <criterion/criterion.h>
#include <string.h>

/** Ends the test unless `call` succeeds. `err` is a pointer to the error that the call fills in. */
#define must(call, err) cr_assert((call) == FSDP_OK, "%s", (err)->message)

/** Fails the test unless `call` returns `status` and its message contains `words`. */
#define expect_refused(call, status, words, err)                                                             \
    do {                                                                                                     \
        cr_expect_eq(call, status, "%s", (err)->message);                                                    \
        cr_expect_not_null(strstr((err)->message, words), "no \"%s\" in: %s", words, (err)->message);        \
    } while (0)

#endif

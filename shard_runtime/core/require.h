/*
 * Macros for the checks at the beginning of a public function and after a call. REQUIRE() and GIVEN() check
 * pointers that the caller must pass. OK_OR_RETURN() returns a callee's failure to the caller.
 */
#ifndef CORE_REQUIRE_H
#define CORE_REQUIRE_H

#include <stddef.h>

#include <fsdp/status.h>

/**
 * FSDP_OK if the pointer `argument` is not NULL; otherwise FSDP_ERR_ARG, with "FUNCTION: ARGUMENT is NULL" in
 * `err`. Collective functions use this macro: their ranks agree on the status before any rank returns.
 */
#define GIVEN(argument, err)                                                                                 \
    ((argument) != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_ARG, "%s: %s is NULL", __func__, #argument))

/**
 * Returns FSDP_ERR_ARG from the enclosing function, with GIVEN()'s message, if `argument` is NULL. A
 * collective function may use it only for objects and for pointers to results, because the other ranks do not
 * learn of it.
 */
#define REQUIRE(argument, err)                                                                               \
    do {                                                                                                     \
        if (GIVEN(argument, err) != FSDP_OK)                                                                 \
            return FSDP_ERR_ARG;                                                                             \
    } while (0)

/**
 * Evaluates `call`. If its status is not FSDP_OK, returns that status from the enclosing function. The
 * function must not own anything at that point that it would have to release.
 */
#define OK_OR_RETURN(call)                                                                                   \
    do {                                                                                                     \
        const enum fsdp_status tried = (call);                                                               \
                                                                                                             \
        if (tried != FSDP_OK)                                                                                \
            return tried;                                                                                    \
    } while (0)

#endif

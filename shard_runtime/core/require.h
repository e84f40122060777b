/*
 * The first lines of a public function: pointers that its caller must give.
 */
#ifndef CORE_REQUIRE_H
#define CORE_REQUIRE_H

#include <stddef.h>

#include <fsdp/status.h>

/** FSDP_OK if `argument` is there, else FSDP_ERR_ARG with "FUNCTION: ARGUMENT is NULL". For what the ranks of a collective
 * function agree on. */
#define GIVEN(argument, err)                                                                                 \
    ((argument) != NULL ? FSDP_OK : fsdp_fail(err, FSDP_ERR_ARG, "%s: %s is NULL", __func__, #argument))

/** Unless `argument` is there, return from the function that this stands in, with the same words. In a collective function
 * for objects and places of results alone: the other ranks hear nothing of it. */
#define REQUIRE(argument, err)                                                                               \
    do {                                                                                                     \
        if (GIVEN(argument, err) != FSDP_OK)                                                                 \
            return FSDP_ERR_ARG;                                                                             \
    } while (0)

#endif

/*
 * Functions of a shared library that is opened at run time, found by their names.
 */
#ifndef CORE_LIBRARY_H
#define CORE_LIBRARY_H

#include <stddef.h>

/* A function of the library, and the offset in the caller's struct of the pointer to it. */
struct library_function {
    const char *name;
    size_t at;
};

/**
 * Sets the n pointers in `into`, each NULL if `library` (of dlopen()) and what it depends on lack the
 * function. Returns the name of the first function that is missing, or NULL if none is.
 */
const char *library_look_up(void *library, void *into, const struct library_function *functions, size_t n);

#endif

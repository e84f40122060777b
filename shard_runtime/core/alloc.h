/*
 * Small host memory: arrays, strings and growing lists. Everything is zeroed, sizes are multiplied checked,
 * and NULL means out of memory. Tensors never come from here: they live in the device's memory.
 *
 * alloc_fail_nth() is how tests make every single allocation fail once; it is the one mutable global of the
 * library, per thread, and nothing but tests sets it.
 */
#ifndef CORE_ALLOC_H
#define CORE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/** `n` elements of `size` bytes, zeroed, to be released with free(); n = 0 gives memory that is not to be
 * used. */
void *alloc_array(size_t n, size_t size);

/** A formatted string, to be released with free(). */
char *alloc_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/**
 * Make room for element number `n` in a list: *list (a pointer to elements of `size` bytes) is moved when
 * *capacity does not reach. False leaves all as it was.
 */
bool alloc_room(void *list, size_t *capacity, size_t n, size_t size);

/** The nth allocation from now on in this thread fails, once; 0: none does. */
void alloc_fail_nth(unsigned long nth);

#endif

/*
 * Allocates host memory for small objects: arrays, strings and growing lists. alloc_array() and alloc_room()
 * return zeroed memory and check their size computations for overflow. NULL (or false) means out of memory.
 * Tensors are not allocated here, but in the device's memory.
 *
 * alloc_fail_nth() lets tests make each single allocation fail once. The counter for that is the library's
 * only mutable global. Each thread has its own counter, and only tests set it.
 */
#ifndef CORE_ALLOC_H
#define CORE_ALLOC_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Returns `n` elements of `size` bytes, zeroed. The caller releases them with free(). With n = 0 the result
 * must not be dereferenced.
 */
void *alloc_array(size_t n, size_t size);

/** Returns a formatted string. The caller releases it with free(). */
char *alloc_printf(const char *format, ...) __attribute__((format(printf, 1, 2)));

/**
 * Makes room for element number `n` of a list. `list` is the address of the pointer to its elements, which
 * have `size` bytes each. If n >= *capacity, the elements move to larger memory and *capacity grows. New
 * elements are zeroed. Returns false, and changes nothing, if memory runs out.
 */
bool alloc_room(void *list, size_t *capacity, size_t n, size_t size);

/** Makes the nth allocation of this thread from now on fail, once. 0 switches that off. */
void alloc_fail_nth(unsigned long nth);

#endif

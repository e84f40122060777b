/*
 * Read a small file into a buffer, such as those of /proc, /sys and /dev, or list a directory there.
 */
#ifndef AGENT_SMALL_FILE_H
#define AGENT_SMALL_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum { SMALL_FILE_PATH_BYTES = 8800 };

/**
 * Read the first `size` - 1 bytes of the file whose path `format` gives, and add a zero byte. False, with an
 * empty text: it cannot be read, it is empty, or its path is longer than SMALL_FILE_PATH_BYTES.
 */
bool small_file_read(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/**
 * List the entries of a directory below `root` that are not hidden and fit into names[i], sorted by name.
 * Returns their number, at most `room`: 0 if the directory cannot be read.
 */
int small_file_list(const char *root, const char *directory, char (*names)[64], int room);

#endif

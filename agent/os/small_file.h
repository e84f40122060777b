/*
 * Files that are read whole into a buffer: what the kernel shows under /proc, /sys and /dev.
 */
#ifndef AGENT_SMALL_FILE_H
#define AGENT_SMALL_FILE_H

#include <stdbool.h>
#include <stddef.h>

enum { SMALL_FILE_PATH_BYTES = 8800 };

/**
 * The first `size` - 1 bytes of the file that `format` names, and a zero behind them. False, and an empty text, where
 * it cannot be read, is empty, or its path is longer than SMALL_FILE_PATH_BYTES.
 */
bool small_file_read(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif

/*
 * When the bytes of a log were written, for `fsdprun logs --since`. The log itself has no times: it is byte
 * for byte what the rank wrote. They are in a hidden file in the same folder: .stdout.log.times for
 * stdout.log.
 *
 * A row is "MILLISECONDS INODE OFFSET": at that time since 1970, the file of the log had that inode and ended
 * at that offset. The file may be rotated later; the inode says which one it was. After a row, no other row
 * is written for a second. So what was written between two rows was written within a second of the first.
 *
 * A log that was written within one second, by one run, has no such file. If rows cannot be written, no error
 * is reported, because the log matters more. Pure but for its file.
 */
#ifndef AGENT_LOG_TIMES_H
#define AGENT_LOG_TIMES_H

#include <stdint.h>

#include "agent/output/log_file.h"

enum { LOG_TIMES_APART_MS = 1000 };

/* Begins as { 0 }. */
struct log_times {
    int64_t last_ms; /* of the last row; 0: there is none */
    struct log_file_place last;
    bool waits; /* only the first row has been made, and it is not written yet: the second row writes both */
};

/** Write the name of the file with the times of the log `path`. Returns false if `out` has no room for it. */
bool log_times_path(char *out, size_t size, const char *path);

/**
 * The log is about to be appended to, at `now_ms` since 1970. Adds a row, unless the last one is younger than
 * a second, or the log has no name. Thread: the one that writes the log.
 */
void log_times_note(struct log_times *times, const struct log_file *log, int64_t now_ms);

#endif

/*
 * Reads the T of `fsdprun logs --since T`, and finds where in a log the lines begin that were written since
 * T. The agent keeps the times in a file next to the log (agent/output/log_times.h).
 */
#ifndef LAUNCHER_LOG_SINCE_H
#define LAUNCHER_LOG_SINCE_H

#include <stdint.h>
#include <sys/types.h>

#include <fsdp/status.h>

/**
 * Reads T. It is a time ago ("90", "90s", "10m", "2h", "1d") or a date and time ("2026-11-28T15:04",
 * "2026-11-28T15:04:05"). A date and time is local unless "Z" follows.
 *   now_ms    the time now, in milliseconds since 1970
 *   since_ms  receives T, in milliseconds since 1970
 *   FSDP_ERR_CONFIG  the text has neither form
 */
enum fsdp_status log_since_read(const char *text, int64_t now_ms, int64_t *since_ms, struct fsdp_err *err);

/**
 * Finds where in the log `path` the lines begin that were written at `since_ms` or later. The result may
 * include lines that are up to a second older.
 *   inode   receives the inode of the file, which may be a rotated one; 0: the whole log is wanted
 *   offset  receives the offset in that file of the first such line
 */
void log_since_find(const char *path, int64_t since_ms, ino_t *inode, off_t *offset);

#endif

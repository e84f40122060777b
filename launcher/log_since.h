/*
 * `fsdprun logs --since T`: what T means, and where in a log the lines begin that were written since then.
 * The agent keeps the times beside the log (agent/output/log_times.h).
 */
#ifndef LAUNCHER_LOG_SINCE_H
#define LAUNCHER_LOG_SINCE_H

#include <stdint.h>
#include <sys/types.h>

#include <fsdp/status.h>

/**
 * Read T: a time ago ("90", "90s", "10m", "2h", "1d"), or a time of day ("2026-11-28T15:04",
 * "2026-11-28T15:04:05"), which is local unless "Z" follows.
 *   now_ms    since 1970
 *   since_ms  gets it, likewise
 *   FSDP_ERR_CONFIG  it is neither
 */
enum fsdp_status log_since_read(const char *text, int64_t now_ms, int64_t *since_ms, struct fsdp_err *err);

/**
 * Where does the log `path` begin, for who wants no line that was written before `since_ms`? Lines of up to a
 * second before that may come, too.
 *   inode   gets the inode of the file in which it begins; 0: it is all wanted
 *   offset  gets the offset there; it is that of a line
 */
void log_since_find(const char *path, int64_t since_ms, ino_t *inode, off_t *offset);

#endif

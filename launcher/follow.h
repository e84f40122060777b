/*
 * Prints the lines of files that grow. It keeps no file open. It knows a file by its path, its inode, and how
 * many of its bytes were printed. When a log is rotated, PATH is renamed to PATH.1 (agent/output/log_file.h).
 * The renamed file is then printed to its end, and after it the new one.
 *
 * Changes are seen by inotify(7), which does not report what another host writes to a shared file system.
 * Such lines are printed at the next change that this host makes.
 */
#ifndef LAUNCHER_FOLLOW_H
#define LAUNCHER_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <fsdp/status.h>

struct follow;

/** `watches`: whether the caller will use follow_watch() and follow_wait(). Returns the follower in `out`. */
enum fsdp_status follow_create(struct follow **out, bool watches, struct fsdp_err *err);
void follow_destroy(struct follow *follow); /* NULL is a no-op */

/** Watches a folder or a file from now on. No effect if it does not exist, or if `watches` was false. */
void follow_watch(struct follow *follow, const char *path);

/**
 * Adds a file, unless it was added before. The file need not exist yet.
 *   prefix  printed before each of its lines; copied
 *   out     where its lines are printed; borrowed
 */
enum fsdp_status follow_add(struct follow *follow, const char *path, const char *prefix, FILE *out,
                            struct fsdp_err *err);

/**
 * From files that are added after this call, only lines that were written at or after `since_ms` are printed
 * (log_since.h).
 */
void follow_since(struct follow *follow, int64_t since_ms);

/**
 * Leaves only the last `n_lines` lines of what was added and not printed yet. Files with the same prefix and
 * `out` are one text, in the order in which they were added.
 */
void follow_tail(struct follow *follow, size_t n_lines);

/**
 * From files that are added after this call, each line is printed as an object of JSON: the prefix of its
 * file, which is the beginning of the object; the line as a JSON string; and "}".
 */
void follow_as_json(struct follow *follow);

/**
 * Prints the new lines of all files, file by file in the order in which they were added. A last line that has
 * no newline is printed only if `all` is set.
 */
enum fsdp_status follow_print(struct follow *follow, bool all, struct fsdp_err *err);

/** Waits for a change. Returns true after one, and false if `ended_fd` has become readable. */
bool follow_wait(struct follow *follow, int ended_fd);

#endif

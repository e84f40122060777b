/*
 * Prints the lines of files that grow. No file stays open: each is known by its path, its inode, and how much
 * of it was printed. A file that was rotated (agent/output/log_file.h: PATH becomes PATH.1) is printed to its
 * end, and then the new one.
 *
 * Changes are seen by inotify(7). So what another host writes to a shared file system shows only with the
 * next change that this host makes.
 */
#ifndef LAUNCHER_FOLLOW_H
#define LAUNCHER_FOLLOW_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <fsdp/status.h>

struct follow;

/** `watches`: follow_watch() and follow_wait() will be called. */
enum fsdp_status follow_create(struct follow **out, bool watches, struct fsdp_err *err);
void follow_destroy(struct follow *follow); /* NULL is a no-op */

/** Watch a folder, or a file, from now on. No effect without `watches`, or if it is not there. */
void follow_watch(struct follow *follow, const char *path);

/**
 * Add a file, unless it is there already. It need not exist yet.
 *   prefix  printed before each of its lines; copied
 *   out     borrowed
 */
enum fsdp_status follow_add(struct follow *follow, const char *path, const char *prefix, FILE *out,
                            struct fsdp_err *err);

/** Of files that are added from now on, print only lines that were written since then (log_since.h). */
void follow_since(struct follow *follow, int64_t since_ms);

/** Print what is new in all files, in the order in which they were added: only whole lines, unless `all`. */
enum fsdp_status follow_print(struct follow *follow, bool all, struct fsdp_err *err);

/** Wait for a change, or until `ended_fd` is readable. Returns false in the second case. */
bool follow_wait(struct follow *follow, int ended_fd);

#endif

/*
 * Find and end every descendant of this process. Both processes of a launcher are child subreapers: whatever
 * a worker leaves running (double-forked, in a session of its own) becomes their child. A process lives as
 * long as one of its threads does.
 */
#ifndef AGENT_DESCENDANTS_H
#define AGENT_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/**
 * Can descendants be found? Not without /proc. Then the functions below find none, except that
 * descendants_end() still reaps zombies.
 */
bool descendants_can_be_found(void);

/**
 * Send `signal` to every living descendant of this process, except the n_except children in `except` and
 * their descendants. Returns how many there were; zombies do not count. This is one pass: a process that is
 * forked meanwhile needs another.
 */
size_t descendants_signal(int signal, const pid_t *except, size_t n_except);

/**
 * Send `signal` to every living descendant of the process `root`, which is this process or a descendant of
 * it. Returns how many there were, as descendants_signal() counts.
 */
size_t descendants_signal_below(pid_t root, int signal);

/** Returns how many descendants of `root` do not stand still: they are neither stopped nor zombies. */
size_t descendants_running_below(pid_t root);

/**
 * Kill and reap until no child is left except those in `except`, for at most `limit_ms`. Returns how many are
 * still alive. Blocking: for a process that has nothing else left to do.
 */
size_t descendants_end(int64_t limit_ms, const pid_t *except, size_t n_except);

/**
 * List the living descendants of this process, except the children in `except` and their descendants. Returns
 * how many there are; at most `capacity` pids are written.
 */
size_t descendants_living(pid_t *pids, size_t capacity, const pid_t *except, size_t n_except);

/**
 * List the process `root`, and then its living descendants. Returns how many pids are written: at least 1, at
 * most `capacity`.
 */
size_t descendants_living_below(pid_t root, pid_t *pids, size_t capacity);

/**
 * The child of this process that is `pid` or its ancestor. 0: `pid` is no descendant of this process.
 */
pid_t descendants_top(pid_t pid);

/**
 * Calls `visit` for each socket that a descendant has open. `inode` is the socket's. `child` is the child of
 * this process that is that descendant or its ancestor. Children come before grandchildren.
 */
void descendants_sockets(void (*visit)(void *arg, unsigned long inode, pid_t child), void *arg);

/**
 * The state of a process ('D', 'S', ...; '?': unknown), which is that of its first thread, or of another one
 * if the first has ended. `place` receives the kernel function in which that thread waits, or "?".
 */
char descendants_state(pid_t pid, char *place, size_t size);

/** List the children of this process. Returns how many there are; at most `capacity` are written. */
size_t descendants_children(pid_t *pids, size_t capacity);

#endif

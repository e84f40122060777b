/*
 * Every process below this one. Both processes of a launcher are child subreapers, so that whatever a worker
 * leaves behind (double-forked, in a session of its own) comes to be a child of theirs; these functions end it.
 */
#ifndef AGENT_DESCENDANTS_H
#define AGENT_DESCENDANTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/** Can they be found? Not without /proc: then the functions below find none, except descendants_end() its zombies. */
bool descendants_can_be_found(void);

/**
 * Send `signal` to every living descendant of this process, except the children named and what is below them;
 * returns how many there were (zombies do not count). One pass: what is forked meanwhile needs another.
 */
size_t descendants_signal(int signal, const pid_t *except, size_t n_except);

/**
 * Kill and reap until no child but the excepted is left, at most `limit_ms`. Returns 0, or how many would not
 * die. For a process that does nothing else any more.
 */
size_t descendants_end(int64_t limit_ms, const pid_t *except, size_t n_except);

/**
 * The living descendants of this process, but the children named and what is below them; returns how many there
 * are, of which at most `capacity` are written.
 */
size_t descendants_living(pid_t *pids, size_t capacity, const pid_t *except, size_t n_except);

/** The child of this process that `pid` is, or is below of; 0: it is none of ours (this process itself is not). */
pid_t descendants_top(pid_t pid);

/** The child of this process that holds the socket of that inode, itself or by a descendant; 0: none. */
pid_t descendants_holder(unsigned long inode);

/** State ('D', 'S', ...; '?': unknown) of a process, and the kernel function it waits in ("?": unknown) into `place`. */
char descendants_state(pid_t pid, char *place, size_t size);

/** The children of this process, at most `capacity` of them. */
size_t descendants_children(pid_t *pids, size_t capacity);

#endif

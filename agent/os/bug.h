/* The end of an agent that has found a bug of its own. */
#ifndef AGENT_BUG_H
#define AGENT_BUG_H

/**
 * Stop after a bug of our own, if going on would be wrong. Writes "fsdprun: bug: WORDS; stopping" to stderr,
 * sends KILL to every descendant of this process and waits for their end, at most GUARD_CLEANUP_MS. Then the
 * process exits with FSDP_EXIT_BUG. The guard above it (agent/os/guard.h) returns the same status. The agents
 * of other nodes see a lost connection.
 */
_Noreturn void bug_stop(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

/*
 * Environment variables: those of this process, and those of a block of NAME=value strings that a NULL
 * pointer ends.
 */
#ifndef AGENT_ENVIRONMENT_H
#define AGENT_ENVIRONMENT_H

/** The value of `name` in `environment`, borrowed from it. NULL: it is not set. */
const char *environment_find(char *const *environment, const char *name);

/** Returns getenv(name), for code that is given a function that looks variables up. `arg` is not used. */
const char *environment_get(void *arg, const char *name);

#endif

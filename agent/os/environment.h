/*
 * A block of environment variables: zero-terminated, NAME=value each. Pure.
 */
#ifndef AGENT_ENVIRONMENT_H
#define AGENT_ENVIRONMENT_H

/** The value of `name` in `environment`; NULL if it is not there. */
const char *environment_find(char *const *environment, const char *name);

#endif

/*
 * A machine made of files: a temporary directory that stands in front of /proc, /dev and /sys. Failing is an
 * assertion.
 */
#ifndef TESTS_UNIT_AGENT_FAKE_ROOT_H
#define TESTS_UNIT_AGENT_FAKE_ROOT_H

enum { FAKE_ROOT_BYTES = 64 };

void fake_root_make(char root[FAKE_ROOT_BYTES]);

/** Write a file, with the directories above it. */
void fake_root_add(const char *root, const char *text, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

void fake_root_remove(const char *root);

#endif

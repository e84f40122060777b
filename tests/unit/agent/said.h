/* What is printed on stderr while a test listens. */
#ifndef UNIT_AGENT_SAID_H
#define UNIT_AGENT_SAID_H

#include <criterion/criterion.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int said_fd, said_stderr;

static inline void said_begin(void)
{
    said_fd = memfd_create("said", MFD_CLOEXEC);
    said_stderr = dup(STDERR_FILENO);
    cr_assert_eq(dup2(said_fd, STDERR_FILENO), STDERR_FILENO);
}

static inline void said_end(void)
{
    dup2(said_stderr, STDERR_FILENO);
    close(said_stderr);
    close(said_fd);
}

/** How often was this said since said_begin()? */
static inline int said(const char *words)
{
    static char text[4096];
    const ssize_t length = pread(said_fd, text, sizeof text - 1, 0);
    int n = 0;

    cr_assert_geq(length, 0);
    text[length] = '\0';
    for (const char *at = text; (at = strstr(at, words)) != NULL; at++)
        n++;
    return n;
}

#endif

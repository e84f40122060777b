/*
 * What a person or a pipe sees of a run's output. It has the loop, the output under test, and the far end of
 * the channel that it writes to. The test is the worker.
 */
#ifndef UNIT_AGENT_FAR_END_H
#define UNIT_AGENT_FAR_END_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "agent/output/output_impl.h"

static uv_loop_t loop;
static struct output *output;
static int far_end = -1;
static char seen[8 << 20];
static size_t n_seen;
static bool is_drained;

/** Make the channel; returns the near end, which the test keeps open or closes. */
static inline int open_far_end(void)
{
    int ends[2];

    cr_assert(pipe2(ends, O_CLOEXEC) == 0);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    far_end = ends[0];
    return ends[1];
}

static inline void look(void)
{
    ssize_t n;

    while (far_end >= 0 && (n = read(far_end, seen + n_seen, sizeof seen - 1 - n_seen)) > 0)
        n_seen += (size_t)n;
    seen[n_seen] = '\0';
}

/** Some turns of the loop, then a look. */
static inline void run_turns(int n)
{
    for (int i = 0; i < n; i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    look();
}

static inline void put(int fd, const char *text)
{
    cr_assert(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
}

static inline int open_output(const struct stream_spec *spec)
{
    static struct stream_files files;
    int fd;

    cr_assert(output_open_files(output, spec, &files, NULL) == FSDP_OK);
    cr_assert(output_open(output, spec, &files, &fd, NULL) == FSDP_OK);
    return fd;
}

static inline void on_drained(void *data)
{
    is_drained = true;
}

/** Wait for the end, looking at what comes out. */
static inline void drain(void)
{
    is_drained = false;
    output_drain(output, on_drained, NULL);
    while (!is_drained)
        run_turns(1);
    look();
}

static inline void close_output(void)
{
    output_destroy(output);
    output = NULL;
    uv_run(&loop, UV_RUN_DEFAULT);
}

#endif

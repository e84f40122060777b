/*
 * The words before each line of a rank's captured output, made from a template. Pure.
 */
#ifndef AGENT_LINE_PREFIX_H
#define AGENT_LINE_PREFIX_H

#include <stddef.h>

#include "agent/record/rundir.h"

/** The values that a template may name. */
struct line_names {
    int rank, local_rank, generation;
    const char *role_name; /* NULL: "default" */
    const char *host;      /* NULL: empty */
    enum rundir_stream stream;
};

/**
 * Make a prefix from `template`, as Python's string.Template does:
 *   - ${rank} and $rank are replaced by the rank. So are local_rank, role_name, hostname, host, generation
 *     and stream.
 *   - $$ is one $.
 *   - Any other name stays as it is.
 * NULL for `template` means "[rank ${rank}]: ". Writes at most `size` bytes to `out`, with the zero, and
 * returns `out`.
 */
const char *line_prefix(char *out, size_t size, const char *template, const struct line_names *names);

#endif

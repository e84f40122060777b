/*
 * index.jsonl of a generation, beside the folders of its ranks: which global rank, on which host, as which process,
 * wrote where. torchrun's layout names local ranks only. One object a worker, appended when it has started:
 *   {"time", "rank", "local_rank", "node_rank", "host", "pid", "stdout", "stderr", "error_file"}
 * Paths are relative to the index' folder; null: not captured (of error_file: a job). Nodes may share one
 * directory, of a job or of a program with --run-dir, and appending from several hosts is not safe on every file system: node n, but for 0, has
 * index.node<n>.jsonl.
 */
#ifndef AGENT_LOG_INDEX_H
#define AGENT_LOG_INDEX_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "agent/record/rundir.h"

struct log_index_entry {
    bool of_job;
    bool shared; /* a program's nodes have one run directory, and its folders are those of global ranks */
    int generation, node_rank, rank, local_rank, pid;
    const char *host;
    bool has_stdout, has_stderr;
};

/** Its line, with the newline, into `out`; returns its length, 0 where it does not fit. */
size_t log_index_line(char *out, size_t size, const struct log_index_entry *entry, double time_s);

enum fsdp_status log_index_add(struct rundir *rundir, const struct log_index_entry *entry,
                               struct fsdp_err *err);

#endif

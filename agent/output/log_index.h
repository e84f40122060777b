/*
 * index.jsonl of a generation, in the folder that also contains the folders of its ranks. It says which
 * global rank ran on which host as which process, and where its output is. torchrun's layout names local
 * ranks only. Pure but for its file.
 *
 * A worker that has started appends one object:
 *   {"time", "rank", "local_rank", "node_rank", "host", "pid", "stdout", "stderr", "error_file"}
 * Paths are relative to the folder of the index. null means not captured; a job has no error files.
 *
 * Nodes may share one directory: of a job, or of a program with --run-dir. Appending from several hosts is
 * not safe on every file system. So node n, except node 0, writes index.node<n>.jsonl.
 */
#ifndef AGENT_LOG_INDEX_H
#define AGENT_LOG_INDEX_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "agent/record/rundir.h"

struct log_index_entry {
    bool of_job;
    /* the run is a program whose nodes share the run directory: its folders are named by global ranks */
    bool shared;
    int generation, node_rank, rank, local_rank, pid;
    const char *host;
    bool has_stdout, has_stderr; /* the stream is captured in a file */
};

/**
 * Print an entry's line with its newline into `out`. `time_s` is in seconds since the epoch. Returns its
 * length, or 0 if it does not fit in `size` bytes.
 */
size_t log_index_line(char *out, size_t size, const struct log_index_entry *entry, double time_s);

/**
 * Append the entry's line, with the current time, to the index of its generation.
 *   FSDP_ERR_IO  the file cannot be opened or written
 */
enum fsdp_status log_index_add(struct rundir *rundir, const struct log_index_entry *entry,
                               struct fsdp_err *err);

#endif

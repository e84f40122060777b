/*
 * The account of a hang: what each rank of a node shows before any rank is killed. Each node makes a report
 * of its ranks; the culprit's node sends its report last. The coordinator makes one table of them
 * (hang_table.h), prints it, and keeps it in errors.json as `cause.hang`:
 *
 * {"ranks": "3", "silent_s": 10.2, "bound_s": 10, "waiting": 7,
 *  "rows": [{"ranks": "0-2,4-7", "culprit": false, "host": "n1", "pid": 4242, "phase": "collective",
 *            "pass": "backward", "layer": "layers.6", "step": 128, "silent_s": 10.1,
 *            "collective": {"group": "world", "sequence": 912, "kind": "reduce_scatter", "bytes": 1048576,
 *                           "ended_s_ago": null},
 *            "state": "S", "wchan": "futex_wait_queue", "syscall": "futex", "file": null,
 *            "kernel": ["futex_wait_queue"],
 *            "threads": {"count": 5, "others": [{"count": 4, "state": "S", "wchan": "ep_poll"}]},
 *            "python": {"line": "train.py:41", "function": "step", "threads": 3,
 *                       "frames": ["train.py:41 in step", "train.py:88 in <module>"]},
 *            "missing": ["kernel: needs root"]}]}
 *
 * Ranks of a host whose rows would show the same share one row: its pid is that of the first rank, its
 * silent_s the longest. The culprit's row comes first. What is not known is null. For the table to print, a
 * report also has `waits_in` ("reduce_scatter #912 of world"), `shown` in each row (HANG_COLUMNS texts), and
 * the culprit's `details` (lines).
 *
 * Pure.
 */
#ifndef AGENT_HANG_REPORT_H
#define AGENT_HANG_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "agent/os/process_look.h"
#include "agent/watch/python_stack.h"

enum {
    HANG_NAME_BYTES = 64,
    HANG_ROWS_LISTED = 32,    /* of a node, in the JSON */
    HANG_COLUMNS = 4,         /* where, step, state, waits in */
    HANG_LINE_BYTES = 111,    /* a line in print, with its zero */
    HANG_REPORT_BYTES = 65536 /* the longest JSON report that a coordinator accepts from a node */
};

/* What one rank showed. */
struct hang_row {
    int rank, pid;
    bool culprit;
    bool waits;        /* the rank is in a collective, or waits for an answer of another rank */
    const char *host;  /* borrowed */
    const char *phase; /* NULL: unknown */
    /* the phase of which the rank's wait is a part; NULL: unknown, or the rank does not wait */
    const char *pass;
    char layer[HANG_NAME_BYTES]; /* the module whose operation the rank runs; empty: none */
    int64_t step;                /* -1: unknown */
    double silent_s;
    struct {
        uint64_t sequence, size_bytes; /* sequence 0: it has begun none */
        char group[HANG_NAME_BYTES], kind[16];
        double ended_s_ago; /* NaN: it has not ended */
    } collective;           /* the newest that the rank has begun */
    bool looked;            /* false: /proc did not answer in time, and `look` is empty */
    struct process_look look;
    const struct python_stack *python; /* borrowed; NULL: not known */
    /* why there is no Python stack; NULL: there is one, or none was asked for */
    const char *python_missing;
};

struct hang_report {
    double bound_s;        /* the silence that its bound allowed; 0 if no rank of this node is the culprit */
    int n_rows;            /* at least 1 */
    struct hang_row *rows; /* borrowed; hang_report_sort() */
};

/** Bring the rows into the order in which they are shown: the culprit, then by rank. */
void hang_report_sort(struct hang_report *report);

/**
 * Returns the JSON, at most HANG_REPORT_BYTES, to be freed by the caller; NULL if there is no memory. Rows
 * that do not fit are left out and counted as "omitted_rows": without a culprit, no row begins after the
 * first 8 KiB. Sort the rows first.
 */
char *hang_report_json(const struct hang_report *report);

#endif

/*
 * What all ranks of a world showed while one of them hung: one table of the reports of the nodes
 * (hang_report.h). Other nodes may send any bytes; the culprit's node ends the table.
 *
 * In print, ranks of several hosts that show the same are one row. The table that is kept has the rows of
 * each host, with `missing_nodes`: how many nodes did not report in time.
 *
 * Pure.
 */
#ifndef AGENT_HANG_TABLE_H
#define AGENT_HANG_TABLE_H

#include <stddef.h>

#include "agent/watch/hang_report.h"

enum {
    HANG_LINES = 20, /* lines of the printed table; each has at most HANG_LINE_BYTES with its zero */
    HANG_PRINT_BYTES = HANG_LINES * HANG_LINE_BYTES + 1
};

struct cJSON;

/* Begins as zeros; hang_table_clear() ends it. */
struct hang_table {
    struct cJSON *rows; /* of the reports of nodes on which no rank is the culprit; NULL: none was added */
    int n_waiting, n_omitted;
    char waits_in[160];
};

/**
 * Add the report of a node on which no rank is the culprit. No effect if json[0..length) is not one JSON
 * object of at most HANG_REPORT_BYTES, or if there is no memory.
 */
void hang_table_add(struct hang_table *table, const char *json, size_t length);
/**
 * Add the report of the culprit's node, and clear the table.
 *   n_missing  nodes that have not reported
 *   lines      receives the table for people, joined by newlines, without control bytes: at most HANG_LINES
 *              lines, each cut to fit HANG_LINE_BYTES
 *
 * Returns the table as JSON, to be freed by the caller. NULL, with empty lines: that report is no such
 * object, or there is no memory.
 */
char *hang_table_take(struct hang_table *table, const char *json, size_t length, int n_missing,
                      char lines[HANG_PRINT_BYTES]);
/** Forget what was added. */
void hang_table_clear(struct hang_table *table);

#endif

/*
 * What the checks of `fsdprun doctor` found: one row a check, as text for a person and as JSON for programs.
 * Pure.
 */
#ifndef AGENT_DOCTOR_REPORT_H
#define AGENT_DOCTOR_REPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include <fsdp/status.h>

enum {
    DOCTOR_NAME_BYTES = 40,
    DOCTOR_VALUE_BYTES = 240,
    DOCTOR_ADVICE_BYTES = 320,
    DOCTOR_NODE_BYTES = 72,
    DOCTOR_MOST_ROWS = 65536
};

/* In ascending order of weight. DOCTOR_NOTHING gives no row: the check does not concern this machine. */
enum doctor_state { DOCTOR_NOTHING, DOCTOR_OK, DOCTOR_WARN, DOCTOR_FAIL };

struct doctor_row {
    char check[DOCTOR_NAME_BYTES];
    enum doctor_state state;
    char value[DOCTOR_VALUE_BYTES];   /* what was found */
    char advice[DOCTOR_ADVICE_BYTES]; /* what the user can do about it; empty if the state is ok */
    /* the host that the row is about; empty if the doctor examines one node only */
    char node[DOCTOR_NODE_BYTES];
};

/* Begins as { 0 }. */
struct doctor_report {
    struct doctor_row *rows;
    size_t n, room;
};

/** Add a row. `advice` is kept if the state is not ok. Returns false if there is no memory for it. */
bool doctor_report_add(struct doctor_report *report, const char *node, const char *check,
                       enum doctor_state state, const char *value, const char *advice);
/**
 * Add a copy of the rows of `from`, each with `node` as its node. Returns false if there is no memory for
 * them.
 */
bool doctor_report_join(struct doctor_report *report, const char *node, const struct doctor_report *from);
void doctor_report_fini(struct doctor_report *report);

/** The worst state of all rows; DOCTOR_OK if there is none. */
enum doctor_state doctor_report_worst(const struct doctor_report *report);

/** The state's word: "ok", "warn" or "fail". */
const char *doctor_state_name(enum doctor_state state);

/**
 * Return the rows as a JSON array of {"check", "state", "value", "advice"}, and "node" where a row has one.
 * `advice` is null if the state is ok. The caller frees the text. NULL: no memory.
 */
char *doctor_report_json(const struct doctor_report *report);

/**
 * Read an array that doctor_report_json() wrote, which may come from another host, into the empty `report`.
 *   FSDP_ERR_FORMAT  it is none; the report is empty
 *   FSDP_ERR_NOMEM   likewise
 */
enum fsdp_status doctor_report_read(struct doctor_report *report, const char *text, size_t length,
                                    struct fsdp_err *err);

/**
 * Print one line per row, wrapped at 80 columns, with the row's advice below it. The last line counts the
 * rows of each state. For nodes after the first one, rows that are ok are left out, except those of checks
 * between nodes ("nodes.").
 */
void doctor_report_print(const struct doctor_report *report, FILE *out);

/**
 * Print the rows that are not ok, each as one line that begins with the name of the node. For an output that
 * other nodes write to as well.
 */
void doctor_report_print_trouble(const struct doctor_report *report, const char *node, FILE *out);

#endif

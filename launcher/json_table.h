/*
 * Prints JSON as a table: each object of a list is a row, and each column shows one of its members. Pure,
 * except for the printing.
 */
#ifndef LAUNCHER_JSON_TABLE_H
#define LAUNCHER_JSON_TABLE_H

#include <stdio.h>

#include "launcher/table.h"

struct cJSON;

/* How the value in a column is written. */
enum json_form {
    JSON_TEXT,
    JSON_NAME, /* text that may be cut at its end */
    JSON_PATH, /* text that may be cut at its beginning */
    JSON_COUNT,
    JSON_NUMBER, /* four significant digits */
    JSON_RATE,   /* "22k" */
    JSON_AGE,    /* "3m05s" */
    JSON_MEMORY, /* "25.5M", easy to compare in a column */
    JSON_SIZE,   /* "1.2 GiB" */
};

struct json_column {
    const char *title, *key;
    enum json_form form;
};

/** Writes the value of `row` that belongs in `column`, or "-" if it is absent or null. */
void json_cell(char out[TABLE_CELL_BYTES], const struct json_column *column, const struct cJSON *row);

/** Returns how the layout of a table treats a column of that form. */
enum table_shape json_shape(enum json_form form);

/** Prints the titles, and one line for each object of `rows`. Cells are cut only if `out` is a terminal. */
void json_table_print(const struct json_column *columns, int n, const struct cJSON *rows, FILE *out);

/** Prints a value as one line of JSON. Returns the exit status: 0, or FSDP_EXIT_IO. */
int json_print(const struct cJSON *value, FILE *out);

/** Flushes `out`. Returns the exit status: 0, or FSDP_EXIT_IO. */
int json_written(FILE *out);

#endif

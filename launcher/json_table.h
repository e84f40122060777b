/*
 * JSON for a person: each row of a table is an object of a list, each column one of its members. Pure, except
 * for what is printed.
 */
#ifndef LAUNCHER_JSON_TABLE_H
#define LAUNCHER_JSON_TABLE_H

#include <stdio.h>

#include "launcher/table.h"

struct cJSON;

/* How the value of a column is written. */
enum json_form {
    JSON_TEXT,
    JSON_NAME, /* may be cut at its end */
    JSON_PATH, /* may be cut at its beginning */
    JSON_COUNT,
    JSON_NUMBER, /* four digits */
    JSON_RATE,   /* "22k" */
    JSON_AGE,    /* "3m05s" */
    JSON_MEMORY, /* "25.5M", where many stand below each other */
    JSON_SIZE,   /* "1.2 GiB" */
};

struct json_column {
    const char *title, *key;
    enum json_form form;
};

/** Write the member of `row` that the column names; "-" if it is absent or null. */
void json_cell(char out[TABLE_CELL_BYTES], const struct json_column *column, const struct cJSON *row);

/** What a column of that form holds, for the layout. */
enum table_shape json_shape(enum json_form form);

/** Print the titles, and a line for each object of the list `rows`. Only a terminal has cells cut. */
void json_table_print(const struct json_column *columns, int n, const struct cJSON *rows, FILE *out);

/** Print a value as one line of JSON. Returns the exit status: 0, or that of an I/O error. */
int json_print(const struct cJSON *value, FILE *out);

/** Flush `out`. Returns the exit status: 0, or that of an I/O error. */
int json_written(FILE *out);

#endif

/*
 * JSON as tables for a person: each row is an object of a list, each column one of its members. Pure.
 */
#ifndef LAUNCHER_TABLE_H
#define LAUNCHER_TABLE_H

#include <stdio.h>

struct cJSON;

/* How the value of a column is written. */
enum table_form {
    TABLE_TEXT, /* at most 20 columns wide */
    TABLE_NAME, /* whole, as far as the cell has room */
    TABLE_COUNT,
    TABLE_NUMBER, /* four digits */
    TABLE_RATE,
    TABLE_AGE,
    TABLE_BYTES,
};

struct table_column {
    const char *title, *key;
    enum table_form form;
};

enum { TABLE_CELL_BYTES = 256, TABLE_MOST_COLUMNS = 12 };

/** Write the member of `row` that the column names into `out`; "-" if it is absent or null. */
void table_cell(char out[TABLE_CELL_BYTES], const struct table_column *column, const struct cJSON *row);

/** Print the titles, and a line for each object of the list `rows`. At most TABLE_MOST_COLUMNS columns. */
void table_print(FILE *out, const struct table_column *columns, int n, const struct cJSON *rows);

/** Print a value as one line of JSON. Returns the exit status: 0, or that of an I/O error. */
int table_print_json(const struct cJSON *value, FILE *out);

/** Flush `out`. Returns the exit status: 0, or that of an I/O error. */
int table_written(FILE *out);

#endif

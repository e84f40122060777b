/*
 * Prints tables for a terminal. A column is as wide as its widest cell, and the table is cut to the terminal.
 * Pure.
 *
 * A line never wraps. If a table is too wide, the columns that may shrink do so first, beginning with the
 * widest. An ellipsis shows where a cell was cut. If the table is still too wide, each line is cut at its
 * end.
 */
#ifndef LAUNCHER_TABLE_H
#define LAUNCHER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TABLE_CELL_BYTES = 512, TABLE_COLUMNS = 20, TABLE_LEAST = 8 };

/* How a table is shown. */
struct table_look {
    int columns; /* width of the terminal; 0: no limit */
    bool wide;   /* the user wants more columns, and nothing cut */
    bool ascii;  /* the terminal does not show UTF-8 */
};

/* What a column holds. */
enum table_shape {
    TABLE_NUMBER, /* aligned to the right */
    TABLE_WORD,   /* aligned to the left; never made narrower */
    TABLE_NAME,   /* aligned to the left; may be cut at its end */
    TABLE_PATH,   /* aligned to the left; may be cut at its beginning */
};

struct table {
    const char *titles[TABLE_COLUMNS];
    enum table_shape shapes[TABLE_COLUMNS];
    int n;
    size_t n_rows;
    bool untitled; /* the line of titles is left out */
    /* Writes the text of one cell. It is called twice for each cell. */
    void (*cell)(const void *arg, size_t row, int column, char out[TABLE_CELL_BYTES]);
    const void *arg;
};

void table_print(const struct table *table, const struct table_look *look, FILE *out);

/** Returns how many columns of a terminal `text` takes. A byte that is not UTF-8 takes one. */
int table_width(const char *text);

/**
 * Copies text that another program chose into a cell. Control characters, which could move the cursor, and
 * bytes that are no UTF-8 become "?". A text that is too long is cut between two characters.
 */
void table_text(char out[TABLE_CELL_BYTES], const char *text);

/**
 * Cuts a cell to at most `columns`, and marks the cut by an ellipsis. A TABLE_PATH is cut at its beginning,
 * any other cell at its end.
 */
void table_cut(char *text, int columns, enum table_shape shape, bool ascii);

#endif

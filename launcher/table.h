/*
 * Tables for a terminal: columns as wide as their cells, cut to the width of the terminal. Pure.
 *
 * A line never wraps. If a table is too wide, the columns that may shrink do so first, the widest first. An
 * ellipsis shows where a cell was cut. What is still too wide is cut at its end.
 */
#ifndef LAUNCHER_TABLE_H
#define LAUNCHER_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum { TABLE_CELL_BYTES = 512, TABLE_COLUMNS = 20, TABLE_LEAST = 8 };

/* How a table is shown. */
struct table_look {
    int columns; /* of the terminal; 0: no bound */
    bool wide;   /* more columns, and nothing is cut */
    bool ascii;  /* the terminal shows no UTF-8 */
};

/* What a column holds. */
enum table_shape {
    TABLE_NUMBER, /* stands to the right */
    TABLE_WORD,   /* stands to the left */
    TABLE_NAME,   /* a word that may be cut at its end */
    TABLE_PATH,   /* a word that may be cut at its beginning */
};

struct table {
    const char *titles[TABLE_COLUMNS];
    enum table_shape shapes[TABLE_COLUMNS];
    int n;
    size_t n_rows;
    bool untitled; /* no line of titles */
    /* Writes a cell. It is called twice for each. */
    void (*cell)(const void *arg, size_t row, int column, char out[TABLE_CELL_BYTES]);
    const void *arg;
};

void table_print(const struct table *table, const struct table_look *look, FILE *out);

/** Returns how many columns of a terminal a text takes. A byte that is not UTF-8 takes one. */
int table_width(const char *text);

/**
 * Copy a text that others chose into a cell: control characters, which could move the cursor, and what is no
 * UTF-8 become "?". A text that is too long is cut between characters.
 */
void table_text(char out[TABLE_CELL_BYTES], const char *text);

/** Cut a cell to at most `columns`, with an ellipsis: at its beginning for a TABLE_PATH, else at its end. */
void table_cut(char *text, int columns, enum table_shape shape, bool ascii);

#endif

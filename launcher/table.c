#include "launcher/table.h"

#include <string.h>

#include "shard_runtime/core/utf8.h"

enum { LINE_BYTES = TABLE_COLUMNS * (TABLE_CELL_BYTES + 1) };

/*
 * Returns the length in bytes of the character at `text`, or 1 for a byte that is no UTF-8. `columns`
 * receives its width.
 */
static size_t step(const char *text, int *columns)
{
    const size_t length = utf8_length(text, strlen(text));

    *columns = length == 0 ? 1 : utf8_columns(text, length);
    return length == 0 ? 1 : length;
}

int table_width(const char *text)
{
    int width = 0, columns;

    for (; *text != '\0'; width += columns)
        text += step(text, &columns);
    return width;
}

void table_text(char out[TABLE_CELL_BYTES], const char *text)
{
    size_t n = 0;

    while (*text != '\0') {
        const size_t length = utf8_length(text, strlen(text));

        if (n + (length == 0 ? 1 : length) >= TABLE_CELL_BYTES)
            break;
        if (length == 0 || (unsigned char)*text < 0x20 || *text == 0x7f ||
            (length == 2 && (unsigned char)text[0] == 0xc2 && (unsigned char)text[1] < 0xa0)) {
            out[n++] = '?'; /* the last condition above: C1 control characters */
        } else {
            memcpy(out + n, text, length);
            n += length;
        }
        text += length == 0 ? 1 : length;
    }
    out[n] = '\0';
}

/* Returns how many bytes at the beginning of `text` take at most `columns` columns. */
static size_t bytes_within(const char *text, int columns)
{
    size_t n = 0, length;
    int taken = 0, of;

    while (text[n] != '\0') {
        length = step(text + n, &of);
        taken += of;
        if (taken > columns)
            break;
        n += length;
    }
    return n;
}

void table_cut(char *text, int columns, enum table_shape shape, bool ascii)
{
    const char *ellipsis = ascii ? "~" : "\xe2\x80\xa6";
    char kept[LINE_BYTES];
    const char *rest = text;
    int width = table_width(text), of;

    if (width <= columns)
        return;
    if (columns <= 0) {
        text[0] = '\0';
    } else if (shape == TABLE_PATH) {
        while (width > columns - 1) {
            rest += step(rest, &of);
            width -= of;
        }
        snprintf(kept, sizeof kept, "%s", rest);
        strcpy(text, ellipsis); /* fits: the removed characters took at least as many bytes (see step()) */
        strcat(text, kept);
    } else {
        /* The ellipsis fits: TABLE_CELL_BYTES is far larger than what a line shows. */
        strcpy(text + bytes_within(text, columns - 1), ellipsis);
    }
}

static void pad(char *line, int n)
{
    size_t end = strlen(line);

    while (n-- > 0 && end + 1 < LINE_BYTES)
        line[end++] = ' ';
    line[end] = '\0';
}

/* Prints a line, with one space between columns and none at its end. */
static void print_line(const struct table *table, const struct table_look *look, const int *widths,
                       char cells[][TABLE_CELL_BYTES], FILE *out)
{
    char line[LINE_BYTES] = "";

    for (int i = 0; i < table->n; i++) {
        const int left = widths[i] - table_width(cells[i]);

        if (i > 0)
            pad(line, 1);
        if (table->shapes[i] == TABLE_NUMBER)
            pad(line, left);
        strncat(line, cells[i], LINE_BYTES - strlen(line) - 1);
        if (table->shapes[i] != TABLE_NUMBER && i < table->n - 1)
            pad(line, left);
    }
    if (look->columns > 0 && !look->wide)
        line[bytes_within(line, look->columns)] = '\0';
    fprintf(out, "%s\n", line);
}

/*
 * Makes the columns that may shrink narrower, until the table is at most `most` columns of the terminal wide.
 */
static void shrink(const struct table *table, int *widths, int most)
{
    int total = table->n - 1;

    for (int i = 0; i < table->n; i++)
        total += widths[i];
    while (total > most) {
        int widest = -1;

        for (int i = 0; i < table->n; i++)
            if (table->shapes[i] >= TABLE_NAME && widths[i] > TABLE_LEAST &&
                (widest < 0 || widths[i] > widths[widest]))
                widest = i;
        if (widest < 0)
            return;
        widths[widest]--;
        total--;
    }
}

void table_print(const struct table *table, const struct table_look *look, FILE *out)
{
    char cells[TABLE_COLUMNS][TABLE_CELL_BYTES];
    int widths[TABLE_COLUMNS];

    for (int i = 0; i < table->n; i++) {
        widths[i] = table->untitled ? 0 : table_width(table->titles[i]);
        for (size_t row = 0; row < table->n_rows; row++) {
            table->cell(table->arg, row, i, cells[i]);
            if (table_width(cells[i]) > widths[i])
                widths[i] = table_width(cells[i]);
        }
    }
    if (look->columns > 0 && !look->wide)
        shrink(table, widths, look->columns);
    for (int i = 0; i < table->n; i++)
        snprintf(cells[i], sizeof cells[i], "%s", table->titles[i]);
    if (!table->untitled)
        print_line(table, look, widths, cells, out);
    for (size_t row = 0; row < table->n_rows; row++) {
        for (int i = 0; i < table->n; i++) {
            table->cell(table->arg, row, i, cells[i]);
            table_cut(cells[i], widths[i], table->shapes[i], look->ascii);
        }
        print_line(table, look, widths, cells, out);
    }
}

#include "launcher/table.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "shard_runtime/core/exit_status.h"

enum { NAME_COLUMNS = 20 };

static void write_rate(char out[TABLE_CELL_BYTES], double rate)
{
    if (rate < 999.5)
        snprintf(out, TABLE_CELL_BYTES, "%.0f", rate);
    else if (rate < 999.5e3)
        snprintf(out, TABLE_CELL_BYTES, "%.3gk", rate / 1e3);
    else
        snprintf(out, TABLE_CELL_BYTES, "%.3gM", rate / 1e6);
}

/* The two largest units: "12s", "3m05s", "2h11m", "4d03h". */
static void write_age(char out[TABLE_CELL_BYTES], double age_s)
{
    const uint64_t s = age_s >= 0 && age_s < 1e12 ? (uint64_t)age_s : 0;

    if (s < 60)
        snprintf(out, TABLE_CELL_BYTES, "%" PRIu64 "s", s);
    else if (s < 3600)
        snprintf(out, TABLE_CELL_BYTES, "%" PRIu64 "m%02" PRIu64 "s", s / 60, s % 60);
    else if (s < 86400)
        snprintf(out, TABLE_CELL_BYTES, "%" PRIu64 "h%02" PRIu64 "m", s / 3600, s / 60 % 60);
    else
        snprintf(out, TABLE_CELL_BYTES, "%" PRIu64 "d%02" PRIu64 "h", s / 86400, s / 3600 % 24);
}

/* The largest unit in which the number is at least 1: "512 B", "1.21 GiB". */
static void write_bytes(char out[TABLE_CELL_BYTES], double bytes)
{
    static const char *const units[] = { "B", "KiB", "MiB", "GiB", "TiB" };
    size_t unit = 0;

    while (bytes >= 1024 && unit + 1 < sizeof units / sizeof *units) {
        bytes /= 1024;
        unit++;
    }
    snprintf(out, TABLE_CELL_BYTES,
             unit == 0       ? "%.0f %s"
             : bytes < 99.95 ? "%.1f %s"
                             : "%.0f %s",
             bytes, units[unit]);
}

/* A control character in a name could move the cursor of who lists it. */
static void write_text(char out[TABLE_CELL_BYTES], const char *text, size_t columns)
{
    snprintf(out, TABLE_CELL_BYTES, "%s", text);
    for (char *c = out; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = '?';
    if (strlen(out) > columns) {
        size_t n = columns - 1;

        while (n > 0 && ((unsigned char)out[n] & 0xc0) == 0x80) /* within a character of UTF-8 */
            n--;
        strcpy(out + n, "~");
    }
}

static bool is_text(const struct table_column *column)
{
    return column->form == TABLE_TEXT || column->form == TABLE_NAME;
}

void table_cell(char out[TABLE_CELL_BYTES], const struct table_column *column, const cJSON *row)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(row, column->key);

    snprintf(out, TABLE_CELL_BYTES, "-");
    if (is_text(column) && cJSON_IsString(value))
        write_text(out, value->valuestring,
                   column->form == TABLE_TEXT ? (size_t)NAME_COLUMNS : TABLE_CELL_BYTES - 1);
    if (is_text(column) || !cJSON_IsNumber(value))
        return;
    if (column->form == TABLE_COUNT)
        snprintf(out, TABLE_CELL_BYTES, "%.0f", value->valuedouble);
    else if (column->form == TABLE_NUMBER)
        snprintf(out, TABLE_CELL_BYTES, "%.4g", value->valuedouble);
    else if (column->form == TABLE_RATE)
        write_rate(out, value->valuedouble);
    else if (column->form == TABLE_BYTES)
        write_bytes(out, value->valuedouble);
    else
        write_age(out, value->valuedouble);
}

/* Texts to the left, numbers to the right, two spaces between columns, none after the last text. */
static void print_line(FILE *out, const struct table_column *columns, int n, char cells[][TABLE_CELL_BYTES],
                       const int *widths)
{
    for (int i = 0; i < n; i++) {
        const bool left = is_text(&columns[i]);

        fprintf(out, "%s%*s%s", i == 0 ? "" : " ", left ? -(i == n - 1 ? 0 : widths[i]) : widths[i], cells[i],
                i == n - 1 ? "\n" : "");
    }
}

void table_print(FILE *out, const struct table_column *columns, int n, const cJSON *rows)
{
    char cells[TABLE_MOST_COLUMNS][TABLE_CELL_BYTES];
    int widths[TABLE_MOST_COLUMNS];
    const cJSON *row;

    for (int i = 0; i < n; i++) {
        snprintf(cells[i], TABLE_CELL_BYTES, "%s", columns[i].title);
        widths[i] = (int)strlen(cells[i]);
        cJSON_ArrayForEach(row, rows)
        {
            char cell[TABLE_CELL_BYTES];

            table_cell(cell, &columns[i], row);
            if ((int)strlen(cell) > widths[i])
                widths[i] = (int)strlen(cell);
        }
    }
    print_line(out, columns, n, cells, widths);
    cJSON_ArrayForEach(row, rows)
    {
        for (int i = 0; i < n; i++)
            table_cell(cells[i], &columns[i], row);
        print_line(out, columns, n, cells, widths);
    }
}

int table_written(FILE *out)
{
    return fflush(out) == 0 && !ferror(out) ? 0 : FSDP_EXIT_IO;
}

int table_print_json(const cJSON *value, FILE *out)
{
    char *text = cJSON_PrintUnformatted(value);

    if (text == NULL)
        return FSDP_EXIT_IO;
    fprintf(out, "%s\n", text);
    cJSON_free(text);
    return table_written(out);
}

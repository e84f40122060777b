#include "launcher/json_table.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>

#include "launcher/terminal.h"
#include "shard_runtime/core/exit_status.h"

/* Writes three digits and a decimal unit: "999", "22k", "1.5M". */
static void write_rate(char out[TABLE_CELL_BYTES], double rate)
{
    if (rate < 999.5)
        snprintf(out, TABLE_CELL_BYTES, "%.0f", rate);
    else if (rate < 999.5e3)
        snprintf(out, TABLE_CELL_BYTES, "%.3gk", rate / 1e3);
    else
        snprintf(out, TABLE_CELL_BYTES, "%.3gM", rate / 1e6);
}

/* Writes a size with a binary unit, short enough for a column: "12M", "1.5G". */
static void write_memory(char out[TABLE_CELL_BYTES], double bytes)
{
    static const char units[] = "KMGTP";
    int unit = 0;

    for (bytes /= 1024; bytes >= 999.5 && units[unit + 1] != '\0'; unit++)
        bytes /= 1024;
    snprintf(out, TABLE_CELL_BYTES, bytes < 99.95 ? "%.3g%c" : "%.0f%c", bytes, units[unit]);
}

/* Writes a size in the largest binary unit in which it is at least 1: "512 B", "1.2 GiB". */
static void write_size(char out[TABLE_CELL_BYTES], double bytes)
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

/* Writes an age in its two largest units: "12s", "3m05s", "2h11m", "4d03h". */
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

static void write_number(char out[TABLE_CELL_BYTES], enum json_form form, double value)
{
    if (form == JSON_COUNT)
        snprintf(out, TABLE_CELL_BYTES, "%.0f", value);
    else if (form == JSON_NUMBER)
        snprintf(out, TABLE_CELL_BYTES, "%.4g", value);
    else if (form == JSON_RATE)
        write_rate(out, value);
    else if (form == JSON_AGE)
        write_age(out, value);
    else if (form == JSON_MEMORY)
        write_memory(out, value);
    else
        write_size(out, value);
}

void json_cell(char out[TABLE_CELL_BYTES], const struct json_column *column, const cJSON *row)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(row, column->key);

    snprintf(out, TABLE_CELL_BYTES, "-");
    if (column->form <= JSON_PATH && cJSON_IsString(value))
        table_text(out, value->valuestring);
    else if (column->form > JSON_PATH && cJSON_IsNumber(value))
        write_number(out, column->form, value->valuedouble);
}

enum table_shape json_shape(enum json_form form)
{
    return form == JSON_NAME   ? TABLE_NAME
           : form == JSON_PATH ? TABLE_PATH
           : form == JSON_TEXT ? TABLE_WORD
                               : TABLE_NUMBER;
}

struct rows {
    const struct json_column *columns;
    const cJSON **of;
};

static void put_cell(const void *arg, size_t row, int column, char out[TABLE_CELL_BYTES])
{
    const struct rows *rows = arg;

    json_cell(out, &rows->columns[column], rows->of[row]);
}

void json_table_print(const struct json_column *columns, int n, const cJSON *list, FILE *out)
{
    const cJSON **of = calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof(const cJSON *)), *object;
    const struct rows rows = { columns, of };
    struct table table = { .cell = put_cell, .arg = &rows };
    struct table_look look;

    for (int i = 0; i < n; i++) {
        table.titles[table.n] = columns[i].title;
        table.shapes[table.n++] = json_shape(columns[i].form);
    }
    cJSON_ArrayForEach(object, list)
    {
        if (of != NULL)
            of[table.n_rows++] = object;
    }
    look = terminal_look(fileno(out));
    table_print(&table, &look, out);
    free(of);
}

int json_written(FILE *out)
{
    return fflush(out) == 0 && !ferror(out) ? 0 : FSDP_EXIT_IO;
}

int json_print(const cJSON *value, FILE *out)
{
    char *text = cJSON_PrintUnformatted(value);

    if (text == NULL)
        return FSDP_EXIT_IO;
    fprintf(out, "%s\n", text);
    cJSON_free(text);
    return json_written(out);
}

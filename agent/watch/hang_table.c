#include "agent/watch/hang_table.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/json.h"
#include "shard_runtime/core/utf8.h"

enum { ROWS_SHOWN = 8, DETAILS_SHOWN = 8 };

/* Returns a member of a report, which may come from any process; NULL: it has none */

static const cJSON *member(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

static const char *text_of(const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);

    return text != NULL ? text : "";
}

static double number_of(const cJSON *object, const char *key)
{
    const cJSON *item = member(object, key);

    return cJSON_IsNumber(item) ? item->valuedouble : 0;
}

static int count_of(const cJSON *object, const char *key)
{
    const double number = number_of(object, key);

    return number > 0 && number < 1 << 20 ? (int)number : 0;
}

static cJSON *parse(const char *json, size_t length)
{
    return length <= HANG_REPORT_BYTES ? json_parse_object(json, length) : NULL;
}

/*
 * Adds the report's sums to the table. Returns the report's rows, which the caller owns; NULL: there are
 * none.
 */
static cJSON *take_sums(struct hang_table *table, cJSON *report)
{
    cJSON *rows = cJSON_DetachItemFromObjectCaseSensitive(report, "rows");

    table->n_waiting += count_of(report, "waiting");
    table->n_omitted += count_of(report, "omitted_rows");
    if (table->waits_in[0] == '\0')
        snprintf(table->waits_in, sizeof table->waits_in, "%s", text_of(member(report, "waits_in")));
    if (cJSON_IsArray(rows))
        return rows;
    cJSON_Delete(rows);
    return NULL;
}

static void move_rows(cJSON *to, cJSON *from)
{
    while (from != NULL && from->child != NULL)
        cJSON_AddItemToArray(to, cJSON_DetachItemViaPointer(from, from->child));
    cJSON_Delete(from);
}

void hang_table_add(struct hang_table *table, const char *json, size_t length)
{
    cJSON *report = parse(json, length);

    if (table->rows == NULL)
        table->rows = cJSON_CreateArray();
    if (report != NULL && table->rows != NULL)
        move_rows(table->rows, take_sums(table, report));
    cJSON_Delete(report);
}

void hang_table_clear(struct hang_table *table)
{
    cJSON_Delete(table->rows);
    *table = (struct hang_table){ 0 };
}

/* Ranks of several rows */

struct range {
    int first, last;
};

struct ranges {
    struct range *of;
    size_t n, capacity;
    bool failed;
};

static void add_range(struct ranges *ranges, int first, int last)
{
    if (ranges->n == ranges->capacity) {
        const size_t capacity = ranges->capacity == 0 ? 64 : 2 * ranges->capacity;
        struct range *of = realloc(ranges->of, capacity * sizeof *of);

        ranges->failed |= of == NULL;
        if (of == NULL)
            return;
        ranges->of = of;
        ranges->capacity = capacity;
    }
    ranges->of[ranges->n++] = (struct range){ first, last };
}

/* Reads ranges such as "0-2,4". Parts of another form are left out. */
static void add_ranges(struct ranges *ranges, const char *text)
{
    for (char *end; *text >= '0' && *text <= '9'; text = *end == ',' ? end + 1 : end) {
        const long first = strtol(text, &end, 10);
        const long last = *end == '-' ? strtol(end + 1, &end, 10) : first;

        if (first <= last && last < INT_MAX)
            add_range(ranges, (int)first, (int)last);
    }
}

static int in_order(const void *a, const void *b)
{
    const struct range *first = a, *second = b;

    return (first->first > second->first) - (first->first < second->first);
}

/* "0-2,4", or "0, ..." if that does not fit */
static void ranges_text(struct ranges *ranges, char *out, size_t size)
{
    struct json_text text = json_text_fixed(out, size);

    out[0] = '\0';
    if (ranges->n > 0)
        qsort(ranges->of, ranges->n, sizeof *ranges->of, in_order);
    for (size_t i = 0; i < ranges->n;) {
        struct range whole = ranges->of[i];

        for (; i < ranges->n && ranges->of[i].first <= whole.last + 1; i++)
            if (ranges->of[i].last > whole.last)
                whole.last = ranges->of[i].last;
        json_add(&text, whole.last > whole.first ? "%s%d-%d" : "%s%d", out[0] != '\0' ? "," : "", whole.first,
                 whole.last);
    }
    if ((text.failed || ranges->failed) && ranges->n > 0)
        snprintf(out, size, "%d, ...", ranges->of[0].first);
}

/* Lines */

struct print {
    char *at; /* in a buffer of HANG_PRINT_BYTES */
    int n_lines;
};

/* Appends a text of another node, without control bytes: a terminal would act on them. */
static void add_text(struct print *print, const char *text)
{
    const size_t length = strlen(text) < HANG_LINE_BYTES ? strlen(text) : utf8_cut(text, HANG_LINE_BYTES - 1);

    if (print->n_lines++ >= HANG_LINES)
        return;
    for (size_t i = 0; i < length; i++)
        print->at[i] = (unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i];
    print->at += length;
    *print->at++ = '\n';
    *print->at = '\0';
}

static __attribute__((format(printf, 2, 3))) void add_line(struct print *print, const char *format, ...)
{
    char line[1024];
    va_list args;

    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    add_text(print, line);
}

static void print_heading(struct print *print, const struct hang_table *table, const cJSON *report)
{
    const int n = table->n_waiting;
    char waiting[64] = "", in[192] = "";

    if (table->waits_in[0] != '\0')
        snprintf(in, sizeof in, " in %s", table->waits_in);
    if (n > 0)
        snprintf(waiting, sizeof waiting, "; %d rank%s wait%s", n, n == 1 ? "" : "s", n == 1 ? "s" : "");
    add_line(print, "fsdprun: rank %.12s made no progress for %.1f s%s%s", text_of(member(report, "ranks")),
             number_of(report, "silent_s"), waiting, n > 0 ? in : "");
    add_line(print, "  %-9s %-40s %6s %9s  %-5s  %s", "ranks", "where", "step", "silent", "state",
             "waits in");
}

static const char *column(const cJSON *row, int i)
{
    return text_of(cJSON_GetArrayItem(member(row, "shown"), i));
}

static bool is_alike(const cJSON *a, const cJSON *b)
{
    for (int i = 0; i < HANG_COLUMNS; i++)
        if (strcmp(column(a, i), column(b, i)) != 0)
            return false;
    return true;
}

/*
 * Print rows[at], and in the same line all later rows that show the same; marks them as printed. The first
 * row is the culprit's, and stands alone.
 */
static void print_row(struct print *print, const cJSON **rows, size_t n_rows, size_t at)
{
    const cJSON *row = rows[at];
    double silent_s = 0;
    struct ranges ranges = { 0 };
    char ranks[64];

    for (size_t i = at; i < n_rows && (i == at || at > 0); i++) {
        if (rows[i] == NULL || !is_alike(row, rows[i]))
            continue;
        add_ranges(&ranges, text_of(member(rows[i], "ranks")));
        if (number_of(rows[i], "silent_s") > silent_s)
            silent_s = number_of(rows[i], "silent_s");
        rows[i] = NULL;
    }
    ranges_text(&ranges, ranks, sizeof ranks);
    free(ranges.of);
    add_line(print, "  %-9s %-40s %6.20s %7.1f s  %-5.5s  %s", ranks, column(row, 0), column(row, 1),
             silent_s, column(row, 2), column(row, 3));
}

static void print_more(struct print *print, int n_left, int n_omitted)
{
    char omitted[64] = "";

    if (n_omitted > 0)
        snprintf(omitted, sizeof omitted, "%s%d were left out",
                 n_left > 0 ? "; " : "  more rows: ", n_omitted);
    if (n_left > 0)
        add_line(print, "  and %d more rows in errors.json%s", n_left, omitted);
    else if (n_omitted > 0)
        add_text(print, omitted);
}

static void print_rows(struct print *print, const cJSON *list, int n_omitted)
{
    const size_t n_rows = (size_t)cJSON_GetArraySize(list);
    const cJSON **rows = calloc(n_rows + 1, sizeof *rows), *row;
    int n_shown = 0, n_left = 0;
    size_t n = 0;

    if (rows == NULL)
        return;
    cJSON_ArrayForEach(row, list)
    {
        rows[n++] = row;
    }
    for (size_t i = 0; i < n; i++) {
        if (rows[i] == NULL)
            continue;
        if (n_shown++ < ROWS_SHOWN)
            print_row(print, rows, n, i);
        else
            n_left++;
    }
    free(rows);
    print_more(print, n_left, n_omitted);
}

static void print_details(struct print *print, const cJSON *details)
{
    const cJSON *line;
    int n = 0;

    cJSON_ArrayForEach(line, details)
    {
        if (n++ < DETAILS_SHOWN)
            add_text(print, text_of(line));
    }
}

/* The end */

static void drop_print(cJSON *report, cJSON *rows)
{
    cJSON *row;

    cJSON_DeleteItemFromObjectCaseSensitive(report, "details");
    cJSON_DeleteItemFromObjectCaseSensitive(report, "waits_in");
    cJSON_ArrayForEach(row, rows)
    {
        cJSON_DeleteItemFromObjectCaseSensitive(row, "shown");
    }
}

static void set_count(cJSON *report, const char *key, int count)
{
    cJSON_DeleteItemFromObjectCaseSensitive(report, key);
    cJSON_AddNumberToObject(report, key, count);
}

char *hang_table_take(struct hang_table *table, const char *json, size_t length, int n_missing,
                      char lines[HANG_PRINT_BYTES])
{
    struct print print = { .at = lines };
    cJSON *report = parse(json, length), *rows = report == NULL ? NULL : take_sums(table, report);
    char *text = NULL;

    lines[0] = '\0';
    if (rows != NULL) {
        move_rows(rows, table->rows);
        table->rows = NULL;
        print_heading(&print, table, report);
        print_rows(&print, rows, table->n_omitted);
        if (n_missing > 0)
            add_line(&print, "  %d node%s did not say in time what %s ranks do", n_missing,
                     n_missing == 1 ? "" : "s", n_missing == 1 ? "its" : "their");
        print_details(&print, member(report, "details"));
        drop_print(report, rows);
        set_count(report, "waiting", table->n_waiting);
        set_count(report, "omitted_rows", table->n_omitted);
        set_count(report, "missing_nodes", n_missing);
        cJSON_AddItemToObject(report, "rows", rows);
        text = cJSON_PrintUnformatted(report);
    }
    if (text == NULL)
        lines[0] = '\0';
    cJSON_Delete(report);
    hang_table_clear(table);
    return text;
}

#include "agent/doctor/report.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/json.h"

enum { COLUMNS = 80, CHECK_COLUMNS = 19, VALUE_COLUMN = 2 + 4 + 2 + CHECK_COLUMNS + 1, ADVICE_COLUMN = 8 };

static const char *const names[] = {
    [DOCTOR_NOTHING] = "", [DOCTOR_OK] = "ok", [DOCTOR_WARN] = "warn", [DOCTOR_FAIL] = "fail"
};

const char *doctor_state_name(enum doctor_state state)
{
    return names[state];
}

bool doctor_report_add(struct doctor_report *report, const char *node, const char *check,
                       enum doctor_state state, const char *value, const char *advice)
{
    struct doctor_row *row;

    if (report->n == report->room) {
        const size_t room = report->room == 0 ? 64 : 2 * report->room;
        struct doctor_row *rows = realloc(report->rows, room * sizeof *rows);

        if (rows == NULL)
            return false;
        report->rows = rows;
        report->room = room;
    }
    row = &report->rows[report->n++];
    row->state = state;
    snprintf(row->node, sizeof row->node, "%s", node);
    snprintf(row->check, sizeof row->check, "%s", check);
    snprintf(row->value, sizeof row->value, "%s", value);
    snprintf(row->advice, sizeof row->advice, "%s", state == DOCTOR_OK || advice == NULL ? "" : advice);
    return true;
}

bool doctor_report_join(struct doctor_report *report, const char *node, const struct doctor_report *from)
{
    for (size_t i = 0; i < from->n; i++) {
        const struct doctor_row *row = &from->rows[i];

        if (!doctor_report_add(report, node, row->check, row->state, row->value, row->advice))
            return false;
    }
    return true;
}

void doctor_report_fini(struct doctor_report *report)
{
    free(report->rows);
    *report = (struct doctor_report){ 0 };
}

enum doctor_state doctor_report_worst(const struct doctor_report *report)
{
    enum doctor_state worst = DOCTOR_OK;

    for (size_t i = 0; i < report->n; i++)
        if (report->rows[i].state > worst)
            worst = report->rows[i].state;
    return worst;
}

char *doctor_report_json(const struct doctor_report *report)
{
    struct json_text text = { 0 };

    json_open(&text, NULL, '[');
    for (size_t i = 0; i < report->n; i++) {
        const struct doctor_row *row = &report->rows[i];

        json_open(&text, NULL, '{');
        json_field_string(&text, "check", row->check);
        json_field_string(&text, "state", doctor_state_name(row->state));
        json_field_string(&text, "value", row->value);
        json_field_string(&text, "advice", row->advice[0] != '\0' ? row->advice : NULL);
        if (row->node[0] != '\0')
            json_field_string(&text, "node", row->node);
        json_close(&text, '}');
    }
    json_close(&text, ']');
    if (!text.failed)
        return text.bytes;
    json_text_free(&text);
    return NULL;
}

/* The member's text; NULL: it is none. */
static const char *text_of_member(const cJSON *object, const char *key)
{
    return cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(object, key));
}

static enum fsdp_status read_row(struct doctor_report *report, const cJSON *object, struct fsdp_err *err)
{
    const char *check = text_of_member(object, "check"), *value = text_of_member(object, "value"),
               *state = text_of_member(object, "state"), *advice = text_of_member(object, "advice"),
               *node = text_of_member(object, "node");
    enum doctor_state found = DOCTOR_NOTHING;

    for (enum doctor_state i = DOCTOR_OK; state != NULL && i <= DOCTOR_FAIL; i++)
        if (strcmp(names[i], state) == 0)
            found = i;
    if (check == NULL || value == NULL || found == DOCTOR_NOTHING || report->n >= DOCTOR_MOST_ROWS)
        return fsdp_fail(err, FSDP_ERR_FORMAT, "row %zu is none of a report", report->n);
    return doctor_report_add(report, node != NULL ? node : "", check, found, value, advice)
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for a report");
}

enum fsdp_status doctor_report_read(struct doctor_report *report, const char *text, size_t length,
                                    struct fsdp_err *err)
{
    cJSON *array = cJSON_ParseWithLength(text, length);
    const cJSON *object;
    enum fsdp_status status =
        cJSON_IsArray(array) ? FSDP_OK : fsdp_fail(err, FSDP_ERR_FORMAT, "a report is a JSON array");

    cJSON_ArrayForEach(object, array)
    {
        if (status == FSDP_OK)
            status = read_row(report, object, err);
    }
    cJSON_Delete(array);
    if (status != FSDP_OK)
        doctor_report_fini(report);
    return status;
}

/* Control characters, which another host or a file name may bring, are shown as '?'. */
static void put_text(FILE *out, const char *text, int length)
{
    for (int i = 0; i < length; i++)
        fputc((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i], out);
}

/* Print text from `column` on, broken at spaces before column 80. */
static void put_wrapped(FILE *out, const char *text, int column)
{
    int at = column;

    while (*text != '\0') {
        const int length = (int)strcspn(text, " ");

        if (at > column && at + 1 + length > COLUMNS) {
            fprintf(out, "\n%*s", column, "");
            at = column;
        } else if (at > column) {
            fputc(' ', out);
            at++;
        }
        put_text(out, text, length);
        at += length;
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

void doctor_report_print(const struct doctor_report *report, FILE *out)
{
    size_t counts[DOCTOR_FAIL + 1] = { 0 };
    const char *node = "";

    for (size_t i = 0; i < report->n; i++) {
        const struct doctor_row *row = &report->rows[i];

        counts[row->state]++;
        if (row->state == DOCTOR_OK && strcmp(row->node, report->rows[0].node) != 0 &&
            strncmp(row->check, "nodes.", 6) != 0)
            continue;
        if (strcmp(row->node, node) != 0)
            fprintf(out, "%s:\n", row->node);
        node = row->node;
        fprintf(out, "  %-4s  %-*s ", doctor_state_name(row->state), CHECK_COLUMNS, row->check);
        put_wrapped(out, row->value, VALUE_COLUMN);
        if (row->advice[0] != '\0') {
            fprintf(out, "%*s-> ", ADVICE_COLUMN, "");
            put_wrapped(out, row->advice, ADVICE_COLUMN + 3);
        }
    }
    fprintf(out, "%zu ok, %zu warn, %zu fail\n", counts[DOCTOR_OK], counts[DOCTOR_WARN], counts[DOCTOR_FAIL]);
}

void doctor_report_print_trouble(const struct doctor_report *report, const char *node, FILE *out)
{
    for (size_t i = 0; i < report->n; i++) {
        const struct doctor_row *row = &report->rows[i];

        if (row->state == DOCTOR_OK)
            continue;
        fprintf(out, "fsdprun doctor: %s: %s %s: ", node, doctor_state_name(row->state), row->check);
        put_text(out, row->value, (int)strlen(row->value));
        fputs(" -> ", out);
        put_text(out, row->advice, (int)strlen(row->advice));
        fputc('\n', out);
    }
}

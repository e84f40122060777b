#include "shard_runtime/cuda/profile_table.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"

enum { COLUMN = 64 }; /* compares names */

int profile_table_row(struct profile_table *table, int parent, const char *name, enum profile_unit unit,
                      const char *way)
{
    struct profile_row *row;

    way = way != NULL ? way : "";
    for (int i = 0; i < table->n_rows; i++) {
        row = &table->rows[i];
        if (row->parent == parent && strncmp(row->name, name, PROFILE_NAME_BYTES - 1) == 0 &&
            strncmp(row->way, way, PROFILE_WAY_BYTES - 1) == 0)
            return i;
    }
    if (!alloc_room(&table->rows, &table->room, (size_t)table->n_rows, sizeof *table->rows))
        return PROFILE_NO_ROW;
    row = &table->rows[table->n_rows];
    *row = (struct profile_row){ .parent = parent, .unit = unit };
    snprintf(row->name, sizeof row->name, "%s", name);
    snprintf(row->way, sizeof row->way, "%s", way);
    return table->n_rows++;
}

void profile_table_add(struct profile_table *table, int row, double ms, double amount)
{
    if (row == PROFILE_NO_ROW)
        return;
    table->rows[row].calls++;
    table->rows[row].ms += ms;
    table->rows[row].amount += amount;
}

void profile_table_clear(struct profile_table *table)
{
    for (int i = 0; i < table->n_rows; i++) {
        table->rows[i].calls = 0;
        table->rows[i].ms = table->rows[i].amount = 0;
    }
    table->n_steps = 0;
    table->steps_ms = 0;
}

void profile_table_fini(struct profile_table *table)
{
    free(table->rows);
    *table = (struct profile_table){ 0 };
}

static double share_of(const struct profile_table *table, double ms)
{
    return table->steps_ms > 0 ? 100 * ms / table->steps_ms : 0;
}

static void print_row(const struct profile_table *table, const struct profile_head *head,
                      const struct profile_row *row, FILE *out)
{
    const double per_s = row->ms > 0 ? row->amount / (row->ms * 1e-3) : 0;
    char amount[32] = "-", rate[32] = "-", of_peak[32] = "-";

    if (row->unit == PROFILE_BYTES) {
        snprintf(amount, sizeof amount, "%.6f GB", row->amount / 1e9);
        snprintf(rate, sizeof rate, "%.1f GB/s", per_s / 1e9);
    }
    if (row->unit == PROFILE_FLOPS) {
        snprintf(amount, sizeof amount, "%.6f TFLOP", row->amount / 1e12);
        snprintf(rate, sizeof rate, "%.1f TFLOP/s", per_s / 1e12);
    }
    if (row->unit == PROFILE_BYTES && head->peak_gb_s > 0)
        snprintf(of_peak, sizeof of_peak, "%.1f %%", 100 * per_s / 1e9 / head->peak_gb_s);
    fprintf(out, "%s%-*s %8llu %12.3f %19s %15s %8s %7.2f %%%s%s\n", row->parent >= 0 ? "  " : "",
            row->parent >= 0 ? COLUMN - 2 : COLUMN, row->name, (unsigned long long)row->calls, row->ms,
            amount, rate, of_peak, share_of(table, row->ms), row->way[0] != '\0' ? "  " : "", row->way);
}

/* Print the rows of one parent that were called, longest first. */
static void print_rows(const struct profile_table *table, const struct profile_head *head, int parent,
                       FILE *out)
{
    /*
     * the next row to print takes less time than the one before, or takes as long and comes later in the
     * table
     */
    double below_ms = -1;
    int last = -1;

    for (;;) {
        int next = -1;

        for (int i = 0; i < table->n_rows; i++) {
            const struct profile_row *row = &table->rows[i];
            const bool is_due = below_ms < 0 || row->ms < below_ms || (row->ms == below_ms && i > last);

            if (row->parent == parent && row->calls > 0 && is_due &&
                (next < 0 || row->ms > table->rows[next].ms))
                next = i;
        }
        if (next < 0)
            return;
        print_row(table, head, &table->rows[next], out);
        if (parent == PROFILE_NO_ROW)
            print_rows(table, head, next, out);
        below_ms = table->rows[next].ms;
        last = next;
    }
}

void profile_table_print(const struct profile_table *table, const struct profile_head *head, FILE *out)
{
    struct profile_row all = { .parent = PROFILE_NO_ROW, .name = "all of these" };

    for (int i = 0; i < table->n_rows; i++)
        if (table->rows[i].parent == PROFILE_NO_ROW) {
            all.calls += table->rows[i].calls;
            all.ms += table->rows[i].ms;
        }
    if (all.calls == 0)
        return;
    fprintf(out, "cuda profile%s: %llu steps of %.3f ms", head->who, (unsigned long long)table->n_steps,
            table->n_steps > 0 ? table->steps_ms / (double)table->n_steps : 0);
    if (head->peak_gb_s > 0)
        fprintf(out, ", memory of %.0f GB/s", head->peak_gb_s);
    if (head->n_lost > 0)
        fprintf(out, ", %llu times could not be read", (unsigned long long)head->n_lost);
    fprintf(out, "\n%-*s %8s %12s %19s %15s %8s %9s  %s\n", COLUMN, "name", "calls", "ms", "amount", "rate",
            "of peak", "of step", "way");
    print_rows(table, head, PROFILE_NO_ROW, out);
    print_row(table, head, &all, out);
}

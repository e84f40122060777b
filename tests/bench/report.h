/*
 * What every bench prints and writes: one table on stdout, the same rows as JSON. A row's samples are taken
 * alternating (ours, limit, peer, ours, ...), its figures are medians, and n and the 99th percentile of ours stand
 * beside them. No peer or no limit: NULL samples.
 */
#ifndef TESTS_BENCH_REPORT_H
#define TESTS_BENCH_REPORT_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct report {
    FILE *json;
    int n_rows;
};

struct report_row {
    const char *what, *unit;
    bool higher_is_better;
    const double *ours, *peer, *limit; /* (n) each, the peer's (n_peer) if that is not 0; ours is not NULL */
    int n, n_peer;
    const char *peer_name, *limit_name;
};

static inline double report_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline int report_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The sample that a share `at` of them does not exceed; 0.5 is the median. */
static inline double report_quantile(const double *samples, int n, double at)
{
    double *sorted = malloc((size_t)n * sizeof *sorted), found;
    int index = (int)(at * (n - 1) + 0.5);

    memcpy(sorted, samples, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, report_by_value);
    found = sorted[index];
    free(sorted);
    return found;
}

static inline bool report_begin(struct report *report, const char *json_path)
{
    char cpu[128] = "unknown", line[256];
    FILE *info = fopen("/proc/cpuinfo", "r");

    while (info != NULL && fgets(line, sizeof line, info) != NULL)
        if (sscanf(line, "model name : %127[^\n]", cpu) == 1)
            break;
    if (info != NULL)
        fclose(info);
    report->n_rows = 0;
    report->json = fopen(json_path, "w");
    if (report->json == NULL) {
        perror(json_path);
        return false;
    }
    printf("%s, %ld cores\n", cpu, sysconf(_SC_NPROCESSORS_ONLN));
    printf("%-48s | %10s | %10s | %10s | %9s | %10s\n", "what", "ours", "peer", "limit", "ours/peer",
           "ours/limit");
    fprintf(report->json, "{\"machine\": {\"cpu\": \"%s\", \"cores\": %ld}, \"rows\": [", cpu,
            sysconf(_SC_NPROCESSORS_ONLN));
    return true;
}

static inline void report_number(FILE *to, const char *key, const double *samples, int n)
{
    if (samples == NULL)
        fprintf(to, ", \"%s\": null", key);
    else
        fprintf(to, ", \"%s\": %.6g", key, report_quantile(samples, n, 0.5));
}

static inline void report_cell(const double *samples, int n, double ours, bool ratio)
{
    const double median = samples == NULL ? 0 : report_quantile(samples, n, 0.5);

    if (samples == NULL)
        printf(" | %*s", ratio ? 9 : 10, "-");
    else if (ratio)
        printf(ours / median < 0.1 ? " | %9.5f" : " | %9.2f", ours / median);
    else
        printf(" | %10.3f", median);
}

static inline void report_add(struct report *report, const struct report_row *row)
{
    const double ours = report_quantile(row->ours, row->n, 0.5);
    const double p99 = report_quantile(row->ours, row->n, row->higher_is_better ? 0.01 : 0.99);

    const int n_peer = row->n_peer != 0 ? row->n_peer : row->n;

    printf("%-42s %5s | %10.3f", row->what, row->unit, ours);
    report_cell(row->peer, n_peer, ours, false);
    report_cell(row->limit, row->n, ours, false);
    report_cell(row->peer, n_peer, ours, true);
    report_cell(row->limit, row->n, ours, true);
    printf("   n %d, p99 %.3f\n", row->n, p99);
    fflush(stdout);
    fprintf(report->json, "%s\n  {\"what\": \"%s\", \"unit\": \"%s\", \"ours\": %.6g",
            report->n_rows++ == 0 ? "" : ",", row->what, row->unit, ours);
    report_number(report->json, "peer", row->peer, n_peer);
    fprintf(report->json, ", \"peer_name\": %s%s%s", row->peer == NULL ? "null" : "\"",
            row->peer == NULL ? "" : row->peer_name, row->peer == NULL ? "" : "\"");
    report_number(report->json, "limit", row->limit, row->n);
    fprintf(report->json, ", \"limit_name\": %s%s%s", row->limit == NULL ? "null" : "\"",
            row->limit == NULL ? "" : row->limit_name, row->limit == NULL ? "" : "\"");
    fprintf(report->json, ", \"better\": \"%s\", \"n\": %d, \"p99\": %.6g}",
            row->higher_is_better ? "higher" : "lower", row->n, p99);
}

static inline bool report_end(struct report *report)
{
    fprintf(report->json, "\n]}\n");
    return fclose(report->json) == 0;
}

#endif

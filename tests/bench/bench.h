/*
 * What benches share: clocks, how often a thing is measured, and the table on stdout with the same rows as
 * JSON. Also the peers, which are Python programs. A row's samples are taken in turns (ours, limit, peer,
 * ours, ...). Its figures are medians; the row also shows n and the 99th percentile of ours.
 */
#ifndef TESTS_BENCH_BENCH_H
#define TESTS_BENCH_BENCH_H

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* Prints what failed, with errno in words if it is set, and ends the bench. */
static inline _Noreturn void bench_die(const char *what)
{
    fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, what, errno != 0 ? ": " : "",
            errno != 0 ? strerror(errno) : "");
    exit(1);
}

static inline double bench_clock(clockid_t clock)
{
    struct timespec t;

    clock_gettime(clock, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static inline double bench_now(void)
{
    return bench_clock(CLOCK_MONOTONIC);
}

/*
 * Returns the number that variable `name` of the environment holds if it is from 1 to `most`, else `usual`.
 */
static inline int bench_setting(const char *name, int usual, int most)
{
    const char *wanted = getenv(name);
    const int n = wanted != NULL ? atoi(wanted) : usual;

    return n >= 1 && n <= most ? n : usual;
}

/* How often to measure: BENCH_RUNS=1 shows that a bench works. */
static inline int bench_runs(int usual)
{
    return bench_setting("BENCH_RUNS", usual, usual);
}

/* When something began and ended. */
struct span {
    double start, end;
};

/* Seconds from the first start to the last end. */
static inline double spans_seconds(const struct span *spans, int n)
{
    struct span all = spans[0];

    for (int i = 1; i < n; i++) {
        all.start = spans[i].start < all.start ? spans[i].start : all.start;
        all.end = spans[i].end > all.end ? spans[i].end : all.end;
    }
    return all.end - all.start;
}

/* The table */

struct report {
    FILE *json;
    int n_rows;
    int n_peer; /* samples of the peer in the next row; 0: as many as of ours */
};

struct report_row {
    const char *what, *unit;
    bool higher_is_better;
    const double *ours, *limit, *peer; /* (n) each; NULL: there is no limit or no peer */
    int n;
    const char *limit_name, *peer_name;
};

static inline int report_by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* The sample that a share `at` of them does not exceed; 0.5 is the median. */
static inline double report_quantile(const double *samples, int n, double at)
{
    double *sorted = malloc((size_t)n * sizeof *sorted), found;

    memcpy(sorted, samples, (size_t)n * sizeof *sorted);
    qsort(sorted, (size_t)n, sizeof *sorted, report_by_value);
    found = sorted[(int)(at * (n - 1) + 0.5)];
    free(sorted);
    return found;
}

static inline bool report_begin(struct report *report, const char *json_path)
{
    const long n_cores = sysconf(_SC_NPROCESSORS_ONLN);
    char cpu[128] = "unknown", line[256];
    FILE *info = fopen("/proc/cpuinfo", "r");

    while (info != NULL && fgets(line, sizeof line, info) != NULL)
        if (sscanf(line, "model name : %127[^\n]", cpu) == 1)
            break;
    if (info != NULL)
        fclose(info);
    *report = (struct report){ .json = fopen(json_path, "w") };
    if (report->json == NULL) {
        perror(json_path);
        return false;
    }
    printf("%s, %ld cores\n", cpu, n_cores);
    printf("%-49s | %10s | %10s | %10s | %9s | %10s\n", "what", "ours", "peer", "limit", "ours/peer",
           "ours/limit");
    fflush(stdout); /* nor does a fork print it again */
    fprintf(report->json, "{\"machine\": {\"cpu\": \"%s\", \"cores\": %ld}, \"rows\": [", cpu, n_cores);
    return true;
}

static inline void report_json(FILE *json, const char *key, const double *samples, int n, const char *name)
{
    if (samples == NULL)
        fprintf(json, ", \"%s\": null, \"%s_name\": null", key, key);
    else
        fprintf(json, ", \"%s\": %.6g, \"%s_name\": \"%s\"", key, report_quantile(samples, n, 0.5), key,
                name);
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
    const int n_peer = report->n_peer != 0 ? report->n_peer : row->n;

    printf("%-42s %6s | %10.3f", row->what, row->unit, ours);
    for (int ratio = 0; ratio < 2; ratio++) {
        report_cell(row->peer, n_peer, ours, ratio);
        report_cell(row->limit, row->n, ours, ratio);
    }
    printf("   n %d, p99 %.3f\n", row->n, p99);
    fflush(stdout);
    fprintf(report->json, "%s\n  {\"what\": \"%s\", \"unit\": \"%s\", \"ours\": %.6g",
            report->n_rows++ == 0 ? "" : ",", row->what, row->unit, ours);
    report_json(report->json, "peer", row->peer, n_peer, row->peer_name);
    report_json(report->json, "limit", row->limit, row->n, row->limit_name);
    fprintf(report->json, ", \"better\": \"%s\", \"n\": %d, \"p99\": %.6g}",
            row->higher_is_better ? "higher" : "lower", row->n, p99);
}

static inline bool report_end(struct report *report)
{
    fprintf(report->json, "\n]}\n");
    return fclose(report->json) == 0;
}

/* Peers */

/* A program that reads orders, a line each, and answers each with a line; it begins with "ready". */
struct peer {
    pid_t pid;
    int orders;
    FILE *answers;
};

/* The Python with PyTorch that FSDP_BENCH_PYTHON names; NULL: none is named, and there are no peers. */
static inline const char *peer_python(void)
{
    const char *python = getenv("FSDP_BENCH_PYTHON");

    return python != NULL && python[0] != '\0' ? python : NULL;
}

/* Starts `words`, up to NULL, of which the first is peer_python(). */
static inline void peer_start(struct peer *peer, const char *const *words)
{
    int down[2], up[2];

    if (pipe2(down, O_CLOEXEC) < 0 || pipe2(up, O_CLOEXEC) < 0 || (peer->pid = fork()) < 0)
        bench_die("a peer");
    if (peer->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM); /* a bench that is stopped leaves no peer */
        dup2(down[0], 0), dup2(up[1], 1);
        setenv("OMP_NUM_THREADS", "1", 1);
        setenv("GLOO_SOCKET_IFNAME", "lo", 1);
        execvp(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    peer->orders = down[1];
    peer->answers = fdopen(up[0], "r");
}

static inline bool peer_read(struct peer *peer, char *line, int size)
{
    return peer->answers != NULL && fgets(line, size, peer->answers) != NULL;
}

static inline bool peer_is_ready(struct peer *peer)
{
    char line[64];

    return peer_read(peer, line, sizeof line) && strcmp(line, "ready\n") == 0;
}

/* Ends `n` peers, which stop where there are no more orders. */
static inline void peers_stop(struct peer *peers, int n)
{
    for (int i = 0; i < n; i++)
        close(peers[i].orders);
    for (int i = 0; i < n; i++) {
        waitpid(peers[i].pid, NULL, 0);
        fclose(peers[i].answers);
    }
}

#endif

/*
 * bench_train JSON_FILE PROGRAMS: training steps of two transformers at 1 and 2 ranks of one thread, in
 * float32 and bfloat16. PROGRAMS is a folder with fsdprun and an fsdp-train that carries a stopwatch
 * (train_timers.c).
 *
 * Three take turns, step by step, in one run: our step, its matrix products alone (the limit), and the step
 * of FSDP2 over gloo (the peer; fsdp2_rank.py). FSDP_BENCH_PYTHON names a Python with PyTorch for the peer. A
 * step's time is from the first rank's start to the last one's end. The shares of a step are of the CPU time
 * of rank 0, so that they hold on a machine with other users. So is a second row of tokens, per rank and
 * second of CPU time; a rank that spins for another one counts as working there. Only waiting is by the
 * clock. What is left over (copies and casts of shards, collectives' own work, the plan's walk, the loader)
 * is the library's. Two steps warm up. BENCH_TRAIN_STEPS: how many are measured (3).
 * BENCH_TRAIN_ONLY=MODEL/DTYPE/RANKS, or the beginning of that: only those (tutorial/float32/1).
 */
#include <poll.h>
#include <sys/stat.h>

#include "tests/bench/bench.h"
#include "tests/bench/train_report.h"

enum { MOST_RANKS = 2, MOST_STEPS = 100, WARM = 2, PATIENCE_MS = 600 * 1000 };

struct model {
    const char *name;
    int layers, dim, heads, seq, vocab, batch;
};

static const struct model models[] = {
    { .name = "tutorial", .layers = 10, .dim = 512, .heads = 8, .seq = 64, .vocab = 1024, .batch = 32 },
    { .name = "larger", .layers = 12, .dim = 768, .heads = 12, .seq = 256, .vocab = 8192, .batch = 4 },
};

/* Our ranks: orders go down, reports come up. */
struct ours {
    pid_t launcher;
    int orders[MOST_RANKS], reports[MOST_RANKS];
    int W;
};

static char folder[] = "/tmp/fsdp-bench-train.XXXXXX";

static void in_folder(char path[128], const char *name)
{
    snprintf(path, 128, "%s/%s", folder, name);
}

/* Waits until `fd` has something to read; ends the bench when that takes too long or the launcher is gone. */
static void await(int fd, pid_t launcher)
{
    for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += 1000) {
        struct pollfd one = { .fd = fd, .events = POLLIN };

        if (poll(&one, 1, 1000) > 0 && (one.revents & POLLIN) != 0)
            return;
        if (waitpid(launcher, NULL, WNOHANG) == launcher)
            break;
    }
    fprintf(stderr, "bench_train: a rank of ours ended or stands still; its output is in %s\n", folder);
    exit(1);
}

static FILE *open_text(const char *name, const char *mode)
{
    char path[128];
    FILE *file;

    in_folder(path, name);
    file = fopen(path, mode);
    if (file == NULL)
        bench_die(path);
    return file;
}

/* Ours */

static void write_text(void)
{
    FILE *file = open_text("text", "w");
    unsigned state = 1;

    for (int i = 0; i < 4 << 20; i++) {
        state = state * 1664525u + 1013904223u;
        fputc((int)(state >> 24), file);
    }
    fclose(file);
}

static void write_job(const struct model *m, const char *dtype, int W, int steps)
{
    FILE *file = open_text("job.yaml", "w");

    fprintf(file,
            "run: {name: ours, dir: %s, log_every: 1}\n"
            "launch: {nproc_per_node: %d, max_restarts: 0, threads: 1, hang_timeout_s: 86400}\n"
            "data: {path: %s/text, tokenizer: byte}\n"
            "model: {kind: transformer, layers: %d, dim: %d, heads: %d, vocab: %d, seq: %d, dropout: 0.0, "
            "causal: false}\n"
            "train: {steps: %d, batch: %d, clip_norm: 1.0}\n"
            "optimizer: {kind: adamw, lr: 1.0e-3, betas: [0.9, 0.95], weight_decay: 0.1}\n"
            "parallel: {param_dtype: %s}\n"
            "checkpoint: {every: 0, resume: never}\n",
            folder, W, folder, m->layers, m->dim, m->heads, m->vocab, m->seq, steps, m->batch, dtype);
    fclose(file);
}

static int fifo(int rank, const char *end)
{
    char path[128], name[32];
    int fd;

    snprintf(name, sizeof name, "%d.%s", rank, end);
    in_folder(path, name);
    if (mkfifo(path, 0600) < 0 && errno != EEXIST)
        bench_die(path);
    fd = open(path, O_RDWR | O_CLOEXEC); /* both ways, so that neither side waits for the other to open it */
    if (fd < 0)
        bench_die(path);
    return fd;
}

static void start_ours(struct ours *ours, const char *programs, const struct model *m, const char *dtype,
                       int W, int steps)
{
    char job[128], log[128], launcher[1024];

    *ours = (struct ours){ .W = W };
    in_folder(job, "job.yaml");
    in_folder(log, "ours.log");
    snprintf(launcher, sizeof launcher, "%s/fsdprun", programs);
    write_job(m, dtype, W, steps);
    for (int r = 0; r < W; r++) {
        ours->orders[r] = fifo(r, "orders");
        ours->reports[r] = fifo(r, "reports");
    }
    ours->launcher = fork();
    if (ours->launcher < 0)
        bench_die("fork");
    if (ours->launcher == 0) {
        const int out = open(log, O_CREAT | O_TRUNC | O_WRONLY, 0600);

        (void)prctl(PR_SET_PDEATHSIG, SIGTERM); /* a bench that is stopped leaves no job */
        dup2(out, 1), dup2(out, 2);
        setenv("FSDP_BENCH_GATE", folder, 1);
        execl(launcher, launcher, job, (char *)NULL);
        _exit(127);
    }
}

static void tell_all(const struct ours *ours, char order)
{
    for (int r = 0; r < ours->W; r++)
        if (write(ours->orders[r], &order, 1) != 1)
            bench_die("an order");
}

/* All ranks carry out an order at once. Returns the seconds from the first start to the last end. */
static double order_ours(const struct ours *ours, char order, struct train_report *first)
{
    struct span spans[MOST_RANKS] = { 0 };

    tell_all(ours, order);
    for (int r = 0; r < ours->W; r++) {
        struct train_report report;

        await(ours->reports[r], ours->launcher);
        if (read(ours->reports[r], &report, sizeof report) != sizeof report)
            bench_die("a report");
        spans[r] = (struct span){ report.start_s, report.end_s };
        if (r == 0)
            *first = report;
    }
    return spans_seconds(spans, ours->W);
}

/* MiB, of the last line of the run's metrics. */
static double memory_of_ours(void)
{
    FILE *file = open_text("ours/metrics.jsonl", "r");
    char line[1024];
    double bytes = 0;

    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, "\"memory_bytes\": ");

        if (at != NULL)
            bytes = atof(at + strlen("\"memory_bytes\": "));
    }
    fclose(file);
    return bytes / 1048576;
}

static void end_ours(const struct ours *ours)
{
    int status;

    tell_all(ours, 'q');
    if (waitpid(ours->launcher, &status, 0) < 0 || status != 0) {
        fprintf(stderr, "bench_train: ours failed; its output is in %s/ours.log\n", folder);
        exit(1);
    }
    for (int r = 0; r < ours->W; r++)
        close(ours->orders[r]), close(ours->reports[r]);
}

/* PyTorch */

static bool start_peers(struct peer *peers, const struct model *m, const char *dtype, int W)
{
    const int numbers[8] = { 0, W, m->layers, m->dim, m->heads, m->seq, m->vocab, m->batch };
    char texts[8][16], store[128];

    if (peer_python() == NULL)
        return false;
    in_folder(store, "store");
    unlink(store);
    for (int i = 1; i < 8; i++)
        snprintf(texts[i], sizeof texts[i], "%d", numbers[i]);
    for (int r = 0; r < W; r++) {
        snprintf(texts[0], sizeof texts[0], "%d", r);
        peer_start(&peers[r], (const char *const[]){ peer_python(), "tests/bench/fsdp2_rank.py", texts[0],
                                                     texts[1], store, dtype, texts[2], texts[3], texts[4],
                                                     texts[5], texts[6], texts[7], NULL });
    }
    for (int r = 0; r < W; r++)
        if (!peer_is_ready(&peers[r]))
            bench_die("PyTorch's ranks do not start");
    return true;
}

/* Returns the seconds of a step, and rank 0's CPU time and memory. */
static double step_peers(struct peer *peers, int W, double *work_s, double *memory_mib)
{
    struct span spans[MOST_RANKS] = { 0 };

    for (int r = 0; r < W; r++)
        dprintf(peers[r].orders, "step\n");
    for (int r = 0; r < W; r++) {
        double work, bytes;
        char line[256];

        if (!peer_read(&peers[r], line, sizeof line) ||
            sscanf(line, "%lf %lf %lf %lf", &spans[r].start, &spans[r].end, &work, &bytes) != 4)
            bench_die("a line of PyTorch's");
        if (r == 0) {
            *work_s = work;
            *memory_mib = bytes / 1048576;
        }
    }
    return spans_seconds(spans, W);
}

/* The table */

/* The rows of a model, after its name: the first two by the clock on the wall and by rank 0's CPU time. */
enum row { RATE, WORK, MEMORY, ALONE, KERNELS, OPTIMIZER, WAIT, LIBRARY, N_ROWS };

static const struct {
    const char *what, *unit;
    bool higher_is_better;
} rows[N_ROWS] = {
    [RATE] = { "", "tok/s", true },
    [WORK] = { ", of a CPU's second", "tok/s", true },
    [MEMORY] = { ", memory", "MiB", false },
    [ALONE] = { ", products alone / step", "%", true },
    [KERNELS] = { ", other operations", "%", false },
    [OPTIMIZER] = { ", optimizer", "%", false },
    [WAIT] = { ", waiting (wall)", "%", false },
    [LIBRARY] = { ", library", "%", false },
};

struct samples {
    double ours[N_ROWS][MOST_STEPS], limit[WORK + 1][MOST_STEPS], peer[MEMORY + 1][MOST_STEPS];
    bool has_peer;
};

static void take(struct samples *s, const struct ours *ours, struct peer *peers, double tokens, int at)
{
    const double own_tokens = tokens / ours->W;
    struct train_report step, alone;
    const double ours_s = order_ours(ours, 's', &step), alone_s = order_ours(ours, 'p', &alone);

    if (s->has_peer) {
        double work_s = 0;

        s->peer[RATE][at] = tokens / step_peers(peers, ours->W, &work_s, &s->peer[MEMORY][0]);
        s->peer[WORK][at] = own_tokens / work_s;
    }
    s->ours[WORK][at] = own_tokens / step.work_s;
    s->limit[WORK][at] = own_tokens / alone.work_s;
    s->ours[RATE][at] = tokens / ours_s;
    s->limit[RATE][at] = tokens / alone_s;
    s->ours[ALONE][at] = 100 * alone.work_s / step.work_s;
    s->ours[KERNELS][at] = 100 * step.kernels_s / step.work_s;
    s->ours[OPTIMIZER][at] = 100 * step.optimizer_s / step.work_s;
    s->ours[LIBRARY][at] =
        100 * (step.work_s - step.products_s - step.kernels_s - step.optimizer_s) / step.work_s;
    s->ours[WAIT][at] = 100 * step.wait_s / ours_s;
}

static void print(struct report *report, const char *of, const struct samples *s, int n)
{
    for (int row = 0; row < N_ROWS; row++) {
        char what[96];

        snprintf(what, sizeof what, "%s%s", of, rows[row].what);
        report_add(report, &(struct report_row){ what, rows[row].unit, rows[row].higher_is_better,
                                                 s->ours[row], row <= WORK ? s->limit[row] : NULL,
                                                 row <= MEMORY && s->has_peer ? s->peer[row] : NULL,
                                                 row == MEMORY ? 1 : n, "the step's matrix products alone",
                                                 "PyTorch FSDP2, gloo" });
    }
}

static void remove_tree(const char *path)
{
    char command[160];

    snprintf(command, sizeof command, "rm -rf %s", path);
    if (system(command) != 0)
        bench_die(path);
}

static void measure(struct report *report, const char *programs, const struct model *m, const char *dtype,
                    int W, int n)
{
    const char *only = getenv("BENCH_TRAIN_ONLY");
    const double tokens = (double)m->seq * m->batch * W;
    static struct samples s;
    struct peer peers[MOST_RANKS];
    struct ours ours;
    char of[64], run[128];

    snprintf(of, sizeof of, "%s/%s/%d", m->name, dtype, W);
    if (only != NULL && strncmp(of, only, strlen(only)) != 0)
        return;
    start_ours(&ours, programs, m, dtype, W, WARM + n + 1);
    s.has_peer = start_peers(peers, m, dtype, W);
    for (int i = -WARM; i < n; i++)
        take(&s, &ours, peers, tokens, i < 0 ? 0 : i);
    end_ours(&ours);
    if (s.has_peer)
        peers_stop(peers, W);
    s.ours[MEMORY][0] = memory_of_ours();
    print(report, of, &s, n);
    in_folder(run, "ours");
    remove_tree(run);
}

int main(int argc, char **argv)
{
    static const char *const dtypes[] = { "float32", "bfloat16" };
    const int n = bench_setting("BENCH_TRAIN_STEPS", 3, MOST_STEPS);
    struct report report;

    if (argc != 3 || !report_begin(&report, argv[1]))
        return 2;
    signal(SIGPIPE, SIG_IGN);
    if (mkdtemp(folder) == NULL)
        bench_die(folder);
    write_text();
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t d = 0; d < 2; d++)
            for (int W = 1; W <= MOST_RANKS; W++)
                measure(&report, argv[2], &models[m], dtypes[d], W, n);
    remove_tree(folder);
    return report_end(&report) ? 0 : 1;
}

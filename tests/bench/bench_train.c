/*
 * bench_train JSON_FILE PROGRAMS: training steps of two transformers at 1 and 2 ranks of one thread, in float32 and
 * bfloat16. PROGRAMS is a folder with fsdprun and an fsdp-train that carries a stopwatch (train_timers.c).
 *
 * Taking turns, step by step, in one run: ours, the matrix products of such a step alone (the limit), and the same step
 * of FSDP2 over gloo by the Python with PyTorch that FSDP_BENCH_PYTHON names (the peer; fsdp2_rank.py). A step's time is
 * from the first rank's start to the last one's end. The shares of a step are of the CPU time of rank 0, so that
 * they hold where others use the machine too, and so is a second row of tokens (per rank and second of CPU time, in
 * which spinning for another rank counts as work); only waiting is by the clock. What is left over (copies and casts of
 * shards, collectives' own work, the plan's walk, the loader) is the library's. Two steps warm up. BENCH_TRAIN_STEPS: how many are measured (3).
 * BENCH_TRAIN_ONLY=MODEL/DTYPE/RANKS, or the beginning of that: only those (tutorial/float32/1).
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/bench/ranks.h"
#include "tests/bench/report.h"
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

/* The ranks of one side: orders go down, reports come up. */
struct side {
    pid_t pids[MOST_RANKS]; /* ours: the launcher alone */
    int orders[MOST_RANKS], reports[MOST_RANKS];
    int W;
};

static char folder[] = "/tmp/fsdp-bench-train.XXXXXX";

static void die(const char *what)
{
    fprintf(stderr, "bench_train: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void in_folder(char *path, size_t size, const char *name)
{
    snprintf(path, size, "%s/%s", folder, name);
}

/* Wait until `fd` has something to read; ends the bench when that takes too long or the other side is gone. */
static void await(int fd, pid_t pid, const char *whose)
{
    for (int waited_ms = 0; waited_ms < PATIENCE_MS; waited_ms += 1000) {
        struct pollfd one = { .fd = fd, .events = POLLIN };

        if (poll(&one, 1, 1000) > 0 && (one.revents & POLLIN) != 0)
            return;
        if ((one.revents & POLLHUP) != 0 || waitpid(pid, NULL, WNOHANG) == pid)
            break;
    }
    fprintf(stderr, "bench_train: a rank of %s ended or stands still; its output is in %s\n", whose, folder);
    exit(1);
}

/* --- ours ------------------------------------------------------------------------------------------------ */

static void write_text(const char *name)
{
    char path[128];
    unsigned state = 1;
    FILE *file;

    in_folder(path, sizeof path, name);
    file = fopen(path, "w");
    if (file == NULL)
        die(path);
    for (int i = 0; i < 4 << 20; i++) {
        state = state * 1664525u + 1013904223u;
        fputc((int)(state >> 24), file);
    }
    fclose(file);
}

static void write_job(const char *path, const struct model *m, const char *dtype, int W, int steps)
{
    FILE *file = fopen(path, "w");

    if (file == NULL)
        die(path);
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
    in_folder(path, sizeof path, name);
    if (mkfifo(path, 0600) < 0 && errno != EEXIST)
        die(path);
    fd = open(path, O_RDWR | O_CLOEXEC); /* both ways, so that neither side waits for the other to open it */
    if (fd < 0)
        die(path);
    return fd;
}

static void start_ours(struct side *side, const char *programs, const struct model *m, const char *dtype,
                       int W, int steps)
{
    char job[128], log[128], launcher[1024];

    *side = (struct side){ .W = W };
    in_folder(job, sizeof job, "job.yaml");
    in_folder(log, sizeof log, "ours.log");
    snprintf(launcher, sizeof launcher, "%s/fsdprun", programs);
    write_job(job, m, dtype, W, steps);
    for (int r = 0; r < W; r++) {
        side->orders[r] = fifo(r, "orders");
        side->reports[r] = fifo(r, "reports");
    }
    side->pids[0] = fork();
    if (side->pids[0] < 0)
        die("fork");
    if (side->pids[0] == 0) {
        const int out = open(log, O_CREAT | O_TRUNC | O_WRONLY, 0600);

        dup2(out, 1), dup2(out, 2);
        setenv("FSDP_BENCH_GATE", folder, 1);
        execl(launcher, launcher, job, (char *)NULL);
        _exit(127);
    }
}

/* Orders are obeyed by all ranks at once; rank 0's shares, and the time from the first start to the last end. */
static double order_ours(struct side *side, char order, struct train_report *first)
{
    double start = 0, end = 0;

    for (int r = 0; r < side->W; r++)
        if (write(side->orders[r], &order, 1) != 1)
            die("an order");
    for (int r = 0; r < side->W; r++) {
        struct train_report report;

        await(side->reports[r], side->pids[0], "ours");
        if (read(side->reports[r], &report, sizeof report) != sizeof report)
            die("a report");
        start = r == 0 || report.start_s < start ? report.start_s : start;
        end = r == 0 || report.end_s > end ? report.end_s : end;
        if (r == 0)
            *first = report;
    }
    return end - start;
}

/* MiB, of the last line of the run's metrics. */
static double memory_of_ours(void)
{
    char path[128], line[1024];
    double bytes = 0;
    FILE *file;

    in_folder(path, sizeof path, "ours/metrics.jsonl");
    file = fopen(path, "r");
    if (file == NULL)
        die(path);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, "\"memory_bytes\": ");

        if (at != NULL)
            bytes = atof(at + strlen("\"memory_bytes\": "));
    }
    fclose(file);
    return bytes / 1048576;
}

static void end_ours(struct side *side)
{
    const char go_on = 'q';
    int status;

    for (int r = 0; r < side->W; r++)
        if (write(side->orders[r], &go_on, 1) != 1)
            die("an order");
    if (waitpid(side->pids[0], &status, 0) < 0 || status != 0) {
        fprintf(stderr, "bench_train: ours failed; its output is in %s/ours.log\n", folder);
        exit(1);
    }
    for (int r = 0; r < side->W; r++)
        close(side->orders[r]), close(side->reports[r]);
}

/* --- PyTorch --------------------------------------------------------------------------------------------- */

static void start_peer_rank(struct side *side, int r, const char *python, const struct model *m,
                            const char *dtype, const char *store)
{
    int down[2], up[2];
    char rank[16], world[16], sizes[6][16];
    const int numbers[6] = { m->layers, m->dim, m->heads, m->seq, m->vocab, m->batch };

    if (pipe2(down, O_CLOEXEC) < 0 || pipe2(up, O_CLOEXEC) < 0)
        die("pipe");
    snprintf(rank, sizeof rank, "%d", r);
    snprintf(world, sizeof world, "%d", side->W);
    for (int i = 0; i < 6; i++)
        snprintf(sizes[i], sizeof sizes[i], "%d", numbers[i]);
    side->pids[r] = fork();
    if (side->pids[r] < 0)
        die("fork");
    if (side->pids[r] == 0) {
        dup2(down[0], 0), dup2(up[1], 1);
        setenv("OMP_NUM_THREADS", "1", 1);
        setenv("GLOO_SOCKET_IFNAME", "lo", 1);
        execlp(python, python, "tests/bench/fsdp2_rank.py", rank, world, store, dtype, sizes[0], sizes[1],
               sizes[2], sizes[3], sizes[4], sizes[5], (char *)NULL);
        _exit(127);
    }
    close(down[0]), close(up[1]);
    side->orders[r] = down[1];
    side->reports[r] = up[0];
}

static bool start_peer(struct side *side, const struct model *m, const char *dtype, int W)
{
    const char *python = getenv("FSDP_BENCH_PYTHON");
    char store[128], line[64];

    *side = (struct side){ .W = W };
    if (python == NULL || python[0] == '\0')
        return false;
    in_folder(store, sizeof store, "store");
    unlink(store);
    for (int r = 0; r < W; r++)
        start_peer_rank(side, r, python, m, dtype, store);
    for (int r = 0; r < W; r++) {
        await(side->reports[r], side->pids[r], "PyTorch's");
        if (!rank_read_line(side->reports[r], line, sizeof line) || strcmp(line, "ready") != 0)
            die("PyTorch's ranks do not start");
    }
    return true;
}

static double step_peer(struct side *side, double *work_s, double *memory_mib)
{
    double start = 0, end = 0;

    for (int r = 0; r < side->W; r++)
        dprintf(side->orders[r], "step\n");
    for (int r = 0; r < side->W; r++) {
        double from, to, work, bytes;
        char line[256];

        await(side->reports[r], side->pids[r], "PyTorch's");
        if (!rank_read_line(side->reports[r], line, sizeof line) ||
            sscanf(line, "%lf %lf %lf %lf", &from, &to, &work, &bytes) != 4)
            die("a line of PyTorch's");
        start = r == 0 || from < start ? from : start;
        end = r == 0 || to > end ? to : end;
        if (r == 0) {
            *work_s = work;
            *memory_mib = bytes / 1048576;
        }
    }
    return end - start;
}

static void end_peer(struct side *side)
{
    for (int r = 0; r < side->W; r++)
        close(side->orders[r]);
    for (int r = 0; r < side->W; r++) {
        waitpid(side->pids[r], NULL, 0);
        close(side->reports[r]);
    }
}

/* --- the table ------------------------------------------------------------------------------------------- */

struct samples {
    double rate[MOST_STEPS], limit[MOST_STEPS], peer[MOST_STEPS];           /* by the clock on the wall */
    double work[MOST_STEPS], work_limit[MOST_STEPS], work_peer[MOST_STEPS]; /* by CPU time, of rank 0 */
    double alone[MOST_STEPS], kernels[MOST_STEPS], optimizer[MOST_STEPS], wait[MOST_STEPS],
        library[MOST_STEPS];
    double memory, peer_memory;
    int n;
    bool has_peer;
};

static void take(struct samples *s, struct side *ours, struct side *peer, double tokens, int at)
{
    struct train_report step, alone;
    const double ours_s = order_ours(ours, 's', &step), alone_s = order_ours(ours, 'p', &alone);

    if (s->has_peer) {
        double work_s = 0;

        s->peer[at] = tokens / step_peer(peer, &work_s, &s->peer_memory);
        s->work_peer[at] = tokens / ours->W / work_s;
    }
    s->work[at] = tokens / ours->W / step.work_s;
    s->work_limit[at] = tokens / ours->W / alone.work_s;
    s->rate[at] = tokens / ours_s;
    s->limit[at] = tokens / alone_s;
    s->alone[at] = 100 * alone.work_s / step.work_s;
    s->kernels[at] = 100 * step.kernels_s / step.work_s;
    s->optimizer[at] = 100 * step.optimizer_s / step.work_s;
    s->library[at] = 100 * (step.work_s - step.products_s - step.kernels_s - step.optimizer_s) / step.work_s;
    s->wait[at] = 100 * step.wait_s / ours_s;
}

static void add_share(struct report *report, const char *of, const char *what, const double *samples, int n)
{
    char text[96];

    snprintf(text, sizeof text, "%s, %s", of, what);
    report_add(report, &(struct report_row){ .what = text, .unit = "%", .ours = samples, .n = n });
}

static void print(struct report *report, const char *of, const struct samples *s)
{
    char text[96];

    snprintf(text, sizeof text, "%s", of);
    report_add(report, &(struct report_row){ .what = text,
                                             .unit = "tok/s",
                                             .higher_is_better = true,
                                             .ours = s->rate,
                                             .peer = s->has_peer ? s->peer : NULL,
                                             .limit = s->limit,
                                             .n = s->n,
                                             .peer_name = "PyTorch FSDP2, gloo",
                                             .limit_name = "the step's matrix products alone" });
    snprintf(text, sizeof text, "%s, of a CPU's second", of);
    report_add(report, &(struct report_row){ .what = text,
                                             .unit = "tok/s",
                                             .higher_is_better = true,
                                             .ours = s->work,
                                             .peer = s->has_peer ? s->work_peer : NULL,
                                             .limit = s->work_limit,
                                             .n = s->n,
                                             .peer_name = "PyTorch FSDP2, gloo",
                                             .limit_name = "the step's matrix products alone" });
    snprintf(text, sizeof text, "%s, memory", of);
    report_add(report, &(struct report_row){ .what = text,
                                             .unit = "MiB",
                                             .ours = &s->memory,
                                             .peer = s->has_peer ? &s->peer_memory : NULL,
                                             .n = 1,
                                             .peer_name = "PyTorch FSDP2, gloo" });
    snprintf(text, sizeof text, "%s, products alone / step", of);
    report_add(report,
               &(struct report_row){
                   .what = text, .unit = "%", .higher_is_better = true, .ours = s->alone, .n = s->n });
    add_share(report, of, "other operations", s->kernels, s->n);
    add_share(report, of, "optimizer", s->optimizer, s->n);
    add_share(report, of, "waiting (wall)", s->wait, s->n);
    add_share(report, of, "library", s->library, s->n);
}

static void measure(struct report *report, const char *programs, const struct model *m, const char *dtype,
                    int W, int n)
{
    const char *only = getenv("BENCH_TRAIN_ONLY");
    const double tokens = (double)m->seq * m->batch * W;
    static struct samples s;
    struct side ours, peer;
    char of[64];

    snprintf(of, sizeof of, "%s/%s/%d", m->name, dtype, W);
    if (only != NULL && strncmp(of, only, strlen(only)) != 0)
        return;
    s = (struct samples){ .n = n };
    start_ours(&ours, programs, m, dtype, W, WARM + n + 1);
    s.has_peer = start_peer(&peer, m, dtype, W);
    for (int i = -WARM; i < n; i++)
        take(&s, &ours, &peer, tokens, i < 0 ? 0 : i);
    end_ours(&ours);
    if (s.has_peer)
        end_peer(&peer);
    s.memory = memory_of_ours();
    print(report, of, &s);
}

static void clean_up(void)
{
    char command[160];

    snprintf(command, sizeof command, "rm -rf %s", folder);
    if (system(command) != 0)
        fprintf(stderr, "bench_train: %s is left behind\n", folder);
}

int main(int argc, char **argv)
{
    static const char *const dtypes[] = { "float32", "bfloat16" };
    const char *wanted = getenv("BENCH_TRAIN_STEPS");
    const int n = wanted != NULL ? atoi(wanted) : 3;
    struct report report;

    if (argc != 3 || n < 1 || n > MOST_STEPS || !report_begin(&report, argv[1]))
        return 2;
    signal(SIGPIPE, SIG_IGN);
    if (mkdtemp(folder) == NULL)
        die(folder);
    write_text("text");
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t d = 0; d < 2; d++)
            for (int W = 1; W <= MOST_RANKS; W++) {
                char runs[128];

                measure(&report, argv[2], &models[m], dtypes[d], W, n);
                in_folder(runs, sizeof runs, "ours");
                if (access(runs, F_OK) == 0) {
                    char command[160];

                    snprintf(command, sizeof command, "rm -rf %s", runs);
                    if (system(command) != 0)
                        die(runs);
                }
            }
    clean_up();
    return report_end(&report) ? 0 : 1;
}

/*
 * bench_launch JSON_FILE FSDPRUN WORKER WORKER.py: what launching costs, ours compared with torchrun (through
 * the Python with PyTorch that FSDP_BENCH_PYTHON names) and bare posix_spawn. All sides take turns in one
 * run.
 *
 *   start          from the start of the launcher to the last of 1, 2, 8, 32 workers in main(): the static
 *                  worker, and a
 *                  Python that imports nothing
 *   replacement    from SIGKILL of one of 2 workers to the last replacement in main(), with a grace of 0
 *   memory         PSS of the launcher's processes while 8 workers idle
 *   CPU            of the launcher's processes while 8 workers idle, as seconds an hour
 *   wakeups        of the same, as often a second: other load makes each of them dearer, but not more
 *
 * LAUNCH_RUNS and LAUNCH_PEER_RUNS in the environment: samples of ours and of the peer (31);
 * LAUNCH_WINDOW_MS: how long the idle ones are watched for one sample (4000).
 */
#include <ftw.h>
#include <limits.h>
#include <poll.h>
#include <spawn.h>
#include <sys/stat.h>

#include "tests/bench/bench.h"

enum { MOST_WORKERS = 32, MOST_RUNS = 500, RUNS = 31, WAIT_MS = 120000, RECORD_BYTES = 32, IDLE_WORKERS = 8 };
enum { CPU_WINDOWS = 5, CPU_WINDOW_MS = 4000, MOST_TREE = 64 };

/* What the launcher's processes may hold and use together; how soon a replacement has to be there. */
static const double memory_limit_mb = 8, cpu_limit_s = 3.6, wakeups_limit = 9, replacement_limit_ms = 20;

extern char **environ;

enum side { BARE, OURS, TORCHRUN };

static const char *fsdprun, *worker, *script, *python;
static char directory[64], times_path[96], hold_path[96];
static int times = -1, runs, peer_runs, window_ms;

struct arrival {
    double at;
    pid_t pid;
};

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *ftw)
{
    (void)info;
    (void)kind;
    (void)ftw;
    return remove(path);
}

static void clean_up(void)
{
    nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static pid_t start(const char *const *argv)
{
    pid_t pid;
    int error = posix_spawnp(&pid, argv[0], NULL, NULL, (char *const *)(uintptr_t)argv, environ);

    if (error != 0) {
        errno = error;
        bench_die(argv[0]);
    }
    return pid;
}

static void await(pid_t pid)
{
    int status;

    if (waitpid(pid, &status, 0) != pid || status != 0) {
        errno = ECHILD;
        bench_die("a launcher or worker failed");
    }
}

/* The next `n` that come to their main(); the last one's time. */
static double arrivals(int n, struct arrival *out)
{
    double last = 0;

    for (int i = 0; i < n; i++) {
        struct pollfd p = { .fd = times, .events = POLLIN };
        char record[RECORD_BYTES + 1] = "";
        long long ns = 0;

        errno = ETIMEDOUT;
        if (poll(&p, 1, WAIT_MS) != 1 || read(times, record, RECORD_BYTES) != RECORD_BYTES ||
            sscanf(record, "%lld %d", &ns, &out[i].pid) != 2)
            bench_die("waiting for the workers");
        out[i].at = 1e-9 * (double)ns;
        last = out[i].at > last ? out[i].at : last;
    }
    return last;
}

/*
 * The command line of a side for `n` workers; bare: of one worker. With `hold` workers stay until let_go().
 */
static void command(enum side side, int n, bool in_python, bool hold, bool restart, const char *argv[20])
{
    /* torchrun's options are its defaults, but for names that a bare container lacks. */
    const char *const torchrun[] = { python,
                                     "-m",
                                     "torch.distributed.run",
                                     "--rdzv-backend=c10d",
                                     "--rdzv-endpoint=127.0.0.1:0",
                                     "--local-addr=127.0.0.1" };
    static char count[32];
    int i = 0;

    snprintf(count, sizeof count, "--nproc-per-node=%d", n);
    for (size_t k = 0; side == TORCHRUN && k < sizeof torchrun / sizeof *torchrun; k++)
        argv[i++] = torchrun[k];
    if (side == OURS)
        argv[i++] = fsdprun;
    if (side == BARE && in_python) {
        argv[i++] = python;
        argv[i++] = "-u";
    }
    if (side != BARE) {
        argv[i++] = count;
        if (restart)
            argv[i++] = "--max-restarts=1", argv[i++] = "--shutdown-timeout=0";
        if (!in_python)
            argv[i++] = "--no-python";
    }
    argv[i++] = in_python ? script : worker;
    argv[i++] = times_path;
    argv[i++] = hold ? hold_path : NULL;
    argv[i] = NULL;
}

static double run_start(enum side side, int n, bool in_python)
{
    struct arrival arrived[MOST_WORKERS];
    pid_t pids[MOST_WORKERS];
    const char *argv[20];
    double begun, last;
    const int n_started = side == BARE ? n : 1;

    command(side, n, in_python, false, false, argv);
    begun = bench_now();
    for (int i = 0; i < n_started; i++)
        pids[i] = start(argv);
    last = arrivals(n, arrived);
    for (int i = 0; i < n_started; i++)
        await(pids[i]);
    return 1e3 * (last - begun);
}

/*
 * Workers wait for the other end of the hold FIFO: open it until `pid` has ended, for those that come late
 * too.
 */
static void let_go(pid_t pid)
{
    int status = 0, hold;

    while (waitpid(pid, &status, WNOHANG) == 0) {
        hold = open(hold_path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
        if (hold >= 0)
            close(hold);
        poll(NULL, 0, 1);
    }
    if (status != 0) {
        errno = ECHILD;
        bench_die("a launcher failed");
    }
}

static double run_replacement(enum side side, int most, bool in_python)
{
    const int n = side == BARE ? 1 : most;
    struct arrival first[2], second[2];
    const char *argv[20];
    double killed, last;
    pid_t pid;

    command(side, n, in_python, true, true, argv);
    pid = start(argv);
    arrivals(n, first);
    killed = bench_now();
    kill(first[0].pid, SIGKILL);
    if (side == BARE) {
        waitpid(pid, NULL, 0);
        pid = start(argv);
    }
    last = arrivals(n, second);
    let_go(pid);
    return 1e3 * (last - killed);
}

/* The launcher and what is below it but workers: for fsdprun its agent. */
static int launcher_tree(pid_t root, const struct arrival *workers, int n_workers, pid_t out[MOST_TREE])
{
    int n = 0, seen = 0;

    out[n++] = root;
    for (; seen < n; seen++) {
        char path[64];
        FILE *children;
        int pid;

        snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)out[seen], (int)out[seen]);
        children = fopen(path, "r");
        while (children != NULL && fscanf(children, "%d", &pid) == 1 && n < MOST_TREE) {
            bool is_worker = false;

            for (int i = 0; i < n_workers; i++)
                is_worker = is_worker || workers[i].pid == pid;
            if (!is_worker)
                out[n++] = pid;
        }
        if (children != NULL)
            fclose(children);
    }
    return n;
}

/* In MB (10^6 bytes). */
static double pss_mb(pid_t pid)
{
    char path[64], line[256];
    long kib = -1;
    FILE *rollup;

    snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
    rollup = fopen(path, "r");
    while (rollup != NULL && kib < 0 && fgets(line, sizeof line, rollup) != NULL)
        if (sscanf(line, "Pss: %ld", &kib) != 1)
            kib = -1;
    if (rollup != NULL)
        fclose(rollup);
    if (kib < 0)
        bench_die(path);
    return (double)kib * 1024e-6;
}

/* Sums numbers of all threads of the processes: each thread's first of a line that matches `pattern`. */
static double sum_threads(const pid_t *pids, int n, const char *file, const char *pattern)
{
    char command_line[96], line[256];
    double sum = 0, one;

    for (int i = 0; i < n; i++) {
        FILE *counts;

        snprintf(command_line, sizeof command_line, "cat /proc/%d/task/*/%s", (int)pids[i], file);
        counts = popen(command_line, "r");
        while (counts != NULL && fgets(line, sizeof line, counts) != NULL)
            if (sscanf(line, pattern, &one) == 1)
                sum += one;
        if (counts != NULL)
            pclose(counts);
    }
    return sum;
}

/* Seconds that the processes have run, by the scheduler's own count. */
static double cpu_seconds(const pid_t *pids, int n)
{
    return 1e-9 * sum_threads(pids, n, "schedstat", "%lf");
}

/* How often their threads went to sleep of their own accord, and so how often they woke. */
static double n_wakeups(const pid_t *pids, int n)
{
    return sum_threads(pids, n, "status", "voluntary_ctxt_switches: %lf");
}

/*
 * Start a side with 8 workers that idle, and look at it: its memory, or the CPU seconds an hour and the
 * wakeups a second in each window.
 */
static void run_idle(enum side side, double *memory, double *cpu, double *wakeups)
{
    struct arrival workers[IDLE_WORKERS];
    pid_t tree[MOST_TREE], pid;
    const char *argv[20];
    int n;

    command(side, IDLE_WORKERS, false, true, false, argv);
    pid = start(argv);
    arrivals(IDLE_WORKERS, workers);
    n = launcher_tree(pid, workers, IDLE_WORKERS, tree);
    errno = ESRCH;
    if (side == OURS && n != 2)
        bench_die("the launcher is not two processes, one the child of the other");
    if (memory != NULL) {
        *memory = 0;
        for (int i = 0; i < n; i++)
            *memory += pss_mb(tree[i]);
    }
    if (cpu != NULL)
        poll(NULL, 0, 500); /* what the start leaves to do */
    for (int window = 0; cpu != NULL && window < CPU_WINDOWS; window++) {
        const double begun = bench_now(), used = cpu_seconds(tree, n), woken = n_wakeups(tree, n);

        poll(NULL, 0, window_ms);
        cpu[window] = (cpu_seconds(tree, n) - used) / (bench_now() - begun) * 3600;
        wakeups[window] = (n_wakeups(tree, n) - woken) / (bench_now() - begun);
    }
    let_go(pid);
}

/* Rows */

static double ours[MOST_RUNS], limit[MOST_RUNS], peer[MOST_RUNS];

static void add(struct report *report, const char *what, const char *unit, const char *limit_name, int n,
                int n_peer)
{
    report->n_peer = n_peer;
    report_add(report, &(struct report_row){ what, unit, false, ours, limit, n_peer > 0 ? peer : NULL, n,
                                             limit_name, "torchrun" });
}

/* Takes samples of all sides in turns, `run` on each, and adds their row. Returns how many are torchrun's. */
static int add_times(struct report *report, const char *what, const char *limit_name,
                     double (*run)(enum side side, int n, bool in_python), int n, bool in_python)
{
    const int n_peer = python != NULL ? peer_runs : 0;

    for (int i = 0; i < runs || i < n_peer; i++) {
        if (i < runs) {
            limit[i] = run(BARE, n, in_python);
            ours[i] = run(OURS, n, in_python);
        }
        if (i < n_peer)
            peer[i] = run(TORCHRUN, n, in_python);
    }
    add(report, what, "ms", limit_name, runs, n_peer);
    return n_peer;
}

static void start_row(struct report *report, int n, bool in_python, double times_faster)
{
    char what[80];
    int n_peer;

    snprintf(what, sizeof what, "start to last of %d %s in main()", n,
             in_python ? "Python workers"
             : n == 1  ? "worker"
                       : "workers");
    run_start(BARE, n, in_python), run_start(OURS, n, in_python); /* warm */
    n_peer = add_times(report, what, "bare posix_spawn", run_start, n, in_python);
    if (in_python)
        return;
    printf("  target: under 2 x limit + 5 ms = %.3f ms", 2 * report_quantile(limit, runs, 0.5) + 5);
    if (n_peer > 0)
        printf("; %g times faster than torchrun (now %.0f)", times_faster,
               report_quantile(peer, n_peer, 0.5) / report_quantile(ours, runs, 0.5));
    printf("\n");
}

static void memory_row(struct report *report)
{
    const int n_peer = python == NULL ? 0 : peer_runs < 5 ? peer_runs : 5;

    for (int i = 0; i < runs; i++) {
        run_idle(OURS, &ours[i], NULL, NULL);
        limit[i] = memory_limit_mb;
        if (i < n_peer)
            run_idle(TORCHRUN, &peer[i], NULL, NULL);
    }
    add(report, "PSS of the launcher's processes, 8 workers", "MB", "what they may hold", runs, n_peer);
}

static void cpu_row(struct report *report)
{
    const int n_peer = python != NULL ? CPU_WINDOWS : 0;
    double wakeups[2][CPU_WINDOWS];

    run_idle(OURS, NULL, ours, wakeups[0]);
    if (python != NULL)
        run_idle(TORCHRUN, NULL, peer, wakeups[1]);
    for (int i = 0; i < CPU_WINDOWS; i++)
        limit[i] = cpu_limit_s;
    add(report, "CPU of them in an hour, 8 workers idle", "s", "0.1 % of a core", CPU_WINDOWS, n_peer);
    for (int i = 0; i < CPU_WINDOWS; i++) {
        ours[i] = wakeups[0][i];
        peer[i] = wakeups[1][i];
        limit[i] = wakeups_limit;
    }
    add(report, "wakeups of them a second, 8 workers idle", "", "0.1 % of a core, 0.11 ms each", CPU_WINDOWS,
        n_peer);
}

/*
 * All temporary files are below it, those of the launchers too. In memory where that can be. ext4 searches
 * long for an inode that was not deleted a few seconds ago, and only a bench launches thirty times in a row.
 */
static void make_directory(void)
{
    static const char *const parents[] = { "/dev/shm", "/tmp" };

    for (size_t i = 0; i < sizeof parents / sizeof *parents; i++) {
        snprintf(directory, sizeof directory, "%s/fsdp-bench.XXXXXX", parents[i]);
        if (mkdtemp(directory) != NULL) {
            setenv("TMPDIR", directory, 1);
            return;
        }
    }
    bench_die(directory);
}

int main(int argc, char **argv)
{
    static const struct {
        int n;
        double times_faster;
    } sizes[] = { { 1, 200 }, { 2, 200 }, { 8, 100 }, { 32, 50 } };
    struct report report;

    if (argc < 5)
        return 2;
    fsdprun = argv[2];
    worker = argv[3];
    script = argv[4];
    runs = bench_setting("LAUNCH_RUNS", RUNS, MOST_RUNS);
    peer_runs = bench_setting("LAUNCH_PEER_RUNS", RUNS, MOST_RUNS);
    window_ms = bench_setting("LAUNCH_WINDOW_MS", CPU_WINDOW_MS, INT_MAX);
    setenv("OMP_NUM_THREADS", "1", 1); /* or torchrun says a word about it at each start */
    python = peer_python();
    if (python != NULL)
        setenv("PYTHON_EXEC", python, 1); /* both launchers start this one */
    make_directory();
    atexit(clean_up);
    snprintf(times_path, sizeof times_path, "%s/times", directory);
    snprintf(hold_path, sizeof hold_path, "%s/hold", directory);
    if (mkfifo(times_path, 0600) < 0 || mkfifo(hold_path, 0600) < 0 ||
        (times = open(times_path, O_RDWR | O_CLOEXEC)) < 0)
        bench_die(directory);
    if (!report_begin(&report, argv[1]))
        return 2;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        start_row(&report, sizes[i].n, false, sizes[i].times_faster);
        if (python != NULL)
            start_row(&report, sizes[i].n, true, 0);
    }
    add_times(&report, "SIGKILL of a worker to replacements in main()", "reap and posix_spawn",
              run_replacement, 2, false);
    printf("  target: under %g ms\n", replacement_limit_ms);
    memory_row(&report);
    cpu_row(&report);
    return report_end(&report) ? 0 : 1;
}

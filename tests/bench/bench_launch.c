/*
 * bench_launch JSON_FILE FSDPRUN WORKER: how long until the last of 8 workers is in its main(), from the moment the
 * launcher itself is started. Limit: the same static worker started 8 times by posix_spawn, nothing else. Peer:
 * torchrun, through the Python with PyTorch that FSDP_BENCH_PYTHON names. Ours and the limit take turns.
 *
 * A second row is the memory of both launcher processes while their 8 workers run: the sum of their PSS.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "tests/bench/report.h"

enum { WORKERS = 8, RUNS = 41, PEER_RUNS = 5, WAIT_MS = 120000 };

/* Both launcher processes together may hold so much. */
static const double memory_limit_mb = 8;

extern char **environ;

static const char *fsdprun, *worker, *python;
static char directory[] = "/tmp/fsdp-bench.XXXXXX", times_path[64], hold_path[64];
static int times = -1;

static void clean_up(void)
{
    unlink(times_path);
    unlink(hold_path);
    rmdir(directory);
}

static void die(const char *what)
{
    fprintf(stderr, "bench_launch: %s: %s\n", what, strerror(errno));
    clean_up();
    exit(1);
}

static pid_t start(const char *program, char *const argv[])
{
    pid_t pid;
    int error = posix_spawnp(&pid, program, NULL, NULL, argv, environ);

    if (error != 0) {
        errno = error;
        die(program);
    }
    return pid;
}

static void await(pid_t pid)
{
    int status;

    if (waitpid(pid, &status, 0) != pid || status != 0) {
        errno = ECHILD;
        die("a launcher or worker failed");
    }
}

/* When the last of the 8 was in its main(). */
static double last_arrival(void)
{
    double last = 0;

    for (int i = 0; i < WORKERS; i++) {
        struct pollfd p = { .fd = times, .events = POLLIN };
        double at = 0;

        errno = ETIMEDOUT;
        if (poll(&p, 1, WAIT_MS) != 1 || read(times, &at, sizeof at) != sizeof at)
            die("waiting for the workers");
        last = at > last ? at : last;
    }
    return last;
}

static double run_bare(void)
{
    char *const argv[] = { (char *)worker, times_path, NULL };
    const double begun = report_now();
    pid_t pids[WORKERS];
    double last;

    for (int i = 0; i < WORKERS; i++)
        pids[i] = start(worker, argv);
    last = last_arrival();
    for (int i = 0; i < WORKERS; i++)
        await(pids[i]);
    return last - begun;
}

static double run_ours(void)
{
    char *const argv[] = { (char *)fsdprun, "--nproc-per-node", "8", "--", (char *)worker, times_path, NULL };
    const double begun = report_now();
    pid_t pid = start(fsdprun, argv);
    const double last = last_arrival();

    await(pid);
    return last - begun;
}

static double run_torchrun(void)
{
    char *const argv[] = { (char *)python,     "-m",       "torch.distributed.run",
                           "--nproc-per-node", "8",        "--no-python",
                           (char *)worker,     times_path, NULL };
    const double begun = report_now();
    pid_t pid = start(python, argv);
    const double last = last_arrival();

    await(pid);
    return last - begun;
}

/* The PSS of a process in MB (10^6 bytes). */
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
        die(path);
    return (double)kib * 1024e-6;
}

/* The agent: the one child of the outer process. */
static pid_t only_child(pid_t pid)
{
    char path[96];
    int child = 0, other = 0, n;
    FILE *children;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
    children = fopen(path, "r");
    n = children == NULL ? 0 : fscanf(children, "%d %d", &child, &other);
    if (children != NULL)
        fclose(children);
    errno = ESRCH;
    if (n != 1)
        die("the launcher is not two processes, one the child of the other");
    return child;
}

static double run_memory(void)
{
    char *const argv[] = { (char *)fsdprun, "--nproc-per-node", "8",       "--",
                           (char *)worker,  times_path,         hold_path, NULL };
    int hold = open(hold_path, O_RDWR | O_CLOEXEC);
    pid_t pid = start(fsdprun, argv);
    double sum;

    if (hold < 0)
        die(hold_path);
    last_arrival();
    sum = pss_mb(pid) + pss_mb(only_child(pid));
    /* Every worker has the FIFO open, or will not wait for it: without another reader our writer's end would not count. */
    close(hold);
    for (int status = 0; waitpid(pid, &status, WNOHANG) == 0;) {
        hold = open(hold_path, O_WRONLY | O_NONBLOCK | O_CLOEXEC); /* lets in who comes late */
        if (hold >= 0)
            close(hold);
        poll(NULL, 0, 1);
    }
    return sum;
}

int main(int argc, char **argv)
{
    double ours[RUNS], limit[RUNS], peer[PEER_RUNS], memory[RUNS], memory_limit[RUNS];
    struct report report;

    if (argc < 4)
        return 2;
    fsdprun = argv[2];
    worker = argv[3];
    setenv("OMP_NUM_THREADS", "1", 1); /* or torchrun says a word about it at each start */
    python = getenv("FSDP_BENCH_PYTHON");
    if (python != NULL && python[0] == '\0')
        python = NULL;
    if (mkdtemp(directory) == NULL)
        die(directory);
    snprintf(times_path, sizeof times_path, "%s/times", directory);
    snprintf(hold_path, sizeof hold_path, "%s/hold", directory);
    if (mkfifo(times_path, 0600) < 0 || mkfifo(hold_path, 0600) < 0 ||
        (times = open(times_path, O_RDWR | O_CLOEXEC)) < 0)
        die(directory);
    if (!report_begin(&report, argv[1]))
        return 2;
    run_bare(), run_ours(); /* warm */
    for (int i = 0; i < RUNS; i++) {
        limit[i] = 1e3 * run_bare();
        ours[i] = 1e3 * run_ours();
    }
    for (int i = 0; i < PEER_RUNS && python != NULL; i++)
        peer[i] = 1e3 * run_torchrun();
    report_add(&report, &(struct report_row){ .what = "start to last of 8 workers in main()",
                                              .unit = "ms",
                                              .ours = ours,
                                              .limit = limit,
                                              .n = RUNS,
                                              .limit_name = "bare posix_spawn",
                                              .peer = python != NULL ? peer : NULL,
                                              .n_peer = PEER_RUNS,
                                              .peer_name = "torchrun" });
    printf("target: under 2 x limit + 5 ms = %.3f ms\n", 2 * report_quantile(limit, RUNS, 0.5) + 5);
    for (int i = 0; i < RUNS; i++) {
        memory[i] = run_memory();
        memory_limit[i] = memory_limit_mb;
    }
    report_add(&report, &(struct report_row){ .what = "PSS of both launcher processes, 8 workers",
                                              .unit = "MB",
                                              .ours = memory,
                                              .limit = memory_limit,
                                              .n = RUNS,
                                              .limit_name = "what they may hold" });
    clean_up();
    return report_end(&report) ? 0 : 1;
}

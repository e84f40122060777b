/*
 * bench_restart JSON_FILE BUILD CREATE_MODEL DIRECTORY [BEFORE | memory]: how soon training goes on.
 *
 * A restart: a job of two ranks with 1.5 GB of weights and optimizer state has begun from its checkpoint. One
 * rank is killed with SIGKILL. The clock stops when the next generation has done its first step. Creating a
 * model: of 128 Mi parameters, alone, with all CPUs of the machine and with one thread; with what follows
 * until it can be used. And restarts of two smaller jobs, from snapshots in memory and from the disk in
 * turns.
 *
 * BUILD is a build directory with bin/ and lib/, of this tree. BEFORE is another, the peer. Both sides run
 * the same files in turns, so that the ratio holds on a machine that others use as well. RESTART_RUNS (5) is
 * the number of turns.
 *
 * "memory": only what snapshots in memory cost and give. Restarts from them, up to the moment at which all
 * ranks have their state again, before the first step; and the step of the tutorial's model with a snapshot
 * after every step, compared with none.
 */
#include <limits.h>
#include <stdarg.h>
#include <sys/stat.h>

#include "tests/bench/bench.h"

enum { MAX_RUNS = 64, PATH_BYTES = 4096, COMMAND_BYTES = 4 * PATH_BYTES, DEADLINE_S = 300, SETTLE_STEPS = 3 };

static const char *builds[2], *create_model; /* ours, before: NULL where there is none */
static const char *const names[2] = { "ours", "before" };
static char directory[PATH_BYTES];
static int n_runs;
static pid_t running; /* the run that is under way; 0: none */

static void stop_job(void)
{
    if (running <= 0)
        return;
    kill(running, SIGTERM); /* saves nothing, and leaves nothing: the next run needs its directory */
    waitpid(running, NULL, 0);
    running = 0;
}

static void must_run(const char *format, ...)
{
    char command[COMMAND_BYTES];
    va_list words;

    va_start(words, format);
    vsnprintf(command, sizeof command, format, words);
    va_end(words);
    errno = 0;
    if (system(command) != 0)
        bench_die(command);
}

/* A restart */

static void write_job(void)
{
    char path[PATH_BYTES + 16], text[PATH_MAX];
    FILE *file;

    if (realpath("tests/parity/excerpt.txt", text) == NULL)
        bench_die("tests/parity/excerpt.txt");
    snprintf(path, sizeof path, "%s/job.yaml", directory);
    file = fopen(path, "w");
    if (file == NULL)
        bench_die(path);
    fprintf(file,
            "run:        {name: ours, dir: %s, log_every: 1}\n"
            "launch:     {nproc_per_node: 2, max_restarts: 1000}\n"
            "data:       {path: %s}\n"
            "model:      {layers: 10, dim: 1024, heads: 16, vocab: 256, seq: 16}\n"
            "train:      {steps: 1000000, batch: 1}\n"
            "checkpoint: {every: 1000000, keep: 1}\n",
            directory, text);
    if (fclose(file) != 0)
        bench_die(path);
}

/* The checkpoint of step 1, once; the other side has the same files, and a run directory of its own. */
static void make_checkpoints(void)
{
    must_run("'%s/bin/fsdprun' '%s/job.yaml' --set train.steps=1 --set checkpoint.every=1 > '%s/log' 2>&1",
             builds[0], directory, directory);
    if (builds[1] != NULL)
        must_run("mkdir '%s/before' && cp -al '%s/ours/checkpoints' '%s/before'", directory, directory,
                 directory);
}

/* What a restart is of: settings of the job, or NULL. */
struct variant {
    const char *standby, *size, *snapshots;
};

static pid_t start_job(int side, const struct variant *variant)
{
    const char *const settings[] = { variant->size, variant->snapshots };
    char *words[16];
    int n = 0;

    char program[PATH_BYTES], job[PATH_BYTES + 16], log[PATH_BYTES + 16], name[32];
    const pid_t pid = fork();
    int fd;

    if (pid != 0)
        return pid;
    snprintf(program, sizeof program, "%s/bin/fsdprun", builds[side]);
    snprintf(job, sizeof job, "%s/job.yaml", directory);
    snprintf(log, sizeof log, "%s/log", directory);
    snprintf(name, sizeof name, "run.name=%s", names[side]);
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a bench that is stopped leaves no job */
    fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (fd < 0 || dup2(fd, 1) < 0 || dup2(fd, 2) < 0)
        _exit(127);
    words[n++] = program;
    words[n++] = job;
    words[n++] = (char *)(uintptr_t) "--set";
    words[n++] = name;
    for (int i = 0; i < 2; i++)
        if (settings[i] != NULL) {
            words[n++] = (char *)(uintptr_t) "--set";
            words[n++] = (char *)(uintptr_t)settings[i];
        }
    if (variant->standby != NULL) {
        words[n++] = (char *)(uintptr_t) "--standby";
        words[n++] = (char *)(uintptr_t)variant->standby;
    }
    words[n] = NULL;
    execv(program, words);
    _exit(127);
}

/*
 * Lines of events.jsonl that have happened since `from` bytes: are there `n` of "first_step"? And the last
 * pid of rank 1.
 */
static bool steps_began(int side, off_t from, int n, pid_t *rank_1)
{
    char path[PATH_BYTES + 32], line[1024];
    int found = 0, rank, pid;
    const char *at;
    FILE *file;

    snprintf(path, sizeof path, "%s/%s/events.jsonl", directory, names[side]);
    file = fopen(path, "r");
    if (file == NULL) /* not yet */
        return false;
    if (fseeko(file, from, SEEK_SET) < 0)
        bench_die(path);
    while (fgets(line, sizeof line, file) != NULL) {
        found += strstr(line, "\"event\": \"first_step\"") != NULL;
        at = strstr(line, "\"event\": \"spawn\"") != NULL ? strstr(line, "\"rank\"") : NULL;
        if (at != NULL && sscanf(at, "\"rank\": %d, \"pid\": %d", &rank, &pid) == 2 && rank == 1)
            *rank_1 = pid;
    }
    fclose(file);
    return found >= n;
}

static void await_steps(int side, off_t from, int n, pid_t *rank_1)
{
    const double start = bench_now();

    while (!steps_began(side, from, n, rank_1)) {
        if (bench_now() - start > DEADLINE_S)
            bench_die("the job does not train: see its log");
        usleep(2000);
    }
}

/* The bytes of a file of the run; 0: it is not there yet. */
static off_t bytes_of(int side, const char *name, char path[PATH_BYTES + 32])
{
    struct stat info;

    snprintf(path, PATH_BYTES + 32, "%s/%s/%s", directory, names[side], name);
    if (stat(path, &info) == 0)
        return info.st_size;
    if (errno != ENOENT)
        bench_die(path);
    return 0;
}

/* Waits for so many further lines of metrics.jsonl: a line is a step. */
static void await_more_steps(int side, int n)
{
    char path[PATH_BYTES + 32];
    const off_t from = bytes_of(side, "metrics.jsonl", path);
    const double start = bench_now();

    for (int found = 0; found < n;) {
        FILE *file = fopen(path, "r");
        int byte;

        found = 0;
        if (file != NULL && fseeko(file, from, SEEK_SET) == 0)
            while ((byte = getc(file)) != EOF)
                found += byte == '\n';
        if (file != NULL)
            fclose(file);
        if (bench_now() - start > DEADLINE_S)
            bench_die("the job does not go on: see its log");
        usleep(2000);
    }
}

static double killed_at; /* seconds since the epoch, as events have them */

/* `settle`: the kill comes SETTLE_STEPS later. Both slots of memory were touched then, and standbys wait. */
static double restart(int side, const struct variant *variant, bool settle)
{
    char path[PATH_BYTES + 32];
    const off_t before = bytes_of(side, "events.jsonl", path);
    pid_t rank_1 = 0;
    double start, end;

    running = start_job(side, variant);
    if (running < 0)
        bench_die("fork");
    await_steps(side, before, 1, &rank_1);
    if (settle)
        await_more_steps(side, SETTLE_STEPS);
    killed_at = bench_clock(CLOCK_REALTIME);
    start = bench_now();
    if (rank_1 <= 0 || kill(rank_1, SIGKILL) < 0)
        bench_die("kill a rank");
    await_steps(side, before, 2, &rank_1);
    end = bench_now();
    stop_job();
    return end - start;
}

/* Creating a model */

static double create(int side, const char *how, int threads)
{
    char command[COMMAND_BYTES], line[64] = "";
    FILE *out;

    snprintf(command, sizeof command, "LD_LIBRARY_PATH='%s/lib' '%s' %s '%s/weights' %d", builds[side],
             create_model, how, directory, threads);
    out = popen(command, "r");
    if (out == NULL || fgets(line, sizeof line, out) == NULL || pclose(out) != 0) {
        errno = 0;
        bench_die(command);
    }
    return atof(line);
}

/* The table */

struct measure {
    const char *what, *how; /* how NULL: a restart */
    int threads;
};

/* Both sides are this tree's, and run in turns: with two workers on standby, and with none. */
static void add_standby(struct report *report)
{
    double samples[2][MAX_RUNS];

    for (int run = 0; run < n_runs; run++) {
        samples[0][run] = restart(0, &(struct variant){ .standby = "2" }, true);
        samples[1][run] = restart(0, &(struct variant){ .standby = NULL }, true);
    }
    report_add(report, &(struct report_row){ "the same, --standby 2", "s", false, samples[0], NULL,
                                             samples[1], n_runs, NULL, "without" });
}

/* This tree's, in turns: from memory, and from a checkpoint of the step before on the disk. */
static void add_memory(struct report *report, const char *what, const char *size)
{
    double samples[2][MAX_RUNS];

    must_run(
        "rm -rf '%s/ours' && '%s/bin/fsdprun' '%s/job.yaml' --set train.steps=1 --set checkpoint.every=1 "
        "--set '%s' > '%s/log' 2>&1",
        directory, builds[0], directory, size, directory);
    for (int run = 0; run < n_runs; run++) {
        samples[0][run] =
            restart(0, &(struct variant){ .size = size, .snapshots = "checkpoint.snapshot_every=1" }, true);
        samples[1][run] = restart(0, &(struct variant){ .size = size }, true);
    }
    report_add(report,
               &(struct report_row){ what, "s", false, samples[0], NULL, samples[1], n_runs, NULL, "disk" });
}

/* Reads a number of the last line of a file of the run that has `word`. */
static double last_number(const char *file_name, const char *word, const char *key)
{
    char path[PATH_BYTES + 32], line[4096], wanted[64];
    double value = -1;
    FILE *file;

    snprintf(path, sizeof path, "%s/ours/%s", directory, file_name);
    snprintf(wanted, sizeof wanted, "\"%s\": ", key);
    file = fopen(path, "r");
    if (file == NULL)
        bench_die(path);
    while (fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, word) != NULL ? strstr(line, wanted) : NULL;

        if (at != NULL)
            value = atof(at + strlen(wanted));
    }
    fclose(file);
    return value;
}

static double of_timeline(const char *key)
{
    return last_number("events.jsonl", "\"event\": \"timeline\"", key);
}

/*
 * Milliseconds from the kill until all ranks have their state again. The timeline counts from the death: the
 * kernel has taken the dead rank's memory back by then. The event is written at the first step.
 */
static double begin(const char *size, const char *standby)
{
    const struct variant variant = { .standby = standby,
                                     .size = size,
                                     .snapshots = "checkpoint.snapshot_every=1" };

    (void)restart(0, &variant, true);
    return 1000 * (of_timeline("time") - killed_at) - of_timeline("first_step_ms") +
           of_timeline("resumed_ms");
}

/* In turns: without workers on standby, and with two. */
static void add_begin(struct report *report, const char *what, const char *size)
{
    double samples[2][MAX_RUNS];

    must_run("rm -rf '%s/ours'", directory);
    for (int run = 0; run < n_runs; run++) {
        samples[0][run] = begin(size, "0");
        samples[1][run] = begin(size, "2");
    }
    report_add(report, &(struct report_row){ what, "ms", false, samples[0], NULL, samples[1], n_runs, NULL,
                                             "--standby 2" });
}

/* The median step of the tutorial's model; `snapshots` is a setting. */
static double step_of(const char *snapshots)
{
    must_run("rm -rf '%s/ours' && '%s/bin/fsdprun' '%s/job.yaml' --set model.dim=512 --set model.heads=8 "
             "--set model.vocab=1024 --set model.seq=64 --set train.batch=32 --set run.log_every=4 "
             "--set train.steps=5 --set checkpoint.every=0 --set %s > '%s/log' 2>&1",
             directory, builds[0], directory, snapshots, directory);
    return last_number("metrics.jsonl", "\"step\": 4,", "step_s");
}

static void add_cost(struct report *report)
{
    double samples[2][MAX_RUNS];

    for (int run = 0; run < n_runs; run++) {
        samples[0][run] = step_of("checkpoint.snapshot_every=1");
        samples[1][run] = step_of("checkpoint.snapshot_every=0");
    }
    report_add(report, &(struct report_row){ "tutorial's step, a snapshot after each", "s", false, samples[0],
                                             NULL, samples[1], n_runs, NULL, "none" });
}

static void add(struct report *report, const struct measure *m)
{
    double samples[2][MAX_RUNS];

    for (int run = 0; run < n_runs; run++)
        for (int side = 0; side < 2; side++)
            if (builds[side] != NULL)
                samples[side][run] = m->how == NULL
                                         ? restart(side, &(struct variant){ .standby = NULL }, false)
                                         : create(side, m->how, m->threads);
    report_add(report, &(struct report_row){ m->what, "s", false, samples[0], NULL,
                                             builds[1] != NULL ? samples[1] : NULL, n_runs, NULL, "before" });
}

int main(int argc, char **argv)
{
    const int cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const struct measure measures[] = {
        { "kill to first step, 1.5 GB, 2 ranks", NULL, 0 },
        { "create, then load its weights, all CPUs", "load", cpus },
        { "create a model of 128 Mi parameters, all CPUs", "create", cpus },
        { "create, then every value, all CPUs", "draw", cpus },
        { "create, then every value, 1 thread", "draw", 1 },
    };
    const bool memory_only = argc > 5 && strcmp(argv[5], "memory") == 0;
    struct report report;

    if (argc < 5) {
        fprintf(stderr, "usage: bench_restart JSON_FILE BUILD CREATE_MODEL DIRECTORY [BEFORE | memory]\n");
        return 2;
    }
    builds[0] = argv[2];
    builds[1] = argc > 5 && !memory_only ? argv[5] : NULL;
    create_model = argv[3];
    n_runs = bench_setting("RESTART_RUNS", bench_runs(5), MAX_RUNS);
    atexit(stop_job);
    snprintf(directory, sizeof directory, "%s/bench-restart.XXXXXX", argv[4]);
    if (mkdtemp(directory) == NULL)
        bench_die(directory);
    if (!report_begin(&report, argv[1]))
        return 1;
    write_job();
    if (memory_only) {
        add_begin(&report, "kill to state again, 24 MB, from memory", "model.dim=128");
        add_begin(&report, "kill to state again, 0.45 GB, from memory", "model.layers=3");
        add_cost(&report);
        must_run("rm -rf '%s'", directory);
        return report_end(&report) ? 0 : 1;
    }
    (void)create(0, "save", cpus);
    for (size_t i = 0; i < sizeof measures / sizeof *measures; i++) {
        if (measures[i].how == NULL)
            make_checkpoints();
        add(&report, &measures[i]);
        if (measures[i].how == NULL)
            add_standby(&report);
    }
    add_memory(&report, "kill to first step, 24 MB, from memory", "model.dim=128");
    add_memory(&report, "kill to first step, 0.45 GB, from memory", "model.layers=3");
    must_run("rm -rf '%s'", directory);
    return report_end(&report) ? 0 : 1;
}

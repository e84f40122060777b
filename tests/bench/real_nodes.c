#include "tests/bench/real_nodes.h"

#include "tests/bench/bench.h"

enum { DEADLINE_S = 120, LOOK_US = 1000, PATH_BYTES = 4096, LINE_BYTES = 4096, WORDS = 40 };

/* Becomes the node `place` of the job. */
static _Noreturn void run_node(const struct real_job *job, int place, const char *program,
                               const char *argument)
{
    char nodes[16], rank[16], endpoint[32], lease[32];
    const char *words[WORDS] = { job->fsdprun, "--nnodes",       nodes,           "--nproc-per-node",
                                 "1",          "--max-restarts", "1000",          "--shutdown-timeout",
                                 "0",          "--rdzv-backend", "c10d",          "--rdzv-endpoint",
                                 endpoint,     "--rdzv-conf",    lease,           "--rdzv-id",
                                 "bench",      "--secret-file",  job->secret_file };
    const int log = open(job->log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    int n = 0;

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a bench that is stopped leaves no node */
    signal(SIGPIPE, SIG_DFL);
    if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
        _exit(127);
    snprintf(nodes, sizeof nodes, "%d", job->n_nodes);
    snprintf(rank, sizeof rank, "%d", place);
    snprintf(endpoint, sizeof endpoint, "127.0.0.1:%d", job->port);
    snprintf(lease, sizeof lease, "lease=%d", job->lease_ms / 1000);
    while (words[n] != NULL)
        n++;
    if (place < job->n_nodes) {
        words[n++] = "--node-rank";
        words[n++] = rank;
    }
    if (job->run_dir == NULL) {
        words[n++] = "--quiet";
    } else {
        words[n++] = "--run-dir";
        words[n++] = job->run_dir;
    }
    words[n++] = "--no-python";
    words[n++] = program;
    words[n++] = argument;
    execv(job->fsdprun, (char *const *)(uintptr_t)words);
    _exit(127);
}

pid_t real_job_start(struct real_job *job, const char *program, const char *argument)
{
    pid_t guard;

    if (job->n == REAL_NODES_MOST)
        bench_die("too many nodes");
    guard = fork();
    if (guard < 0)
        bench_die("fork");
    if (guard == 0)
        run_node(job, job->n, program, argument);
    job->guards[job->n++] = guard;
    return guard;
}

void real_job_wait(struct real_job *job)
{
    int status;

    while (job->n > 0)
        if (waitpid(job->guards[--job->n], &status, 0) < 0 || status != 0) {
            errno = 0;
            bench_die("a real node failed");
        }
}

void real_job_stop(struct real_job *job)
{
    for (int i = 0; i < job->n; i++)
        kill(job->guards[i], SIGTERM);
    while (job->n > 0)
        waitpid(job->guards[--job->n], NULL, 0);
}

/* What a run says */

/* Waits until `n` lines of the file at `path` have `words`, and keeps the last of them in `found`. */
static void await_lines(const char *path, const char *words, int n, char found[LINE_BYTES])
{
    const double deadline = bench_now() + DEADLINE_S;

    for (int seen = 0; seen < n; usleep(LOOK_US)) {
        FILE *file = fopen(path, "r");
        char line[LINE_BYTES];

        seen = 0;
        while (file != NULL && seen < n && fgets(line, sizeof line, file) != NULL)
            if (strstr(line, words) != NULL && strchr(line, '\n') != NULL) {
                memcpy(found, line, sizeof line);
                seen++;
            }
        if (file != NULL)
            fclose(file);
        if (seen < n && bench_now() > deadline) {
            errno = 0;
            fprintf(stderr, "%s has %d of %d lines with: ", path, seen, n);
            bench_die(words);
        }
    }
}

static void await_events(const struct real_job *job, const char *event, int n, char found[LINE_BYTES])
{
    char path[PATH_BYTES], words[64];

    snprintf(path, sizeof path, "%s/events.jsonl", job->run_dir);
    snprintf(words, sizeof words, "\"event\": \"%s\"", event);
    await_lines(path, words, n, found);
}

void real_job_await(const struct real_job *job, const char *words, int n)
{
    char found[LINE_BYTES];

    await_lines(job->log_file, words, n, found);
}

void real_job_await_workers(const struct real_job *job, int n)
{
    char found[LINE_BYTES];

    await_events(job, "spawn", n, found);
}

static double number_of(const char *line, const char *key)
{
    char words[64], *end;
    const char *at;
    double value;

    snprintf(words, sizeof words, "\"%s\": ", key);
    at = strstr(line, words);
    errno = 0;
    if (at == NULL)
        bench_die(line);
    value = strtod(at + strlen(words), &end);
    if (end == at + strlen(words))
        bench_die(line); /* null: the restart failed too */
    return value;
}

void real_job_await_restart(const struct real_job *job, struct real_restart *restart)
{
    char found[LINE_BYTES];

    await_events(job, "timeline", 1, found);
    restart->spawned_at = number_of(found, "time");
    restart->fenced_s = number_of(found, "fenced_ms") * 1e-3;
    restart->spawned_s = number_of(found, "spawned_ms") * 1e-3;
    restart->term = (int)number_of(found, "term");
}

/* One node */

pid_t real_node_agent(pid_t guard)
{
    char path[64], line[32];
    const double deadline = bench_now() + 10;
    int agent = 0;

    snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)guard, (int)guard);
    while (agent == 0 && bench_now() < deadline) {
        FILE *file = fopen(path, "r");

        if (file != NULL && fgets(line, sizeof line, file) != NULL)
            agent = atoi(line);
        if (file != NULL)
            fclose(file);
    }
    if (agent == 0)
        bench_die("a node has no agent");
    return agent;
}

void real_node_kill(pid_t guard, bool guard_too)
{
    const pid_t agent = real_node_agent(guard);

    /* A guard that is stopped cannot prove anything between the two kills. */
    if (guard_too && (kill(guard, SIGSTOP) < 0 || waitpid(guard, NULL, WUNTRACED) < 0))
        bench_die("stop a guard");
    if (kill(agent, SIGKILL) < 0 || (guard_too && kill(guard, SIGKILL) < 0))
        bench_die("kill a node");
}

/*
 * bench_rendezvous JSON_FILE FSDPRUN: what meeting costs as the number of nodes grows, on loopback with TLS.
 *
 * The coordinator is a real fsdprun with one worker, /bin/sleep. The other nodes are a swarm of members
 * without workers in this process (tests/bench/member_swarm.h). Rows for 64, 1,024, 4,096 and 10,000 nodes:
 *   - join: from the first connection to the last START, and the CPU time of the coordinator for it. The
 *     peer is a bare loop that accepts and does the same handshake of TLS, with nothing after it. And how
 *     often a member dialled again, because it was not answered in time.
 *   - form again: a worker fails; from the last STOPPED to the last START, and the CPU time of the
 *     coordinator in between, less that of the beats which the members sent meanwhile. One beat takes what it
 *     does while nothing else happens.
 *   - beats: cores that the coordinator uses while nothing happens. If the members are too slow to ask in
 *     time, it is what their questions took, times those that were due. And the part of the questions for
 *     which no pulse was answered, so that they went over the session too.
 * A node that stands still (SIGSTOP), with a spare there: from its stop to the START of the next generation.
 * Real nodes that are killed, with a spare there; lose() says from when on they are timed:
 *   - a member of which only the agent is killed, so that its guard proves that no rank is left;
 *   - a member with its guard, so that its lease is waited for;
 *   - the node that leads, with its guard.
 * Then real nodes, each an fsdprun with /bin/true, from the first exec to the last end.
 * Growth: the exponent of each time over the number of nodes, by least squares of their logarithms.
 *
 * BENCH_RUNS (3) is how often each is measured, RENDEZVOUS_NODES (10000) the most nodes, and
 * RENDEZVOUS_REAL_NODES (512) the number of real ones. On a machine that is busy with something else, the one
 * process of the members cannot keep 10,000 leases of 3 s: RENDEZVOUS_LEASE (3) is the lease in seconds. It
 * does not hold for nodes that stand still or are killed.
 */
#include <arpa/inet.h>
#include <math.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "agent/os/deadlines.h"
#include "agent/rendezvous/rendezvous.h"
#include "agent/wire/tls.h"
#include "tests/bench/bench.h"
#include "tests/bench/member_swarm.h"
#include "tests/bench/real_nodes.h"

enum { MAX_RUNS = 15, MAX_SIZES = 4, CLIENTS = 4, IDLE_S = 3 };

static const int sizes[MAX_SIZES] = { 64, 1024, 4096, 10000 };
static char directory[] = "/tmp/bench-rendezvous.XXXXXX";
static char secret_file[sizeof directory + 16], log_file[sizeof directory + 16];
static char secret[TLS_KEY_BYTES + 1] = "a secret of bench-rendezvous----";
static struct real_job job;

static void clean_up(void)
{
    char command[sizeof directory + 16];

    real_job_stop(&job);
    snprintf(command, sizeof command, "rm -rf '%s'", directory);
    (void)!system(command);
}

static int listen_on_loopback(int *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 4096) < 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) < 0)
        bench_die("a port");
    *port = ntohs(address.sin_port);
    return fd;
}

/* Begins a job that has no node yet. Its port is known to be free. */
static void begin_job(int n_nodes, const char *run_dir)
{
    close(listen_on_loopback(&job.port));
    unlink(log_file); /* of the job before */
    job.n_nodes = n_nodes;
    job.run_dir = run_dir;
}

/* The clock that counts the CPU time of all threads of a process. */
static clockid_t cpu_clock(pid_t pid)
{
    clockid_t clock;

    errno = clock_getcpuclockid(pid, &clock);
    if (errno != 0)
        bench_die("the CPU clock of the coordinator");
    return clock;
}

/* A bare loop of the same handshake */

/* Handshakes over a blocking socket, and closes it. */
static void shake_hands(int fd, const struct tls_context *context, bool client)
{
    static const unsigned char identity[TLS_IDENTITY_BYTES] = "any";
    unsigned char bytes[4096];
    struct tls *tls;
    struct fsdp_err err = { 0 };
    ssize_t n = 0;

    if (tls_create(&tls, context, identity, &err) != FSDP_OK || (client && tls_start(tls, &err) != FSDP_OK))
        bench_die(err.message);
    do {
        if (n > 0 && tls_feed(tls, bytes, (size_t)n, &err) != FSDP_OK)
            bench_die(err.message);
        for (size_t size; (size = tls_take(tls, bytes, sizeof bytes)) > 0;)
            if (send(fd, bytes, size, MSG_NOSIGNAL) != (ssize_t)size)
                bench_die("send");
    } while (!tls_established(tls) && (n = recv(fd, bytes, sizeof bytes, 0)) > 0);
    if (!tls_established(tls))
        bench_die("a handshake");
    tls_destroy(tls);
    close(fd);
}

static _Noreturn void bare_client(int port, int n, const unsigned char *key)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    struct tls_context *context;
    struct fsdp_err err = { 0 };

    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (tls_context_create(&context, false, key, &err) != FSDP_OK)
        bench_die(err.message);
    for (int i = 0; i < n; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
            bench_die("connect");
        shake_hands(fd, context, true);
    }
    _exit(0);
}

/* Accepts and handshakes `n` times in this process, for clients in others. Seconds and CPU seconds of one. */
static void measure_bare(int n, double *seconds, double *cpu)
{
    unsigned char key[TLS_KEY_BYTES];
    struct tls_context *context;
    struct fsdp_err err = { 0 };
    int port, fd = listen_on_loopback(&port);
    double start, start_cpu;

    if (tls_derive_key(key, secret, strlen(secret), "bench", &err) != FSDP_OK ||
        tls_context_create(&context, true, key, &err) != FSDP_OK)
        bench_die(err.message);
    start = bench_now();
    start_cpu = bench_clock(CLOCK_PROCESS_CPUTIME_ID);
    for (int i = 0; i < CLIENTS; i++)
        if (fork() == 0)
            bare_client(port, n / CLIENTS, key);
    for (int i = 0; i < n / CLIENTS * CLIENTS; i++) {
        const int one = accept4(fd, NULL, NULL, SOCK_CLOEXEC);

        if (one < 0)
            bench_die("accept");
        shake_hands(one, context, false);
    }
    *seconds = bench_now() - start;
    *cpu = bench_clock(CLOCK_PROCESS_CPUTIME_ID) - start_cpu;
    for (int i = 0; i < CLIENTS; i++)
        wait(NULL);
    tls_context_destroy(context);
    close(fd);
}

/* A coordinator and its swarm */

static void configure(struct agent_config *config, int port)
{
    agent_config_init(config);
    config->run_id = "bench";
    config->secret = secret;
    config->secret_bytes = strlen(secret);
    config->rendezvous_host = "127.0.0.1";
    config->rendezvous_port = port;
    config->node_rank = -1;
    config->hosting = AGENT_HOST_NO;
    config->lease_ms = job.lease_ms;
}

/*
 * Begins a world of the coordinator and a swarm, of which the first member is let in: so the coordinator
 * listens.
 */
static void begin(struct swarm *swarm, struct agent_config *config, int n_nodes, int capacity)
{
    begin_job(n_nodes, NULL);
    configure(config, job.port);
    config->n_nodes = config->min_nodes = n_nodes;
    swarm_open(swarm, config, capacity);
    swarm->cpu = cpu_clock(real_node_agent(real_job_start(&job, "/bin/sleep", "1000000")));
    swarm_join(swarm, 1);
    swarm_await(swarm, &swarm->n_welcomed, 1, "a first node that was let in");
    swarm->n_again = 0;
}

struct samples {
    double join[MAX_RUNS], join_cpu[MAX_RUNS], bare[MAX_RUNS], bare_cpu[MAX_RUNS]; /* ms a node */
    double form[MAX_RUNS], form_cpu[MAX_RUNS];                                     /* us a node */
    double again[MAX_RUNS]; /* nodes that dialled again */
    double beats[MAX_RUNS]; /* cores */
    double asked[MAX_RUNS]; /* % of the questions */
};

static void measure(struct samples *samples, int run, int n_nodes)
{
    const int n = n_nodes - 1;
    struct agent_config config;
    struct swarm swarm;
    double start, start_cpu, cpu, due, n_beats;

    measure_bare(n, &samples->bare[run], &samples->bare_cpu[run]);
    begin(&swarm, &config, n_nodes, n);
    start = bench_now();
    start_cpu = bench_clock(swarm.cpu);
    swarm_join(&swarm, n - 1);
    swarm_await(&swarm, &swarm.n_started, n, "nodes that have started");
    samples->join[run] = (swarm.started_at - start) * 1e3 / (n - 1);
    samples->join_cpu[run] = (swarm.started_cpu - start_cpu) * 1e3 / (n - 1);
    samples->again[run] = swarm.n_again;
    samples->bare[run] *= 1e3 / n;
    samples->bare_cpu[run] *= 1e3 / n;

    swarm.n_started = swarm.n_stopped = 0;
    swarm_fail(&swarm);
    swarm_await(&swarm, &swarm.n_started, n, "nodes that have started again");
    samples->form[run] = (swarm.started_at - swarm.stopped_at) * 1e6 / n;
    samples->form_cpu[run] = (swarm.started_cpu - swarm.stopped_cpu) * 1e6 / n;

    swarm.n_asked = 0;
    start = bench_now();
    start_cpu = bench_clock(swarm.cpu);
    swarm_idle(&swarm, IDLE_S);
    cpu = bench_clock(swarm.cpu) - start_cpu;
    n_beats = swarm.n_beats - swarm.started_beats;
    due = (bench_now() - start) * 1e3 / (job.lease_ms / LEASE_BEATS) * n;
    samples->beats[run] = cpu / (bench_now() - start) * (n_beats < due ? due / n_beats : 1);
    samples->asked[run] = 100 * swarm.n_asked / n_beats;
    samples->form_cpu[run] -= (swarm.started_beats - swarm.stopped_beats) * cpu / n_beats * 1e6 / n;
    swarm_close(&swarm);
    real_job_stop(&job);
}

/* A node that stands still */

/* Seconds from SIGSTOP of a node of `n_nodes` to the last START of the next generation; a spare is there. */
static double replace(int n_nodes)
{
    struct agent_config config;
    struct swarm swarm, victim;
    double start;
    pid_t stopped;

    begin(&swarm, &config, n_nodes, n_nodes - 1);
    stopped = fork();
    if (stopped == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        swarm_open(&victim, &config, 1);
        swarm_join(&victim, 1);
        swarm_idle(&victim, 1000000);
    }
    swarm_join(&swarm, n_nodes - 3);
    swarm_await(&swarm, &swarm.n_started, n_nodes - 2, "nodes that have started");
    swarm_join(&swarm, 1);
    swarm_await(&swarm, &swarm.n_welcomed, n_nodes - 1, "a spare that was let in");
    swarm_idle(&swarm, 0.5);
    swarm.n_started = 0;
    kill(stopped, SIGSTOP);
    start = bench_now();
    swarm_await(&swarm, &swarm.n_started, n_nodes - 1,
                "nodes that have started without the one that stands still");
    kill(stopped, SIGKILL);
    waitpid(stopped, NULL, 0);
    swarm_close(&swarm);
    real_job_stop(&job);
    return swarm.started_at - start;
}

/* Real nodes that are killed */

enum loss {
    LOSS_PROVED, /* the agent of a member is killed: its guard proves that no rank of it is left */
    LOSS_LEASE,  /* its guard is killed too: the ranks may run until their lease is over */
    LOSS_LEADER  /* agent and guard of the node that leads are killed */
};

/*
 * A job of two nodes loses one, and its spare takes the seat. Returns how long it takes until the last worker
 * of the next generation is started:
 *   LOSS_PROVED  from the kill, in seconds: sweeping and the proof itself are in it
 *   LOSS_LEASE   from the end of the coordinator's wait for the lease, in seconds
 *   LOSS_LEADER  from the kill, in leases
 */
static double lose(enum loss loss, int run, int n_runs)
{
    const double lease_s = job.lease_ms * 1e-3;
    char run_dir[sizeof directory + 32];
    struct real_restart restart;
    double killed_at;
    pid_t guards[2];

    snprintf(run_dir, sizeof run_dir, "%s/%d-%d", directory, (int)loss, run);
    begin_job(2, run_dir);
    guards[0] = real_job_start(&job, "/bin/sleep", "1000000");
    real_job_await(&job, "this node hosts", 1); /* so it is the one that leads */
    guards[1] = real_job_start(&job, "/bin/sleep", "1000000");
    real_job_await_workers(&job, 2);
    real_job_start(&job, "/bin/sleep", "1000000");
    real_job_await(&job, "as a spare", 1);
    /*
     * Within a lease each node has read the record of the leader, and may lead. The kills are spread over a
     * third of a lease, the time between two writes of that record.
     */
    usleep((useconds_t)(1e6 * lease_s * (1 + run / (3.0 * n_runs))));
    killed_at = bench_clock(CLOCK_REALTIME);
    real_node_kill(guards[loss == LOSS_LEADER ? 0 : 1], loss != LOSS_PROVED);
    real_job_await_restart(&job, &restart);
    real_job_stop(&job);
    errno = 0;
    if (restart.term != (loss == LOSS_LEADER ? 2 : 1))
        bench_die("another node was lost than the one that was killed");
    if (loss != LOSS_PROVED && restart.fenced_s < lease_s)
        bench_die("a lease that nothing has proved over was not waited for");
    if (loss == LOSS_LEASE)
        return restart.spawned_s - restart.fenced_s;
    return (restart.spawned_at - killed_at) / (loss == LOSS_LEADER ? lease_s : 1);
}

/* Real nodes that end */

static double run_real_nodes(int n)
{
    double start;

    begin_job(n, NULL);
    start = bench_now();
    for (int i = 0; i < n; i++)
        real_job_start(&job, "/bin/true", NULL);
    real_job_wait(&job);
    return bench_now() - start;
}

/* The table */

/*
 * The exponent e of seconds ~ n^e over the sizes, of medians of values per node. A value that is lost in the
 * noise has no logarithm, and is left out.
 */
static double exponent(const double *per_node, int n_sizes)
{
    double x = 0, y = 0, xx = 0, xy = 0;
    int n = 0;

    for (int i = 0; i < n_sizes; i++) {
        const double lx = log(sizes[i]), ly = log(per_node[i] * sizes[i]);

        if (per_node[i] > 0)
            n++, x += lx, y += ly, xx += lx * lx, xy += lx * ly;
    }
    return n < 2 ? 0 : (n * xy - x * y) / (n * xx - x * x);
}

static void add(struct report *report, const char *what, int n_nodes, const char *unit, const double *ours,
                const double *peer, double limit, int n)
{
    double limits[MAX_RUNS];
    char words[64];

    for (int i = 0; i < n; i++)
        limits[i] = limit;
    snprintf(words, sizeof words, n_nodes > 0 ? "%s, %d nodes" : "%s", what, n_nodes);
    report_add(report, &(struct report_row){ words, unit, false, ours, limit > 0 ? limits : NULL, peer, n,
                                             "target", "bare handshakes" });
}

int main(int argc, char **argv)
{
    static const struct {
        enum loss loss;
        const char *what, *unit;
        double limit;
    } losses[] = { { LOSS_PROVED, "a node whose agent is killed is replaced", "s", 0.3 },
                   { LOSS_LEASE, "a node is replaced, from its lease's end", "s", 0.3 },
                   { LOSS_LEADER, "the node that leads is replaced", "leases", 2.5 } };
    const int n_runs = bench_runs(3), most = bench_setting("RENDEZVOUS_NODES", 10000, 10000);
    const int n_real = bench_setting("RENDEZVOUS_REAL_NODES", 512, REAL_NODES_MOST);
    static struct samples samples[MAX_SIZES];
    double of[4][MAX_SIZES], times[MAX_RUNS]; /* medians of join, form and their CPU times */
    struct rlimit files;
    struct report report;
    int n_sizes = 0;
    FILE *file;

    if (argc != 3) {
        fprintf(stderr, "usage: bench_rendezvous JSON_FILE FSDPRUN\n");
        return 2;
    }
    job.lease_ms = 1000 * bench_setting("RENDEZVOUS_LEASE", LEASE_MS / 1000, 600);
    signal(SIGPIPE, SIG_IGN); /* the coordinator may close a connection first */
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    if (files.rlim_cur < (rlim_t)most + 256)
        bench_die("too few open files are allowed: see RENDEZVOUS_NODES");
    if (mkdtemp(directory) == NULL)
        bench_die(directory);
    snprintf(secret_file, sizeof secret_file, "%s/secret", directory);
    snprintf(log_file, sizeof log_file, "%s/log", directory);
    job.fsdprun = argv[2];
    job.secret_file = secret_file;
    job.log_file = log_file;
    atexit(clean_up);
    umask(077);
    file = fopen(secret_file, "w");
    if (file == NULL || fputs(secret, file) < 0 || fclose(file) != 0)
        bench_die(secret_file);
    if (!report_begin(&report, argv[1]))
        return 1;
    for (; n_sizes < MAX_SIZES && sizes[n_sizes] <= most; n_sizes++) {
        struct samples *at = &samples[n_sizes];
        const int n = sizes[n_sizes];

        for (int run = 0; run < n_runs; run++)
            measure(at, run, n);
        add(&report, "join", n, "ms", at->join, at->bare, 0, n_runs);
        add(&report, "join, CPU of the coordinator", n, "ms", at->join_cpu, at->bare_cpu, 0, n_runs);
        add(&report, "nodes that dialled again", n, "", at->again, NULL, 0, n_runs);
        add(&report, "form again", n, "us", at->form, NULL, 30, n_runs);
        add(&report, "form again, CPU of the coordinator", n, "us", at->form_cpu, NULL, 30, n_runs);
        add(&report, "beats", n, "cores", at->beats, NULL, 0.5, n_runs);
        add(&report, "beats over the session", n, "%", at->asked, NULL, 0, n_runs);
        of[0][n_sizes] = report_quantile(at->join, n_runs, 0.5);
        of[1][n_sizes] = report_quantile(at->join_cpu, n_runs, 0.5);
        of[2][n_sizes] = report_quantile(at->form, n_runs, 0.5);
        of[3][n_sizes] = report_quantile(at->form_cpu, n_runs, 0.5);
    }
    for (int i = 0; n_sizes > 1 && i < 4; i++) {
        static const char *const names[] = { "growth of join", "growth of join, CPU", "growth of form again",
                                             "growth of form again, CPU" };
        const double growth = exponent(of[i], n_sizes);

        add(&report, names[i], 0, "", &growth, NULL, 1.1, 1);
    }
    job.lease_ms = LEASE_MS;
    for (int run = 0; run < n_runs; run++)
        times[run] = replace(sizes[0]);
    add(&report, "a node that stands still is replaced", 0, "s", times, NULL,
        LEASE_FENCE_MS(LEASE_MS) * 1e-3 + 0.3, n_runs);
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        for (int run = 0; run < n_runs; run++)
            times[run] = lose(losses[i].loss, run, n_runs);
        add(&report, losses[i].what, 0, losses[i].unit, times, NULL, losses[i].limit, n_runs);
    }
    for (int run = 0; run < n_runs; run++)
        times[run] = run_real_nodes(n_real);
    add(&report, "real nodes, exec to end", n_real, "s", times, NULL, 0, n_runs);
    return report_end(&report) ? 0 : 1;
}

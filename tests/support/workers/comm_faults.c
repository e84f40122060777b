/* Collectives between real processes that die, end, stop or are cut off; links libfsdp. What a process that
 * lives on can do wrong is in tests/unit/comm/test_grid_faults.c.
 *
 *   comm_faults kill W NODES SEED REPEATS          SIGKILL of a random rank: FSDP_ERR_PEER on all others, in
 *     time
 *   comm_faults stop W NODES                       a stopped rank is waited for, not given up
 *   comm_faults last W NODES                       who ends right after its last collective hurts nobody
 *   comm_faults cut W NODES COMMAND                COMMAND cuts the network: FSDP_ERR_PEER on all, in seconds
 *   comm_faults idle W NODES COMMAND               the same while all but one wait and nothing is under way
 *
 * Exit 0 if all is as it must be; else 1, with words on stderr.
 */
#include "tests/support/workers/comm_rank.h"

/* Generous: it is milliseconds, but a machine that is busy with other things must not fail these tests. */
enum { DEADLINE_S = 60, LATE_S = 10 };

/* Death */

enum { SAW_PEER = 40 };

static struct {
    int n_opened, victim, stage, first_absent;
    double begun_s, act_s, killed_s;
} plot;

static void count_opened(struct mini_agent *a, int r, const char *text)
{
    (void)a, (void)r, (void)text;
    plot.n_opened++;
}

enum { GATHER, REDUCE_SCATTER, ALL_REDUCE, BARRIER, BROADCAST, COLLECTIVES };

/* One collective on n elements of each rank. */
static enum fsdp_status call(int which, int r, float *data, size_t n)
{
    switch (which) {
    case GATHER:
        return fsdp_all_gather(comm, data + (size_t)r * n, data, n, FSDP_F32, NULL, &err);
    case REDUCE_SCATTER:
        return fsdp_reduce_scatter(comm, data, data + (size_t)r * n, n, FSDP_F32, FSDP_MEAN, NULL, &err);
    case ALL_REDUCE:
        return fsdp_all_reduce(comm, data, n, FSDP_F32, FSDP_SUM, NULL, &err);
    case BROADCAST:
        return fsdp_broadcast(comm, data, n, 0, NULL, &err);
    default:
        return fsdp_barrier(comm, &err);
    }
}

/* Does collectives until one fails; with FSDP_ERR_PEER all is well. */
static int until_peer_rank(int r, void *arg)
{
    enum fsdp_status status;
    uint64_t state = want.seed;
    float *data;

    (void)arg;
    if (join_all(r, 4096) != FSDP_OK)
        return failed("opening");
    data = calloc((size_t)want.W * 20000, sizeof *data);
    link_event(link_, "{\"event\": \"opened\"}", &err);
    do {
        const size_t n = draw(&state) % 20000;

        status = call((int)(draw(&state) % BROADCAST), r, data, n);
    } while (status == FSDP_OK);
    if (status == FSDP_ERR_PEER && fsdp_barrier(comm, &err) != FSDP_ERR_PEER)
        return failed("the failure did not stick");
    if (status != FSDP_ERR_PEER)
        return failed("not a peer's death");
    free(data);
    part();
    return SAW_PEER;
}

/* Runs a world, and returns whether any of its ranks ended other than with 0. */
static int run_ranks(int (*rank_main)(int rank, void *arg), void *arg)
{
    int bad = 0;

    mini_run(&agent, rank_main, arg);
    for (int r = 0; r < want.W; r++)
        bad |= agent.statuses[r] != 0;
    return bad;
}

/* Kill the victim a random moment after all have opened the group. */
static int kill_in_time(struct mini_agent *a)
{
    double left;

    if (plot.stage == 0 && plot.n_opened == a->W) {
        plot.act_s = mini_now() + 1e-6 * (double)(mix(want.seed) % 20000);
        plot.stage = 1;
    }
    if (plot.stage != 1)
        return plot.stage == 2 && mini_now() > plot.killed_s + DEADLINE_S ? (mini_die("a rank hangs"), 0)
                                                                          : 100;
    left = plot.act_s - mini_now();
    if (left > 0.002)
        return (int)(left * 1000);
    while (mini_now() < plot.act_s)
        ;
    plot.killed_s = mini_now();
    kill(a->pids[plot.victim], SIGKILL);
    plot.stage = 2;
    return 100;
}

static int run_kill_once(double *slowest_s)
{
    int bad = 0;

    memset(&plot, 0, sizeof plot);
    plot.victim = (int)(mix(want.seed + 77) % (uint64_t)want.W);
    agent.on_event = count_opened;
    agent.next_ms = kill_in_time;
    mini_run(&agent, until_peer_rank, NULL);
    for (int r = 0; r < want.W; r++) {
        const int status = agent.statuses[r];
        const double took = agent.ended_s[r] - plot.killed_s;

        if (r == plot.victim ? !(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)
                             : !(WIFEXITED(status) && WEXITSTATUS(status) == SAW_PEER)) {
            fprintf(stderr, "rank %d (victim %d) ended with %#x\n", r, plot.victim, status);
            bad = 1;
        }
        if (r != plot.victim && took > *slowest_s)
            *slowest_s = took;
    }
    return bad;
}

static int run_kill(int repeats)
{
    double slowest = 0;
    int bad = 0, n_late = 0;

    for (int i = 0; i < repeats && bad == 0; i++, want.seed++) {
        double this_time = 0;

        bad = run_kill_once(&this_time);
        n_late += this_time > LATE_S;
        slowest = this_time > slowest ? this_time : slowest;
    }
    fprintf(stderr, "%d kills, the last of the others ended after %.1f ms at most\n", repeats, slowest * 1e3);
    return bad != 0 || n_late > 0;
}

/* Once all but those that left have ended, their wait is over. */
static int end_the_leaver(struct mini_agent *a)
{
    int n_live = 0;

    for (int r = 0; r < plot.first_absent; r++)
        n_live += a->socks[r] >= 0;
    for (int r = plot.first_absent; r < a->W && n_live == 0; r++)
        atomic_store(&a->pages[r]->abort_word, 1);
    return 10;
}

/* A rank that is done */

/*
 * Of each collective in turn the last call: the rank that comes late keeps its rail waiting, the others end
 * at once.
 */
static int last_rank(int r, void *arg)
{
    const int which = *(int *)arg;
    float *data = calloc((size_t)want.W * 4, sizeof *data);
    enum fsdp_status status = data == NULL ? FSDP_ERR_NOMEM : join_all(r, 0);

    if (status == FSDP_OK && r == 1)
        poll(NULL, 0, 100); /* longer than anybody waits before looking who has ended */
    if (status == FSDP_OK)
        status = call(which, r, data, 4);
    free(data);
    if (status != FSDP_OK)
        return failed("the last collective");
    _exit(0);
}

static int run_last(void)
{
    int bad = 0;

    for (int which = 0; which < COLLECTIVES; which++)
        bad |= run_ranks(last_rank, &which);
    return bad;
}

/* A cut */

static const char *cut_command;

static int waiting_rank(int r, void *arg)
{
    (void)arg;
    if (join_all(r, 0) != FSDP_OK)
        return failed("opening");
    link_event(link_, "{\"event\": \"opened\"}", &err);
    if (r >= want.W - want.W / want.n_nodes) {
        while (link_check(link_, &err) == FSDP_OK)
            poll(NULL, 0, 5); /* nobody of the last node ever comes */
        return SAW_PEER;
    }
    if (fsdp_barrier(comm, &err) != FSDP_ERR_PEER)
        return failed("the cut was not noticed");
    part();
    return SAW_PEER;
}

static int cut_in_time(struct mini_agent *a)
{
    if (plot.stage == 0 && plot.n_opened == a->W) {
        if (system(cut_command) != 0)
            mini_die(cut_command);
        plot.killed_s = mini_now();
        plot.stage = 1;
    }
    if (plot.stage == 1 && mini_now() > plot.killed_s + DEADLINE_S)
        mini_die("a rank hangs");
    return end_the_leaver(a);
}

static int run_cut(int (*rank_main)(int rank, void *arg))
{
    double slowest = 0;
    int bad = 0;

    agent.on_event = count_opened;
    plot.first_absent = rank_main == waiting_rank ? want.W - want.W / want.n_nodes : want.W;
    agent.next_ms = cut_in_time;
    mini_run(&agent, rank_main, NULL);
    for (int r = 0; r < want.W; r++) {
        bad |= !WIFEXITED(agent.statuses[r]) || WEXITSTATUS(agent.statuses[r]) != SAW_PEER;
        if (agent.ended_s[r] - plot.killed_s > slowest)
            slowest = agent.ended_s[r] - plot.killed_s;
    }
    fprintf(stderr, "the last rank noticed the cut after %.1f s\n", slowest);
    return bad;
}

/* A stopped rank */

static int stop_rank(int r, void *arg)
{
    const size_t n = 2000000; /* more than the sockets between two hosts hold */
    float *data = calloc((size_t)want.W * n, sizeof *data);

    (void)arg;
    if (join_all(r, 0) != FSDP_OK)
        return failed("opening");
    if (r == want.W - 1) {
        link_event(link_, "{\"event\": \"stopping\"}", &err);
        raise(SIGSTOP);
    }
    for (int i = 0; i < 2; i++)
        if (fsdp_all_gather(comm, data + (size_t)r * n, data, n, FSDP_F32, NULL, &err) != FSDP_OK)
            return failed("all_gather across a stop");
    free(data);
    part();
    return 0;
}

static void note_stop(struct mini_agent *a, int r, const char *text)
{
    (void)a, (void)r, (void)text;
    plot.begun_s = mini_now();
}

/* Longer than any time-out of a cut link. */
static int wake_it(struct mini_agent *a)
{
    if (plot.stage == 0 && plot.begun_s > 0 && mini_now() > plot.begun_s + (want.n_nodes > 1 ? 6.0 : 0.5)) {
        kill(a->pids[a->W - 1], SIGCONT);
        plot.stage = 1;
    }
    return 20;
}

static int run_stop(void)
{
    agent.on_event = note_stop;
    agent.next_ms = wake_it;
    return run_ranks(stop_rank, NULL) != 0 || plot.stage != 1;
}

int main(int argc, char **argv)
{
    if (!read_want(argc, argv))
        return 2;
    if (strcmp(argv[1], "kill") == 0)
        return run_kill(want.rounds);
    if (strcmp(argv[1], "stop") == 0)
        return run_stop();
    if (strcmp(argv[1], "last") == 0)
        return run_last();
    cut_command = argc > 4 ? argv[4] : "false";
    if (strcmp(argv[1], "cut") == 0)
        return run_cut(until_peer_rank);
    if (strcmp(argv[1], "idle") == 0)
        return run_cut(waiting_rank);
    return 2;
}

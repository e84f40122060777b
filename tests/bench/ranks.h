/* Ranks of this host for a bench: processes that have a communicator, each on a CPU of its own. */
#ifndef TESTS_BENCH_RANKS_H
#define TESTS_BENCH_RANKS_H

#include <sched.h>
#include <stddef.h>

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"
#include "tests/bench/bench.h"
#include "tests/support/fakes/mini_agent.h"

enum { RANKS_MOST = 4, RANKS_OPS = 2, RANKS_SIZES = 4, RANKS_RUNS = 31 };

/* What is compared: ours, the limit, and the peer, which take turns. */
enum way { OURS, LIMIT, PEER, N_WAYS };

/* Each rank writes its turns, and the bench reads them when all have ended. */
typedef struct span ranks_results[RANKS_OPS][RANKS_SIZES][N_WAYS][RANKS_RUNS][RANKS_MOST];

struct ranks {
    const char *ops[RANKS_OPS], *limit_name, *peer_name; /* peer_name NULL: there is no peer */
    const size_t *sizes; /* bytes; the last is 0 if there are fewer than all */
    int runs, warm;
    /* Called once by each rank; returns what `turn` is given. */
    void *(*prepare)(struct fsdp_comm *comm);
    /* One turn of this rank; it writes spans[rank]. */
    enum fsdp_status (*turn)(void *own, int op, enum way way, size_t bytes, struct span *spans,
                             struct fsdp_err *err);
    int W;
    ranks_results *results;
};

/* Collectives in a turn: as many as move 64 MiB, 16 at most. */
static inline size_t ranks_turns(size_t bytes)
{
    return (64 << 20) / bytes > 16 ? 16 : (64 << 20) / bytes;
}

static inline enum fsdp_status ranks_all_turns(const struct ranks *ranks, struct fsdp_comm *comm,
                                               struct fsdp_err *err)
{
    void *own = ranks->prepare(comm);
    enum fsdp_status status = FSDP_OK;

    for (int op = 0; op < RANKS_OPS; op++)
        for (int s = 0; s < RANKS_SIZES && ranks->sizes[s] > 0; s++)
            for (int i = -ranks->warm; i < bench_runs(ranks->runs); i++)
                for (int way = 0; way < N_WAYS && status == FSDP_OK; way++) {
                    status = fsdp_barrier(comm, err);
                    if (status == FSDP_OK)
                        status = fsdp_barrier(comm, err); /* the first woke all ranks */
                    if (status == FSDP_OK)
                        status = ranks->turn(own, op, (enum way)way, ranks->sizes[s],
                                             (*ranks->results)[op][s][way][i < 0 ? 0 : i], err);
                }
    return status;
}

/* A bench's turns are over before the scheduler has spread the ranks: pins this one, as far as CPUs go. */
static inline void rank_pin(int rank)
{
    cpu_set_t all, one;
    int n = 0;

    if (sched_getaffinity(0, sizeof all, &all) < 0)
        return;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all) && n++ == rank % CPU_COUNT(&all)) {
            CPU_ZERO(&one);
            CPU_SET(cpu, &one);
            sched_setaffinity(0, sizeof one, &one);
        }
}

static inline int rank_main(int rank, void *arg)
{
    const struct ranks *ranks = arg;
    struct comm_config config = { .name = "bench", .rank = rank, .size = ranks->W };
    struct fsdp_comm *comm = NULL;
    struct fsdp_err err = { 0 };
    enum fsdp_status status;

    rank_pin(rank);
    status = link_open(&config.link, &err);
    if (status == FSDP_OK)
        status = comm_create(&comm, &config, &err);
    if (status == FSDP_OK)
        status = ranks_all_turns(ranks, comm, &err);
    if (status != FSDP_OK)
        fprintf(stderr, "%s\n", err.message);
    fsdp_comm_destroy(comm);
    link_close(config.link);
    return status != FSDP_OK;
}

/* Memory of this process, or of all that are forked later. */
static inline void *ranks_map(size_t size_bytes, bool shared)
{
    void *at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_ANONYMOUS | (shared ? MAP_SHARED : MAP_PRIVATE), -1, 0);

    if (at == MAP_FAILED)
        bench_die("mmap");
    madvise(at, size_bytes, MADV_HUGEPAGE);
    return at;
}

static inline void ranks_add_rows(const struct ranks *ranks, struct report *report)
{
    const int n = bench_runs(ranks->runs);

    for (int op = 0; op < RANKS_OPS; op++)
        for (int s = 0; s < RANKS_SIZES && ranks->sizes[s] > 0; s++) {
            const size_t bytes = ranks->sizes[s];
            double rates[N_WAYS][RANKS_RUNS];
            char what[80];

            for (int way = 0; way < N_WAYS; way++)
                for (int i = 0; i < n; i++)
                    rates[way][i] = 1e-9 * (double)(bytes * ranks_turns(bytes)) /
                                    spans_seconds((*ranks->results)[op][s][way][i], ranks->W);
            snprintf(what, sizeof what, "%s, %zu MiB, %d processes", ranks->ops[op], bytes >> 20, ranks->W);
            report_add(report, &(struct report_row){ what, "GB/s", true, rates[OURS], rates[LIMIT],
                                                     ranks->peer_name != NULL ? rates[PEER] : NULL, n,
                                                     ranks->limit_name, ranks->peer_name });
        }
}

/* Runs all turns on W ranks, and adds their rows. A rank that fails ends the bench. */
static inline void ranks_run(struct ranks *ranks, int W, struct report *report)
{
    static struct mini_agent agent;

    ranks->W = W;
    ranks->results = ranks_map(sizeof *ranks->results, true);
    agent = (struct mini_agent){ .W = W, .n_nodes = 1, .abort_on_death = true };
    mini_run(&agent, rank_main, ranks);
    for (int r = 0; r < W; r++)
        if (agent.statuses[r] != 0)
            exit(1);
    ranks_add_rows(ranks, report);
    munmap(ranks->results, sizeof *ranks->results);
}

#endif

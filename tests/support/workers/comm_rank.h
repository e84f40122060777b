/*
 * What comm_faults and programs like it share: what is wanted, the agent they play, and a rank that joins a
 * group and leaves it. One program, one set of these: a rank is a process of its own.
 */
#ifndef TESTS_COMM_RANK_H
#define TESTS_COMM_RANK_H

#include "shard_runtime/comm/comm.h"
#include "shard_runtime/comm/link_client.h"
#include "tests/support/fakes/mini_agent.h"

static struct {
    int W, n_nodes, rounds;
    uint64_t seed;
} want;

static struct mini_agent agent;

/* Of this rank. */
static struct fsdp_err err;
static struct link *link_;
static struct fsdp_comm *comm;
static int rank;

static inline uint64_t mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

static inline uint64_t draw(uint64_t *state)
{
    return mix((*state)++);
}

static inline int failed(const char *what)
{
    fprintf(stderr, "rank %d: %s: %s\n", rank, what, err.message);
    return 1;
}

static inline enum fsdp_status join(int r, size_t chunk)
{
    struct comm_config config = { .name = "world", .rank = r, .size = want.W, .chunk_bytes = chunk };
    enum fsdp_status status = link_open(&link_, &err);

    rank = r;
    config.link = link_;
    return status == FSDP_OK ? comm_create(&comm, &config, &err) : status;
}

/*
 * Past this, every rank has opened the group: what one does from here on cannot hit another that still opens
 * it.
 */
static inline enum fsdp_status join_all(int r, size_t chunk)
{
    enum fsdp_status status = join(r, chunk);

    return status == FSDP_OK ? fsdp_barrier(comm, &err) : status;
}

static inline void part(void)
{
    fsdp_comm_destroy(comm);
    link_close(link_);
}

/* PROGRAM MODE W NODES [SEED [ROUNDS]] */
static inline bool read_want(int argc, char **argv)
{
    if (argc < 4)
        return false;
    want.W = atoi(argv[2]);
    want.n_nodes = atoi(argv[3]);
    want.seed = argc > 4 ? strtoull(argv[4], NULL, 10) : 1;
    want.rounds = argc > 5 ? atoi(argv[5]) : 1;
    agent.W = want.W;
    agent.n_nodes = want.n_nodes;
    return want.W >= 1 && want.W <= MINI_RANKS && want.n_nodes >= 1 && want.W % want.n_nodes == 0;
}

#endif

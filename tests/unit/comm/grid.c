#include "tests/unit/comm/grid.h"

struct grid grid;

static void *run_rank(void *user)
{
    struct rank *rank = user;

    if (grid.joins && (grid_join(rank) != FSDP_OK || fsdp_barrier(rank->comm, &rank->err) != FSDP_OK))
        rank->status = grid_bad(rank, "opening");
    else
        rank->status = grid.body(rank);
    fsdp_comm_destroy(rank->comm);
    link_close(rank->link); /* the agent joins this thread now */
    return NULL;
}

/*
 * In place of a fork. The link is opened here, as its descriptor is in the environment of the whole process.
 */
static void start_rank(struct mini_agent *agent, int r, int fd)
{
    struct rank *rank = &grid.ranks[r];
    char text[16];

    (void)agent;
    *rank = (struct rank){ .r = r };
    snprintf(text, sizeof text, "%d", fd);
    setenv(FSDP_LINK_FD_ENV, text, 1);
    if (link_open(&rank->link, &rank->err) != FSDP_OK)
        mini_die(rank->err.message);
    if (pthread_create(&rank->thread, NULL, run_rank, rank) != 0)
        mini_die("a thread");
}

static int join_rank(struct mini_agent *agent, int r)
{
    (void)agent;
    pthread_join(grid.ranks[r].thread, NULL);
    return grid.ranks[r].status;
}

int grid_run(struct shape shape, size_t chunk_bytes, int (*body)(struct rank *rank))
{
    int n_bad = 0;

    grid.shape = shape;
    grid.chunk = chunk_bytes;
    grid.body = body;
    grid.agent.W = shape.W;
    grid.agent.n_nodes = shape.n_nodes;
    grid.agent.start = start_rank;
    grid.agent.join = join_rank;
    mini_run(&grid.agent, NULL, NULL);
    for (int r = 0; r < shape.W; r++)
        n_bad += grid.ranks[r].status != 0;
    return n_bad;
}

int grid_run_joined(struct shape shape, size_t chunk_bytes, int (*body)(struct rank *rank))
{
    grid.joins = true;
    return grid_run(shape, chunk_bytes, body);
}

enum fsdp_status grid_join(struct rank *rank)
{
    const struct comm_config config = {
        .name = "world", .link = rank->link, .rank = rank->r, .size = grid.shape.W, .chunk_bytes = grid.chunk
    };

    return comm_create(&rank->comm, &config, &rank->err);
}

int grid_bad(const struct rank *rank, const char *what)
{
    fprintf(stderr, "%d ranks on %d nodes, rank %d: %s: %s\n", grid.shape.W, grid.shape.n_nodes, rank->r,
            what, rank->err.message);
    return 1;
}

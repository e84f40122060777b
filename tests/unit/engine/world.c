#include "tests/unit/engine/world.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/comm_impl.h"
#include "shard_runtime/comm/reduce.h"
#include "shard_runtime/engine/context.h"

enum { MAX_RANKS = 8 };

/* Not the test framework's: the programs under the thread sanitizer have none. */
static void require(bool holds, const char *words)
{
    if (holds)
        return;
    fprintf(stderr, "a world of threads: %s\n", words);
    abort();
}

struct meeting {
    pthread_barrier_t barrier;
    const void *send[MAX_RANKS];
    int W;
    pthread_mutex_t lock; /* of the list below; the world's alone */
    struct meeting *parts;
    struct meeting *next;
    char name[COMM_NAME_BYTES]; /* of a part */
};

static void meet(struct fsdp_comm *comm, const void *send)
{
    struct meeting *meeting = comm->state;

    meeting->send[comm->rank] = send;
    pthread_barrier_wait(&meeting->barrier);
}

static void part(struct fsdp_comm *comm)
{
    struct meeting *meeting = comm->state;

    pthread_barrier_wait(&meeting->barrier);
}

static void thread_close(struct fsdp_comm *comm)
{
    (void)comm; /* meetings end with the world */
}

/* Members find their part by its name; the first to come makes it. */
static enum fsdp_status thread_split(struct fsdp_comm *world, struct fsdp_comm *part, const int *ranks,
                                     struct fsdp_err *err)
{
    struct meeting *all = world->state, *mine;

    (void)ranks;
    (void)err;
    pthread_mutex_lock(&all->lock);
    for (mine = all->parts; mine != NULL && strcmp(mine->name, part->name) != 0; mine = mine->next)
        ;
    if (mine == NULL) {
        mine = calloc(1, sizeof *mine);
        mine->W = part->size;
        strcpy(mine->name, part->name);
        pthread_barrier_init(&mine->barrier, NULL, (unsigned)part->size);
        mine->next = all->parts;
        all->parts = mine;
    }
    assert(mine->W == part->size);
    pthread_mutex_unlock(&all->lock);
    part->state = mine;
    return FSDP_OK;
}

/*
 * The sums of the real back ends, over the other threads' own buffers: of row `row` of each, or of its
 * only one.
 */
static void reduce(const struct fsdp_comm *comm, const struct comm_call *call, size_t row, char *result)
{
    const struct meeting *meeting = comm->state;
    const enum fsdp_dtype dtype = (enum fsdp_dtype)call->dtype;
    const void *sources[MAX_RANKS];

    for (int r = 0; r < comm->size; r++)
        sources[r] = (const char *)meeting->send[r] + row * call->size_bytes;
    reduce_sources(result, dtype, sources, dtype, comm->size, comm_call_elems(call),
                   (enum fsdp_reduce_op)call->op, comm->size);
}

static enum fsdp_status thread_run(struct fsdp_comm *comm, const struct comm_work *work, struct fsdp_err *err)
{
    const struct meeting *meeting = comm->state;
    const struct comm_call *call = &work->call;
    const bool scatters = call->kind == COMM_REDUCE_SCATTER;
    const bool reduces = scatters || call->kind == COMM_ALL_REDUCE;
    const size_t bytes = call->size_bytes;
    char *result = reduces ? malloc(bytes + 1) : NULL;

    (void)err;
    if (call->kind != COMM_BARRIER)
        meet(comm, work->send);
    for (int r = 0; r < comm->size && call->kind == COMM_ALL_GATHER; r++)
        if ((char *)work->recv + bytes * (size_t)r != meeting->send[r])
            memcpy((char *)work->recv + bytes * (size_t)r, meeting->send[r], bytes);
    if (reduces)
        reduce(comm, call, scatters ? (size_t)comm->rank : 0, result);
    if (call->kind == COMM_BROADCAST && comm->rank != (int)call->root)
        memcpy(work->recv, meeting->send[call->root], bytes);
    part(comm);
    if (reduces)
        memcpy(work->recv, result, bytes);
    free(result);
    return FSDP_OK;
}

static const struct comm_ops thread_ops = {
    .name = "threads",
    .close = thread_close,
    .run = thread_run,
    .split = thread_split,
};

struct rank_thread {
    struct meeting *meeting;
    int rank;
    const char *numerics;
    world_body body;
    void *user;
};

static void *run_rank(void *argument)
{
    const struct rank_thread *rank = argument;
    const struct fsdp_context_options options = { .numerics = rank->numerics, .threads = 1 };
    struct fsdp_comm *comm = calloc(1, sizeof *comm);
    struct fsdp_context *context;
    struct fsdp_err err = { 0 };
    struct link *link;

    require(link_open(&link, &err) == FSDP_OK, err.message);
    *comm = (struct fsdp_comm){ .ops = &thread_ops,
                                .link = link,
                                .rank = rank->rank,
                                .size = rank->meeting->W,
                                .name = "world",
                                .state = rank->meeting };
    require(context_create_on(&context, &options, link, comm, &err) == FSDP_OK, err.message);
    rank->body(context, rank->user);
    fsdp_context_destroy(context);
    return NULL;
}

void world_run(int W, world_body body, void *user)
{
    world_run_on(W, "ref", body, user);
}

void world_run_on(int W, const char *numerics, world_body body, void *user)
{
    struct meeting meeting = { .W = W };
    struct rank_thread ranks[MAX_RANKS];
    pthread_t threads[MAX_RANKS];

    assert(W <= MAX_RANKS);
    pthread_barrier_init(&meeting.barrier, NULL, (unsigned)W);
    pthread_mutex_init(&meeting.lock, NULL);
    for (int r = 0; r < W; r++) {
        ranks[r] = (struct rank_thread){
            .meeting = &meeting, .rank = r, .numerics = numerics, .body = body, .user = user
        };
        require(pthread_create(&threads[r], NULL, run_rank, &ranks[r]) == 0, "no thread for a rank");
    }
    for (int r = 0; r < W; r++)
        pthread_join(threads[r], NULL);
    while (meeting.parts != NULL) {
        struct meeting *part = meeting.parts;

        meeting.parts = part->next;
        pthread_barrier_destroy(&part->barrier);
        free(part);
    }
    pthread_mutex_destroy(&meeting.lock);
    pthread_barrier_destroy(&meeting.barrier);
}

void world_drop(struct fsdp_optimizer *optimizer, struct fsdp_model *model, struct fsdp_module *root)
{
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

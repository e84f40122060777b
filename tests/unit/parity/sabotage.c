#include "tests/unit/parity/sabotage.h"

#include <criterion/criterion.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shard_runtime/engine/context.h"
#include "shard_runtime/engine/model.h"

enum { DELAY_MS = 100 };

static const struct comm_ops *sound;
static struct comm_ops ops;
static int slow;
static enum sabotage sabotage;
static _Thread_local sabotage_listener listens;
static _Thread_local bool in_a_hurry;

static void be_slow(void)
{
    nanosleep(&(struct timespec){ .tv_nsec = DELAY_MS * 1000000 }, NULL);
}

/* One rank after the other, so that the others are ahead of it. */
static bool is_late(const struct fsdp_comm *comm)
{
    return !in_a_hurry && comm->sequence % (uint64_t)comm->size == (uint64_t)comm->rank;
}

static enum fsdp_status run(struct fsdp_comm *comm, const struct comm_work *work, struct fsdp_err *err)
{
    const struct comm_call *call = &work->call;
    const bool gathers = call->kind == COMM_ALL_GATHER, reduces = call->kind == COMM_REDUCE_SCATTER;
    const bool silent = reduces && sabotage == REDUCES_TOO_LITTLE && comm->rank == comm->size - 1;
    void *zeros = silent ? calloc((size_t)comm->size, call->size_bytes + 1) : NULL;
    struct comm_work wrong = *work;
    enum fsdp_status status;

    if (listens != NULL && (gathers || reduces || call->kind == COMM_ALL_REDUCE))
        listens(comm, (enum comm_kind)call->kind, comm_call_elems(call));
    if (((slow & SLOW_GATHER && gathers) || (slow & SLOW_REDUCE && reduces)) && is_late(comm))
        be_slow();
    if (reduces && sabotage == SUMS_FOR_MEANS && call->op == FSDP_MEAN)
        wrong.call.op = FSDP_SUM;
    if (silent)
        wrong.send = zeros;
    status = sound->run(comm, &wrong, err);
    free(zeros);
    if (gathers && sabotage == LOSES_A_ROW && comm->rank == 0)
        memset((char *)work->recv + call->size_bytes * (size_t)(comm->size - 1), 0, call->size_bytes);
    return status;
}

void sabotage_hurry(bool hurries)
{
    in_a_hurry = hurries;
}

void sabotage_listen(sabotage_listener listener)
{
    listens = listener;
}

static void on_phase(enum fsdp_phase phase, void *user)
{
    (void)user;
    if (phase == FSDP_PHASE_BACKWARD)
        be_slow();
}

void sabotage_choose(int slow_at, enum sabotage what)
{
    slow = slow_at;
    sabotage = what;
}

void sabotage_context(struct fsdp_context *context)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

    pthread_mutex_lock(&lock);
    if (sound == NULL) {
        sound = context->comm->ops;
        ops = *sound;
        ops.run = run;
    }
    pthread_mutex_unlock(&lock);
    context->comm->ops = &ops;
    if (slow & SLOW_AFTER_FORWARD && context->rank == 0)
        fsdp_context_on_phase(context, on_phase, NULL);
}

/* Before the first backward: that of the first forward reads the last one's batch. */
static void mix_batches(void *observer, int entry)
{
    struct program *program = observer;

    if (entry < program->plan.n_entries && program->plan.entries[entry].call == program->plan.n_forwards)
        program->batches[0] = program->batches[program->plan.n_forwards - 1];
}

/* Values of the second forward lie where the first one's lie. */
static void share_activations(struct program *program)
{
    const int n = (int)(program->graph.n_values / program->graph.n_forwards);
    struct plan *plan = &program->plan;

    for (int b = 0; b < plan->n_buffers; b++)
        for (int other = 0; other < b && plan->buffers[b].what == PLAN_VALUE; other++)
            if (plan->buffers[other].what == PLAN_VALUE &&
                plan->buffers[other].index + n == plan->buffers[b].index)
                plan->buffers[b].offset = plan->buffers[other].offset;
}

void sabotage_model(struct fsdp_model *model)
{
    struct plan *plan = &model->training.plan;

    if (sabotage == MIXES_BATCHES) {
        model->training.observe = mix_batches;
        model->training.observer = &model->training;
    }
    if (sabotage == SHARES_ACTIVATIONS)
        share_activations(&model->training);

    for (int i = 0; sabotage == MISSES_A_WAIT && i < plan->n_entries; i++)
        if (plan->entries[i].stream == PLAN_COMPUTE)
            plan->entries[i].waits[PLAN_GATHERS] = -1;
}

void sabotage_before_optimizer(const struct fsdp_context *context)
{
    if (slow & SLOW_BEFORE_OPTIMIZER && context->rank == context->W - 1)
        be_slow();
}

/*
 * The one table of the buffers and bytes that entries of each kind read, write, move and send. The list of
 * accesses is made from it here, once for each plan. Sharing, placing, the order of streams, traffic and the
 * trace all use that list.
 */
#include "shard_runtime/plan/entry.h"

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/plan/plan.h"

/* The list of accesses while it is being made, and the entry whose accesses are listed. */
struct lister {
    struct plan *plan;
    int entry;
    bool out_of_memory;
};

/* How an entry uses the buffer that one of its fields names. */
enum how {
    READS = 1,
    WRITES = 2,
    OWN_ROW = 4, /* moves only this rank's row of the buffer, which has W rows */
    UNMOVED = 8, /* moves nothing of the buffer, or a part that moved.c counts */
};

struct use {
    size_t field; /* offset in struct plan_entry: an int */
    int how;
    /* offset of the bool that tells whether the buffer is also read; 0: there is no such field */
    size_t adds;
};

enum { MAX_USES = 20 };

struct kind {
    const char *name;
    enum plan_collective collective;
    void (*sends)(const struct plan *plan, const struct plan_entry *e, struct plan_sent *sent);
    /* lists accesses of buffers that no field names */
    void (*more)(struct lister *l, const struct plan_entry *e);
    struct use uses[MAX_USES];
};

static const struct kind kinds[PLAN_COMPLETE + 1]; /* defined below, after the functions that it names */

static void add_access(struct lister *l, int buffer, int how)
{
    struct plan *plan = l->plan;

    if (buffer < 0 || l->out_of_memory)
        return;
    if (!alloc_room(&plan->accesses, &plan->accesses_room, (size_t)plan->n_accesses,
                    sizeof *plan->accesses)) {
        l->out_of_memory = true;
        return;
    }
    plan->accesses[plan->n_accesses++] = (struct plan_access){
        .entry = l->entry,
        .buffer = buffer,
        .reads = (how & READS) != 0,
        .writes = (how & WRITES) != 0,
        .share = how & UNMOVED   ? 0
                 : how & OWN_ROW ? plan->groups[plan->entries[l->entry].index].W
                                 : 1,
    };
}

static int *field_at(struct plan_entry *e, const struct use *use)
{
    return (int *)(void *)((char *)e + use->field);
}

static void list_uses(struct lister *l, struct plan_entry *e)
{
    const struct kind *kind = &kinds[e->kind];

    for (const struct use *use = kind->uses; use->how != 0; use++) {
        const bool adds = use->adds != 0 && *(const bool *)((const char *)e + use->adds);

        add_access(l, *field_at(e, use), use->how | (adds ? READS : 0));
    }
    if (kind->more != NULL)
        kind->more(l, e);
}

/* Lists the shard of the gradient of parameter `i` of the operation, if the gradient is written there. */
static void list_grad_shard(struct lister *l, const struct plan_entry *e, int i, bool adds)
{
    const struct plan *plan = l->plan;
    const struct graph_op *op = plan->graph->ops[e->index];

    if (plan->options.holds_gradients)
        add_access(l, plan->params[plan_param_index(plan, op->params[i])].grad_shards,
                   UNMOVED | WRITES | (adds ? READS : 0));
}

/*
 * Two entries may run as one pass. The first of them then uses the buffers of both. It also uses the one for
 * the value between them, in case they are run one by one after all.
 */
static void list_second(struct lister *l, const struct plan_entry *e)
{
    if (e->op.with_next)
        list_uses(l, &l->plan->entries[e - l->plan->entries + 1]);
}

static void list_backward(struct lister *l, const struct plan_entry *e)
{
    const struct plan_entry *bias = &l->plan->entries[e->back.bias_entry];

    for (int i = 0; i < l->plan->graph->ops[e->index]->n_params; i++)
        list_grad_shard(l, e, i, e->back.add_d_param[i]);
    list_second(l, e);
    if (e->back.bias_entry == 0)
        return;
    add_access(l, bias->back.d_param[1], WRITES);
    list_grad_shard(l, bias, 1, false);
}

/*
 * Lists the group's whole gradients. Also lists the packed buffers of earlier reductions that may still be in
 * flight, so that this entry does not reuse them.
 */
static void list_pack(struct lister *l, const struct plan_entry *e)
{
    const struct plan_group *group = &l->plan->groups[e->index];
    int held = l->plan->reduce_buffers - 1;

    for (int i = 0; i < group->n_params; i++)
        add_access(l, plan_grad(l->plan, e, group->params[i]), READS);
    for (int before = l->entry - 1; before >= 0 && held > 0; before--)
        if (l->plan->entries[before].kind == PLAN_PACK) {
            add_access(l, l->plan->entries[before].pack.packed, UNMOVED);
            held--;
        }
}

static void list_reduce(struct lister *l, const struct plan_entry *e)
{
    if (e->reduce.into_shards)
        add_access(l, l->plan->groups[e->index].grad_shards, WRITES);
}

static void list_store(struct lister *l, const struct plan_entry *e)
{
    if (e->store.sum < 0)
        add_access(l, l->plan->groups[e->index].grad_shards, WRITES);
}

/*
 * An all-reduce of one float for each coded parameter: over the ranks that shard, and over the tensor group
 * if it splits one of them.
 */
static void send_amax(const struct plan *plan, const struct plan_entry *e, struct plan_sent *sent)
{
    const struct plan_group *group = &plan->groups[e->index];

    sent->over[0].n_ranks = (uint64_t)group->W;
    sent->over[1].n_ranks = (uint64_t)group->amax_parts;
    sent->over[0].size_bytes = sent->over[1].size_bytes = (uint64_t)group->n_coded * sizeof(float);
}

static void send_gather(const struct plan *plan, const struct plan_entry *e, struct plan_sent *sent)
{
    sent->over[0].n_ranks = (uint64_t)e->gather.k;
    sent->over[0].size_bytes = plan->buffers[e->gather.gathered].size_bytes;
}

static void send_reduce(const struct plan *plan, const struct plan_entry *e, struct plan_sent *sent)
{
    sent->over[0].n_ranks = (uint64_t)plan->groups[e->index].W;
    sent->over[0].size_bytes = plan->buffers[e->reduce.packed].size_bytes;
}

static void send_all_reduce(const struct plan *plan, const struct plan_entry *e, struct plan_sent *sent)
{
    const struct plan_group *group = &plan->groups[e->index];

    sent->over[0].n_ranks = (uint64_t)group->R;
    sent->over[0].size_bytes =
        group->grad_row_elems *
        (e->all_reduce.packed >= 0 ? fsdp_dtype_size(group->reduce_dtype) : sizeof(float));
}

/* An all-reduce over the tensor group, of a value or of its gradient, which has the value's bytes. */
static void send_operation(const struct plan *plan, const struct plan_entry *e, struct plan_sent *sent)
{
    const struct graph_op *op = plan->graph->ops[e->index];

    sent->over[0].n_ranks = (uint64_t)op->attrs.n_parts;
    sent->over[0].size_bytes = graph_value_bytes(op->output);
}

/* clang-format off */
#define AT(field)         offsetof(struct plan_entry, field)
#define USE(field, how)   { AT(field), how, 0 }
#define ADDS(field, adds) { AT(field), WRITES, AT(adds) }
/* Counts as a write that moves no bytes, so the entry comes after every earlier use of the buffer. */
#define WAITS_FOR(field)  USE(field, WRITES | UNMOVED)

_Static_assert(GRAPH_MAX_INPUTS == 3 && GRAPH_MAX_PARAMS == 2 && GRAPH_MAX_SAVED == 2 && PLAN_N_PARTS == 2,
               "the table lists each by its number");

static const struct kind kinds[PLAN_COMPLETE + 1] = {
    [PLAN_COPY_IN] = { "copy_in", .uses = {
        USE(copy_in.shard, WRITES), USE(copy_in.gathered, WRITES | OWN_ROW) } },
    [PLAN_COPY_SUM_IN] = { "copy_in", .uses = {
        USE(copy_sum_in.sum, WRITES), WAITS_FOR(copy_sum_in.after) } },
    [PLAN_AMAX] = { "amax", PLAN_COLLECTIVE_ALL_REDUCE, send_amax, .uses = {
        USE(amax.shard, READS), USE(amax.amax, WRITES) } },
    [PLAN_GATHER] = { "gather", PLAN_COLLECTIVE_ALL_GATHER, send_gather, .uses = {
        USE(gather.amax, READS), USE(gather.slice, READS), USE(gather.shard, READS),
        ADDS(gather.gathered, gather.in_place) } },
    [PLAN_UNPACK] = { "unpack", .uses = {
        USE(unpack.shard, READS), USE(unpack.amax, READS), USE(unpack.gathered, READS),
        USE(unpack.whole[0], WRITES), USE(unpack.whole[1], WRITES) } },
    [PLAN_SLICE] = { "slice", .uses = {
        USE(slice.amax, READS), USE(slice.whole[0], READS), USE(slice.whole[1], READS),
        USE(slice.slice, WRITES) } },
    [PLAN_RESHARD] = { "reshard", .uses = { USE(reshard.whole, READS) } },
    [PLAN_FORWARD] = { "forward", PLAN_COLLECTIVE_NONE, send_operation, list_second, .uses = {
        USE(op.input[0], READS), USE(op.input[1], READS), USE(op.input[2], READS),
        USE(op.params[0], READS | UNMOVED), USE(op.params[1], READS | UNMOVED),
        USE(op.saved[0], WRITES), USE(op.saved[1], WRITES), USE(op.scratch, WRITES),
        USE(op.output, WRITES) } },
    [PLAN_LOSS] = { "loss", .uses = { USE(loss.logits, READS), USE(loss.d_logits, WRITES) } },
    [PLAN_BACKWARD] = { "backward", PLAN_COLLECTIVE_NONE, send_operation, list_backward, .uses = {
        USE(back.d_output, READS), USE(op.output, READS),
        USE(op.input[0], READS), ADDS(back.d_input[0], back.add_d_input[0]), USE(back.temporary[0], WRITES),
        USE(op.input[1], READS), ADDS(back.d_input[1], back.add_d_input[1]), USE(back.temporary[1], WRITES),
        USE(op.input[2], READS), ADDS(back.d_input[2], back.add_d_input[2]), USE(back.temporary[2], WRITES),
        USE(op.params[0], READS | UNMOVED), ADDS(back.d_param[0], back.add_d_param[0]),
        USE(op.params[1], READS | UNMOVED), ADDS(back.d_param[1], back.add_d_param[1]),
        USE(op.saved[0], READS), USE(op.saved[1], READS), USE(op.scratch, WRITES) } },
    [PLAN_PACK] = { "pack", .more = list_pack, .uses = { USE(pack.packed, WRITES) } },
    [PLAN_REDUCE] = { "reduce", PLAN_COLLECTIVE_REDUCE_SCATTER, send_reduce, list_reduce, .uses = {
        USE(reduce.packed, READS | WRITES) } },
    [PLAN_ALL_REDUCE] = { "all_reduce", PLAN_COLLECTIVE_ALL_REDUCE, send_all_reduce, .uses = {
        USE(all_reduce.packed, READS | WRITES | OWN_ROW), USE(all_reduce.sum, READS | WRITES),
        WAITS_FOR(all_reduce.after) } },
    [PLAN_STORE] = { "store", .more = list_store, .uses = {
        USE(store.packed, READS | OWN_ROW), ADDS(store.sum, store.adds) } },
    [PLAN_COPY_OUT] = { "copy_out", .uses = {
        USE(copy_out.sum, READS), USE(copy_out.packed, READS | OWN_ROW) } },
    /*
     * Gradient shards may be outside the arena. So the entry waits for the buffer from which they were made.
     */
    [PLAN_COMPLETE] = { "complete", .uses = { WAITS_FOR(complete.after) } },
};
/* clang-format on */

enum fsdp_status plan_list_accesses(struct plan *plan, struct fsdp_err *err)
{
    struct lister l = { .plan = plan };

    for (l.entry = 0; l.entry < plan->n_entries; l.entry++) {
        struct plan_entry *e = &plan->entries[l.entry];

        e->first_access = plan->n_accesses;
        if (e->kind != PLAN_BACKWARD || !e->op.with_before) /* else the entry before does its work */
            list_uses(&l, e);
        e->n_accesses = plan->n_accesses - e->first_access;
    }
    return l.out_of_memory ? fsdp_fail(err, FSDP_ERR_NOMEM, "planning: out of memory") : FSDP_OK;
}

void plan_entry_unset(struct plan_entry *entry)
{
    for (const struct use *use = kinds[entry->kind].uses; use->how != 0; use++)
        *field_at(entry, use) = -1;
    for (int s = 0; s < PLAN_N_STREAMS; s++)
        entry->waits[s] = -1;
}

enum plan_collective plan_entry_collective(const struct plan *plan, const struct plan_entry *entry)
{
    const struct graph_kind *kind;

    if (!plan_is_operation(entry))
        return kinds[entry->kind].collective;
    kind = plan->graph->ops[entry->index]->kind;
    return (entry->kind == PLAN_FORWARD ? kind->reduces_output : kind->reduces_grad)
               ? PLAN_COLLECTIVE_ALL_REDUCE
               : PLAN_COLLECTIVE_NONE;
}

struct plan_sent plan_entry_sent(const struct plan *plan, const struct plan_entry *entry)
{
    struct plan_sent sent = { 0 };

    if (plan_entry_collective(plan, entry) != PLAN_COLLECTIVE_NONE)
        kinds[entry->kind].sends(plan, entry, &sent);
    return sent;
}

const char *plan_entry_name(enum plan_entry_kind kind)
{
    return kinds[kind].name;
}

const char *plan_entry_subject(const struct plan *plan, const struct plan_entry *entry)
{
    if (plan_is_operation(entry))
        return plan->graph->ops[entry->index]->name;
    return entry->kind == PLAN_LOSS ? "cross_entropy" : plan_unit_name(plan, entry->index);
}

const char *plan_stream_name(enum plan_stream stream)
{
    static const char *const names[] = {
        [PLAN_COMPUTE] = "compute",         [PLAN_GATHERS] = "gathers", [PLAN_REDUCES] = "reduces",
        [PLAN_ALL_REDUCES] = "all_reduces", [PLAN_TENSOR] = "tensor",   [PLAN_COPIES_IN] = "copies_in",
        [PLAN_COPIES_OUT] = "copies_out",
    };

    return names[stream];
}

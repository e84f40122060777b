/*
 * Buffers that share a place, places in the arena, and waits between streams, by brute force. Random models
 * are recorded and made, and every program is run on symbols. A machine in which each buffer has memory of
 * its own says what each read must find; a machine with the arena must find the same. Streams may run in any
 * order that the waits allow, so any two entries that touch the same bytes must be ordered by them.
 */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/rng.h"
#include "tests/unit/plan/models.h"

TestSuite(plan_memory, .fini = planned_drop);

enum { MAX_VALUES = 64, FEATURES = 8 };

struct dice {
    uint64_t key, n;
    int n_units, n_ops;
};

static size_t roll(struct dice *dice, size_t bound)
{
    return (size_t)rng_below(dice->key, dice->n++, bound);
}

/* Some operations on what there is, each on any earlier value; the last takes all loose ends' sum as it
 * comes. */
static struct fsdp_value *random_ops(struct fsdp_module *self, struct fsdp_value *x, struct dice *dice,
                                     int n_ops)
{
    struct fsdp_value *values[MAX_VALUES] = { x };
    int n = 1;

    for (int i = 0; i < n_ops && n < MAX_VALUES; i++) {
        struct fsdp_value *a = values[roll(dice, 2) == 0 ? (size_t)n - 1 : roll(dice, (size_t)n)];
        struct fsdp_value *b = values[roll(dice, (size_t)n)];
        struct fsdp_value *c = values[roll(dice, (size_t)n)];

        switch (roll(dice, 7)) {
        case 0:
            values[n++] = fsdp_add(a, b);
            break;
        case 1:
            values[n++] = i % 2 == 0 ? fsdp_gelu(a) : fsdp_silu(a);
            break;
        case 2:
            values[n++] = fsdp_call(fsdp_module_child(self, "linear"), a);
            break;
        case 3:
            values[n++] = fsdp_call(fsdp_module_child(self, "norm"), a);
            break;
        case 4:
            values[n++] = fsdp_scaled_dot_product_attention(a, b, c, 2, true, 0.1f);
            break;
        case 5:
            values[n++] = fsdp_dropout(a, 0.5f);
            break;
        default:
            values[n++] = fsdp_add_dropout(a, b, 0.5f);
            break;
        }
    }
    return values[n - 1];
}

static struct fsdp_value *unit_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    struct dice *dice = user;

    return random_ops(self, x, dice, (int)roll(dice, (size_t)dice->n_ops));
}

static struct fsdp_value *root_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    struct dice *dice = user;
    struct fsdp_value *start = fsdp_call(fsdp_module_child(self, "embedding"), x);

    x = random_ops(self, start, dice, 4);
    for (int i = 0; i < dice->n_units + 2; i++)
        x = fsdp_call(fsdp_module_child_at(self, roll(dice, (size_t)dice->n_units)), x);
    x = fsdp_add(random_ops(self, x, dice, 4), start);
    return fsdp_call(fsdp_module_child(self, "output"), x);
}

static void add_operations(struct fsdp_module *module)
{
    fsdp_linear(module, "linear", FEATURES, FEATURES, true);
    fsdp_layer_norm(module, "norm", FEATURES, 1e-5f);
}

static struct fsdp_module *random_model(struct dice *dice)
{
    struct fsdp_module *root = fsdp_module_create(root_forward, dice);

    for (int i = 0; i < dice->n_units; i++) {
        struct fsdp_mixed_precision_policy mp = fsdp_mixed_precision_defaults();
        const struct fsdp_fully_shard_options options = { .reshard_after_forward =
                                                              (enum fsdp_reshard)roll(dice, 3),
                                                          .offload_policy = (enum fsdp_offload)roll(dice, 2),
                                                          .mp_policy = &mp };
        struct fsdp_module *unit =
            fsdp_module_add(root, (char[]){ (char)('a' + i), '\0' }, unit_forward, dice);

        mp.float8_gather = roll(dice, 3) == 0;
        add_operations(unit);
        cr_assert(fsdp_fully_shard(unit, &options, NULL) == FSDP_OK);
        fsdp_module_set_reshard_after_backward(unit, roll(dice, 2) == 0, false);
        fsdp_checkpoint_wrapper(unit, (enum fsdp_activation_checkpoint)roll(dice, 3));
    }
    fsdp_embedding(root, "embedding", 11, FEATURES);
    add_operations(root);
    fsdp_linear(root, "output", FEATURES, 11, false);
    cr_assert(fsdp_fully_shard(root, NULL, NULL) == FSDP_OK);
    fsdp_module_set_reshard_after_backward(root, roll(dice, 2) == 0, false);
    return root;
}

struct cell {
    size_t offset, size;
    uint64_t content;
};

struct machines {
    const struct plan *plan;
    uint64_t *apart;    /* content of each buffer, all with memory of their own */
    struct cell *arena; /* what was written where, not overwritten since */
    size_t n_cells;
    size_t run, n_runs; /* of the program: a micro-step each, or as many as it has backwards */
    int n_wrong;        /* reads that found something else */
};

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint32_t words[4];

    rng_philox(a, b, 1, words);
    return ((uint64_t)words[0] << 32 | words[1]) | 1; /* 0 is: never written */
}

static void check_read(struct machines *m, int buffer)
{
    const struct plan_buffer *b = &m->plan->buffers[buffer];

    if (m->apart[buffer] == 0)
        return; /* x + x: the second side adds to what the first wrote in this very entry */
    for (size_t i = 0; i < m->n_cells; i++)
        if (m->arena[i].offset == b->offset && m->arena[i].size == b->size_bytes) {
            m->n_wrong += m->arena[i].content != m->apart[buffer];
            return;
        }
    m->n_wrong++;
}

static void write_arena(struct machines *m, int buffer)
{
    const struct plan_buffer *b = &m->plan->buffers[buffer];
    size_t kept = 0;

    for (size_t i = 0; i < m->n_cells; i++)
        if (m->arena[i].offset >= b->offset + b->size_bytes ||
            b->offset >= m->arena[i].offset + m->arena[i].size)
            m->arena[kept++] = m->arena[i];
    m->arena[kept] = (struct cell){ .offset = b->offset, .size = b->size_bytes, .content = m->apart[buffer] };
    m->n_cells = kept + 1;
}

static size_t micro_of(const struct machines *m, const struct plan_entry *e)
{
    return m->run * (size_t)m->plan->n_backwards + (size_t)e->backward;
}

static bool takes_part(const struct machines *m, const struct plan_entry *e)
{
    return e->when == PLAN_ALWAYS || (e->when == PLAN_FIRST && micro_of(m, e) == 0) ||
           (e->when == PLAN_LAST && micro_of(m, e) + 1 == m->n_runs * (size_t)m->plan->n_backwards);
}

static bool is_param_grad(const struct plan_entry *e, int buffer)
{
    return e->kind == PLAN_BACKWARD && (e->back.d_param[0] == buffer || e->back.d_param[1] == buffer);
}

/* The buffer whose content `buffer` takes over, when the entry merely copies it; or -1. */
static int copied_from(const struct plan *plan, const struct plan_entry *e, int buffer)
{
    const struct graph_op *op = e->kind == PLAN_BACKWARD ? plan->graph->ops[e->index] : NULL;

    for (int i = 0; op != NULL && i < op->n_inputs; i++)
        if (e->back.d_input[i] == buffer && !e->back.add_d_input[i] && op->kind->grad[i] == GRAPH_GRAD_COPY)
            return e->back.d_output;
    return -1;
}

static void run_entry(struct machines *m, int entry)
{
    const struct plan_entry *e = &m->plan->entries[entry];
    const struct plan_access *list = &m->plan->accesses[e->first_access];
    uint64_t read = mix(17, (uint64_t)entry * 1000 + m->run);

    for (int i = 0; i < e->n_accesses; i++)
        if (list[i].reads) {
            check_read(m, list[i].buffer);
            read = mix(read, m->apart[list[i].buffer]);
        }
    for (int i = 0; i < e->n_accesses; i++) {
        const int buffer = list[i].buffer, from = copied_from(m->plan, e, buffer);
        const bool earlier =
            micro_of(m, e) > 0 && m->plan->buffers[buffer].step_long && is_param_grad(e, buffer);

        if (!list[i].writes)
            continue;
        if (earlier)
            check_read(m, buffer);
        if (from >= 0 && !list[i].reads)
            m->apart[buffer] = m->apart[from];
        else
            m->apart[buffer] = mix(read, (uint64_t)i ^ (list[i].reads || earlier ? m->apart[buffer] : 0));
        write_arena(m, buffer);
    }
}

/* What outlives the program must be what its last entries left. */
static void check_kept(struct machines *m)
{
    for (int b = 0; b < m->plan->n_buffers; b++)
        if (m->plan->buffers[b].fixed && m->apart[b] != 0)
            check_read(m, b);
}

/* Reads of the machine with the arena that find something else than those of the other. */
static int run_both(const struct plan *plan, size_t n_runs)
{
    struct machines m = { .plan = plan, .n_runs = n_runs };

    m.apart = calloc((size_t)plan->n_buffers + 1, sizeof *m.apart);
    m.arena = calloc((size_t)plan->n_buffers + 1, sizeof *m.arena);
    for (m.run = 0; m.run < n_runs; m.run++) {
        for (int b = 0; b < plan->n_buffers; b++)
            if (!plan->buffers[b].step_long)
                m.apart[b] = 0;
        for (int entry = 0; entry < plan->n_entries; entry++)
            if (takes_part(&m, &plan->entries[entry]))
                run_entry(&m, entry);
    }
    check_kept(&m);
    free(m.apart);
    free(m.arena);
    return m.n_wrong;
}

static bool bytes_meet(const struct plan_buffer *a, const struct plan_buffer *b)
{
    return a->offset < b->offset + b->size_bytes && b->offset < a->offset + a->size_bytes;
}

/* Pairs of buffers that live at once and share bytes without sharing a place. */
static int count_overlaps(const struct plan *plan)
{
    int n = 0;

    for (int i = 0; i < plan->n_buffers; i++) {
        const struct plan_buffer *a = &plan->buffers[i];

        cr_assert(a->last < 0 || a->offset + a->size_bytes <= plan->arena_bytes);
        cr_assert(a->offset % 64 == 0);
        for (int j = 0; j < i; j++) {
            const struct plan_buffer *b = &plan->buffers[j];

            if (a->storage != b->storage && a->last >= 0 && b->last >= 0 && a->first <= b->last &&
                b->first <= a->last)
                n += bytes_meet(a, b);
        }
    }
    return n;
}

static bool touch_alike(const struct plan *plan, const struct plan_entry *a, const struct plan_entry *b)
{
    for (int i = 0; i < a->n_accesses; i++)
        for (int j = 0; j < b->n_accesses; j++) {
            const struct plan_access *x = &plan->accesses[a->first_access + i];
            const struct plan_access *y = &plan->accesses[b->first_access + j];

            if ((x->writes || y->writes) && bytes_meet(&plan->buffers[x->buffer], &plan->buffers[y->buffer]))
                return true;
        }
    return false;
}

/* Pairs of entries that touch the same bytes and that no wait keeps apart. */
static int count_races(const struct plan *plan)
{
    const int n = plan->n_entries;
    int n_races = 0;
    /* before[j * n + i]: i is surely done when j runs */
    bool *before = calloc((size_t)n * (size_t)n, sizeof *before);

    for (int j = 0; j < n; j++) {
        bool *mine = &before[j * n];

        for (int i = 0; i < j; i++) {
            const bool direct = plan->entries[i].stream == plan->entries[j].stream ||
                                plan->entries[j].waits[plan->entries[i].stream] == i;

            mine[i] = mine[i] || direct;
            for (int k = 0; direct && k < i; k++)
                mine[k] = mine[k] || before[i * n + k];
        }
        for (int i = 0; i < j; i++)
            n_races += touch_alike(plan, &plan->entries[i], &plan->entries[j]) && !mine[i];
        for (int s = 0; s < PLAN_N_STREAMS; s++)
            if (plan->entries[j].waits[s] >= 0)
                cr_assert(plan->entries[plan->entries[j].waits[s]].records &&
                          plan->entries[plan->entries[j].waits[s]].stream == (enum plan_stream)s);
    }
    free(before);
    return n_races;
}

Test(plan_memory, random_models_find_what_they_wrote, .timeout = 2400)
{
    for (uint64_t seed = 0; seed < 240; seed++) {
        struct dice dice = { .key = seed, .n_units = 1 + (int)(seed % 4), .n_ops = 12 };
        struct fsdp_module *root = random_model(&dice);
        struct plan_options options = options_for(1 + (int)(seed % 3));
        const bool training = seed % 5 != 4;
        const size_t n_forwards = training ? 1 + seed / 5 % 3 : 1;

        options.accumulates = training && seed % 2 == 0;
        options.gradient_sync = seed % 7 < 4 ? FSDP_SYNC_LAST : FSDP_SYNC_EVERY;
        options.prefetch = seed % 11 != 0;
        options.host_apart = seed / 3 % 2 == 0;
        options.holds_gradients = training && seed / 5 % 3 != 0;
        options.backwards = seed % 13 < 7 ? FSDP_BACKWARD_OF_SUM : FSDP_BACKWARD_OF_EACH;
        if (n_forwards > 1 && options.backwards == FSDP_BACKWARD_OF_EACH)
            options.accumulates = training;
        plan_forwards(&made, root, &options, training, n_forwards);

        cr_expect(count_overlaps(&made.plan) == 0, "seed %d", (int)seed);
        cr_expect(count_races(&made.plan) == 0, "seed %d", (int)seed);
        cr_expect(run_both(&made.plan, options.accumulates ? 3 : 1) == 0, "seed %d", (int)seed);
    }
}

/* The checks themselves must see a broken plan: a place shared wrongly, a buffer moved, a wait lost. */
Test(plan_memory, broken_plans_are_seen)
{
    const struct plan_options options = options_for(2);
    struct blocks blocks = { .n_blocks = 2 };
    struct plan *plan = &made.plan;
    const struct plan_entry *gelu;

    plan_it(&made, blocks_build(&blocks), &options, true);
    cr_assert(count_overlaps(plan) == 0 && count_races(plan) == 0 && run_both(plan, 1) == 0);

    for (int i = 0; i < plan->n_entries; i++)
        plan->entries[i].waits[PLAN_GATHERS] = -1;
    cr_expect(count_races(plan) > 0);

    gelu = &plan->entries[0];
    while (gelu->kind != PLAN_FORWARD || strcmp(plan->graph->ops[gelu->index]->kind->name, "gelu") != 0)
        gelu++;
    /* its input is kept for backward */
    plan->buffers[gelu->op.output].offset = plan->buffers[gelu->op.input[0]].offset;
    cr_expect(run_both(plan, 1) > 0);
    cr_expect(count_overlaps(plan) > 0);
}

/* L blocks add to one residual stream: its gradient is one buffer from the last block to the embedding. */
Test(plan_memory, the_gradient_of_a_residual_stream_is_one_buffer)
{
    int storage = -1, n_sums = 0;

    plan_blocks(1, (struct blocks){ .n_blocks = 6 });

    for (int b = 0; b < made.plan.n_buffers; b++) {
        const struct plan_buffer *buffer = &made.plan.buffers[b];
        const struct fsdp_value *value =
            buffer->what == PLAN_VALUE_GRAD ? made.graph.values[buffer->index] : NULL;

        if (value == NULL || strcmp(made.graph.ops[value->producer]->kind->name, "add") != 0)
            continue;
        cr_expect(storage < 0 || storage == buffer->storage);
        storage = buffer->storage;
        n_sums++;
    }
    cr_expect(n_sums == 6);
}

/*
 * What no backward reads, as the rows of an embedding, ends with its last forward; what one reads stays as
 * long as it must.
 */
Test(plan_memory, parameters_that_only_forward_reads_end_there)
{
    const struct plan *plan = &made.plan;
    const struct plan_group *root;
    int early, late, loss = 0;

    plan_blocks(2, (struct blocks){ .n_blocks = 2 });
    root = &plan->groups[0];
    while (plan->entries[loss].kind != PLAN_LOSS)
        loss++;
    for (int i = 0; i < plan->n_params; i++)
        cr_expect(plan->params[i].part == (strcmp(plan->params[i].parameter->name, "embedding.weight") == 0
                                               ? PLAN_FORWARD_ONLY
                                               : PLAN_BOTH_WAYS));
    early = plan->entries[1].unpack.whole[PLAN_FORWARD_ONLY];
    late = plan->entries[1].unpack.whole[PLAN_BOTH_WAYS];
    cr_assert(plan->entries[1].kind == PLAN_UNPACK && plan->entries[1].index == 0 && early >= 0 && late >= 0);
    cr_expect(plan->buffers[early].size_bytes == root->whole_bytes[PLAN_FORWARD_ONLY]);
    cr_expect(plan->buffers[late].size_bytes == root->whole_bytes[PLAN_BOTH_WAYS]);
    cr_expect(plan_whole_bytes(root) == 2 * 96 * sizeof(float), "88 elements each, on 64 bytes");
    for (int i = 2; i <= plan->buffers[early].last; i++)
        cr_expect(plan->entries[i].kind == PLAN_FORWARD || plan->entries[i].kind == PLAN_GATHER, "entry %d",
                  i);
    cr_expect(plan->buffers[early].last < loss && plan->buffers[late].last > loss);
}

Test(plan_memory, gathered_parameters_stay_at_two_units_and_the_root)
{
    struct blocks few = { .n_blocks = 3 }, many = { .n_blocks = 12 };
    const struct plan_options options = options_for(2);
    struct planned three, twelve;

    plan_it(&three, blocks_build(&few), &options, true);
    plan_it(&twelve, blocks_build(&many), &options, true);

    cr_expect(three.plan.class_bytes[PLAN_GATHERED] == twelve.plan.class_bytes[PLAN_GATHERED]);
    planned_fini(&three);
    planned_fini(&twelve);
}

static size_t arena_of(const struct plan_options *options, int n_blocks, size_t *gradient_bytes)
{
    struct blocks blocks = { .n_blocks = n_blocks };
    size_t arena;

    plan_it(&made, blocks_build(&blocks), options, true);
    cr_assert(count_overlaps(&made.plan) == 0 && run_both(&made.plan, 1) == 0);
    arena = made.plan.arena_bytes;
    *gradient_bytes = made.plan.gradient_bytes;
    return arena;
}

/* What a further block keeps until backward goes where a gradient will be, and not into memory of its own. */
Test(plan_memory, gradients_come_where_activations_were)
{
    for (int W = 1; W <= 3; W++) {
        struct plan_options options = options_for(W);
        size_t few, many, with_few, with_many, gradients_few, gradients_many, none;

        few = arena_of(&options, 4, &none);
        many = arena_of(&options, 12, &none);
        options.holds_gradients = true;
        with_few = arena_of(&options, 4, &gradients_few);
        with_many = arena_of(&options, 12, &gradients_many);

        cr_expect(none == 0 && gradients_many > gradients_few && gradients_few > 0);
        cr_expect(with_many < many + gradients_many, "%zu and %zu apart, together %zu", many, gradients_many,
                  with_many);
        cr_expect(with_many - with_few < many + gradients_many - few - gradients_few,
                  "a block more: %zu, apart %zu", with_many - with_few,
                  many + gradients_many - few - gradients_few);
    }
}

/* Gradients that micro-steps add to stay from one to the next, and those that nothing writes stay zero. */
Test(plan_memory, gradients_that_are_added_to_are_in_nobodys_place)
{
    for (int sync = 0; sync < 2; sync++)
        for (int W = 1; W <= 2; W++) {
            struct plan_options options = options_for(W);
            struct blocks blocks = { .n_blocks = 3 };
            size_t kept = 0;

            options.holds_gradients = options.accumulates = true;
            options.gradient_sync = sync == 0 ? FSDP_SYNC_LAST : FSDP_SYNC_EVERY;
            plan_it(&made, blocks_build(&blocks), &options, true);
            for (int b = 0; b < made.plan.n_buffers; b++)
                if (made.plan.buffers[b].fixed && made.plan.buffers[b].step_long)
                    kept += made.plan.buffers[b].size_bytes;

            if (W > 1 && sync == 0) /* written once a step: only what is behind rows is kept */
                cr_expect(kept < made.plan.gradient_bytes);
            else
                cr_expect_eq(kept, made.plan.gradient_bytes);
        }
}

/*
 * test_fully_shard_memory.py, to the byte. While a step runs, every byte of the arena that no buffer of the
 * plan lives in is poisoned with NaN. Before each entry, whatever ended its life is poisoned. Nothing outside
 * the lives may have been written. So an entry that writes outside its buffers is caught in the act. One that
 * reads a buffer after or before its life spoils the result, which must have the same bits as without poison.
 * And the bytes of each class that were in use at once are at most those of the plan.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/model.h"
#include "tests/unit/parity/case.h"

enum { POISON = 0xff, MAX_RANKS = 8 };

/* What a rank's observer holds. */
struct watch {
    const struct program *program;
    int before; /* the entry that ran last; -1: none of this micro-step */
    size_t micro, n_micro;
    bool *lives;                                        /* of each byte, while that entry ran */
    size_t most[PLAN_N_CLASSES], whole[PLAN_N_CLASSES]; /* at once: written bytes, and of whole buffers */
    size_t n_outside;
    size_t end; /* of what was ever written */
};

struct watches {
    struct watch of[MAX_RANKS];
    size_t n_micro;
    size_t most[PLAN_N_CLASSES], planned[PLAN_N_CLASSES], end, arena; /* of rank 0, for the test */
};

static bool in_life(const struct plan_buffer *b, int entry)
{
    return b->first <= entry && entry <= b->last;
}

static void mark_lives(struct watch *w, int entry, bool *lives)
{
    const struct plan *plan = &w->program->plan;

    memset(lives, 0, plan->arena_bytes);
    for (int i = 0; i < plan->n_buffers; i++)
        if (plan->buffers[i].storage == i && plan->buffers[i].last >= 0 &&
            (in_life(&plan->buffers[i], entry) || plan->buffers[i].step_long))
            memset(lives + plan->buffers[i].offset, true, plan->buffers[i].size_bytes);
}

/* Bytes up to the last one that was written. */
static size_t written(const struct watch *w, const struct plan_buffer *b)
{
    const unsigned char *bytes = (unsigned char *)w->program->arena + b->offset;
    size_t n = b->size_bytes;

    while (n > 0 && bytes[n - 1] == POISON)
        n--;
    return n;
}

static void measure(struct watch *w, int entry)
{
    const struct plan *plan = &w->program->plan;
    size_t now[PLAN_N_CLASSES] = { 0 }, whole[PLAN_N_CLASSES] = { 0 };

    for (int i = 0; i < plan->n_buffers; i++) {
        const struct plan_buffer *b = &plan->buffers[i];
        size_t n = b->storage == i && b->last >= 0 && in_life(b, entry) ? written(w, b) : 0;

        now[b->class] += n;
        whole[b->class] += b->storage == i && b->last >= 0 && in_life(b, entry) ? b->size_bytes : 0;
        if (n > 0 && b->class == PLAN_SCRATCH) /* an operation may not need all that its back end asked for */
            n = b->size_bytes;
        if (n > 0 && b->offset + n > w->end)
            w->end = b->offset + n;
    }
    for (int c = 0; c < PLAN_N_CLASSES; c++) {
        w->most[c] = now[c] > w->most[c] ? now[c] : w->most[c];
        w->whole[c] = whole[c] > w->whole[c] ? whole[c] : w->whole[c];
    }
}

/* Is the byte of gradient shards that nothing of a step writes, or that a step adds to? */
static bool is_kept(const struct plan *plan, size_t byte)
{
    for (int i = 0; byte < plan->gradient_bytes && i < plan->n_buffers; i++) {
        const struct plan_buffer *b = &plan->buffers[i];

        if (b->fixed && b->step_long && b->offset <= byte && byte < b->offset + b->size_bytes)
            return true;
    }
    return false;
}

/* What the entry before left outside its lives; then poison all that does not live on. */
static void observe(void *observer, int entry)
{
    struct watch *w = observer;
    const struct plan *plan = &w->program->plan;
    unsigned char *arena = (unsigned char *)w->program->arena;
    const bool is_over = entry == plan->n_entries;
    bool *lives = malloc(plan->arena_bytes);

    if (w->before >= 0) {
        measure(w, w->before);
        for (size_t i = 0; i < plan->arena_bytes; i++)
            w->n_outside += !w->lives[i] && arena[i] != POISON;
    }
    mark_lives(w, entry, lives);
    for (size_t i = 0; i < plan->arena_bytes && !(is_over && !plan->graph->training);
         i++) /* logits are read then */
        if (!lives[i] || (w->before < 0 && w->micro == 0 && !is_kept(plan, i)))
            arena[i] = POISON;
    free(w->lives);
    w->lives = lives;
    w->before = entry;
    if (is_over) {
        w->before = -1;
        w->micro = (w->micro + 1) % w->n_micro;
    }
}

static void watch(struct fsdp_model *model, void *user)
{
    struct watches *all = user;
    const int rank = fsdp_context_rank(model->context);
    struct watch *w = &all->of[rank];

    *w = (struct watch){ .program = &model->training, .before = -1, .n_micro = all->n_micro };
    model->training.observe = observe;
    model->training.observer = w;
    if (rank == 0) {
        memcpy(all->planned, model->training.plan.class_bytes, sizeof all->planned);
        all->arena = model->training.plan.arena_bytes;
    }
}

static const char *const class_names[PLAN_N_CLASSES] = { "activations", "gathered", "reduced", "scratch",
                                                         "gradients" };

static void expect_within(struct watch *w, const size_t planned[PLAN_N_CLASSES], size_t arena,
                          const char *name, int rank)
{
    cr_expect_eq(w->n_outside, 0, "%s, rank %d: %zu bytes written outside the plan", name, rank,
                 w->n_outside);
    cr_expect(w->end <= arena && w->end + 64 >= arena, "%s: %zu of the arena's %zu bytes", name, w->end,
              arena);
    for (int c = 0; c < PLAN_N_CLASSES; c++)
        cr_expect(w->most[c] <= planned[c], "%s, rank %d, %s: %zu bytes at once, planned %zu", name, rank,
                  class_names[c], w->most[c], planned[c]);
    /* Nor is more planned than is used: 64 bytes of alignment a buffer aside, it is written. */
    for (int c = PLAN_ACTIVATIONS; c <= PLAN_REDUCED; c++)
        cr_expect((double)w->most[c] >= 0.95 * (double)w->whole[c],
                  "%s, rank %d, %s: only %zu bytes at once of %zu", name, rank, class_names[c], w->most[c],
                  w->whole[c]);
    free(w->lives);
    w->lives = NULL;
}

static void expect_planned(const struct reference *reference, const struct way *plain, const char *name)
{
    static struct seen want, got;
    static struct watches watches;
    struct way way = *plain;
    bool alike;

    memset(&watches, 0, sizeof watches);
    watches.n_micro = way.n_micro > 0 ? way.n_micro : 1;
    if (way.forwards > 0)
        watches.n_micro /= way.forwards;
    case_run(reference, &way, &want);
    way.prepare = watch;
    way.user = &watches;
    case_run(reference, &way, &got);
    alike = seen_same_bits(&got, &want);
    cr_expect(alike, "%s: poison changes the result", name);
    for (int r = 0; r < way.W; r++)
        expect_within(&watches.of[r], watches.planned, watches.arena, name, r);
    seen_free(&want);
    seen_free(&got);
}

/* On the reference numerics and on those that a job gets. */
static void expect_planned_in_rows(const struct reference *reference, const struct way *plain,
                                   const char *name)
{
    static const char *const rows[] = { "ref", "auto" };

    for (size_t row = 0; row < N(rows); row++) {
        struct way way = *plain;
        char label[96];

        way.steps = 2;
        way.numerics = rows[row];
        snprintf(label, sizeof label, "%s, numerics %s", name, rows[row]);
        expect_planned(reference, &way, label);
    }
}

Test(parity_memory, every_class_stays_within_the_plan_to_the_byte, .timeout = 3000)
{
    static const struct {
        const char *reference, *name;
        struct way way;
    } cases[] = {
        OF("transformer", "default", .W = 2),
        OF("transformer", "one rank", .W = 1),
        OF("transformer", "reshard true", .W = 3, .reshard = FSDP_RESHARD_TRUE),
        OF("transformer", "reshard false", .W = 3, .reshard = FSDP_RESHARD_FALSE),
        OF("transformer", "reshard to 2", .W = 4, .reshard_size = 2),
        OF("transformer", "prefetch", .W = 2, .prefetch = 2, .in_flight = 2),
        OF("transformer", "recompute", .W = 2, .recompute = FSDP_CHECKPOINT_FULL),
        OF("transformer", "selective", .W = 2, .recompute = FSDP_CHECKPOINT_SELECTIVE),
        OF("transformer", "bfloat16", .W = 2, .param_dtype = FSDP_BF16),
        OF("transformer", "bfloat16, bfloat16 sums", .W = 3, .param_dtype = FSDP_BF16,
           .reduce_dtype = FSDP_BF16),
        OF("transformer", "bfloat16, float32 sums", .W = 3, .param_dtype = FSDP_BF16,
           .reduce_dtype = FSDP_F32),
        OF("transformer", "float8", .W = 2, .float8 = true),
        OF("transformer", "float8 of one rank", .W = 1, .float8 = true),
        OF("transformer", "float8 to bfloat16, slices, micro-steps", .W = 4, .float8 = true,
           .param_dtype = FSDP_BF16, .reshard_size = 2, .n_micro = 2),
        OF("transformer", "float8, kept after backward", .W = 3, .float8 = true, .n_micro = 2,
           .keep_after_backward = true),
        OF("transformer", "hybrid", .W = 4, .replicate = 2),
        OF("transformer", "micro-steps", .W = 2, .n_micro = 3),
        OF("transformer", "micro-steps, reduced in each", .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY),
        OF("transformer", "kept", .W = 2, .n_micro = 3, .keep_after_backward = true,
           .reshard = FSDP_RESHARD_FALSE),
        OF("transformer", "two forwards", TWO_FORWARDS),
        OF("transformer", "two forwards, recompute", TWO_FORWARDS, .recompute = FSDP_CHECKPOINT_FULL),
        OF("transformer", "two forwards, a backward of each", TWO_BACKWARDS, .sync = FSDP_SYNC_EVERY),
        OF("transformer", "columns", .W = 2, .columns = true),
        OF("tensor", "tensor parallel", .W = 4, .tensor = 2),
        OF("tensor", "tensor parallel, recompute", .W = 2, .tensor = 2,
           .recompute = FSDP_CHECKPOINT_SELECTIVE),
        OF("tensor", "tensor parallel, bfloat16", .W = 4, .tensor = 4, .param_dtype = FSDP_BF16),
        OF("tensor", "meshes of units", .W = 4, .replicate = 2, .mixed_meshes = true),
        OF("leading", "frozen leading block", .W = 2, .reshard = FSDP_RESHARD_TRUE),
        OF("twice", "twice", .W = 2),
        OF("tied", "tied", .W = 3),
        OF("biases", "frozen", .W = 2),
    };

    for (size_t i = 0; i < N(cases); i++) {
        struct reference *reference = reference_read(cases[i].reference);

        expect_planned_in_rows(reference, &cases[i].way, cases[i].name);
        reference_free(reference);
    }
}

/* From 64 positions on attention keeps no probabilities (nn/attention.c). */
Test(parity_memory, long_sequences_stay_within_it_too, .timeout = 3000)
{
    static const struct {
        const char *name;
        struct way way;
    } cases[] = { { "long", { .W = 2 } },
                  { "long, recompute", { .W = 2, .recompute = FSDP_CHECKPOINT_SELECTIVE } },
                  { "long, bfloat16", { .W = 2, .param_dtype = FSDP_BF16 } } };
    struct reference *reference = reference_read("transformer");

    reference->seq = 70;
    for (size_t i = 0; i < N(cases); i++)
        expect_planned_in_rows(reference, &cases[i].way, cases[i].name);
    reference_free(reference);
}

/* An evaluation, whose program and arena are its own */

enum { EVALUATED = 3 };

static void evaluate(struct fsdp_model *model, float *logits, size_t n)
{
    int32_t tokens[EVALUATED * 64];
    const float *own;
    struct fsdp_err err = { 0 };

    for (size_t i = 0; i < EVALUATED * model->options.seq; i++)
        tokens[i] = (int32_t)(i * 5 % nn_input_rows(&model->evaluation.graph));
    cr_assert(fsdp_model_evaluate(model, tokens, NULL, &own, NULL, &err) == FSDP_OK, "%s", err.message);
    memcpy(logits, own, n * sizeof *logits);
}

static void expect_evaluation(struct fsdp_model *model, void *user)
{
    static const char name[] = "evaluation";
    const int rank = fsdp_context_rank(model->context);
    struct watch w = { .program = &model->evaluation, .before = -1, .n_micro = 1 };
    struct fsdp_memory memory;
    float *plain, *watched;
    size_t n;

    (void)user;
    cr_assert(fsdp_model_prepare_evaluation(model, EVALUATED, model->options.seq, NULL) == FSDP_OK);
    n = graph_value_elems(model->evaluation.graph.result);
    plain = malloc(n * sizeof *plain);
    watched = malloc(n * sizeof *watched);
    evaluate(model, plain, n);
    model->evaluation.observe = observe;
    model->evaluation.observer = &w;
    evaluate(model, watched, n);
    model->evaluation.observe = NULL;

    fsdp_model_memory(model, &memory);
    cr_expect(memcmp(plain, watched, n * sizeof *plain) == 0, "rank %d: poison changes the logits", rank);
    cr_expect_eq(memory.evaluation, model->evaluation.plan.arena_bytes);
    cr_expect(memory.evaluation > 0 && model->evaluation.plan.gradient_bytes == 0);
    expect_within(&w, model->evaluation.plan.class_bytes, memory.evaluation, name, rank);
    free(plain);
    free(watched);
}

/* Then a step is trained while it is there: the two share parameters and nothing else. */
Test(parity_memory, an_evaluation_stays_within_its_plan, .timeout = 3000)
{
    static const struct way ways[] = { { .W = 1 },
                                       { .W = 3 },
                                       { .W = 2, .param_dtype = FSDP_BF16 },
                                       { .W = 4, .replicate = 2 },
                                       { .W = 2, .n_micro = 2 } };
    struct reference *reference = reference_read("transformer");
    static struct seen seen;

    for (size_t i = 0; i < N(ways); i++) {
        struct way way = ways[i];

        way.steps = 1;
        way.prepare = expect_evaluation;
        case_run(reference, &way, &seen);
        seen_free(&seen);
    }
    reference_free(reference);
}

/* The observer sees what it is there for: an entry that writes one byte behind a buffer's life. */
static void reach_outside(void *observer, int entry)
{
    struct watch *w = observer;
    const struct plan *plan = &w->program->plan;
    bool *lives = calloc(plan->arena_bytes, 1);

    observe(observer, entry);
    mark_lives(w, entry, lives);
    for (size_t i = 0; i < plan->arena_bytes && entry == plan->n_entries / 2; i++)
        if (!lives[i]) {
            w->program->arena[i] = 1;
            break;
        }
    free(lives);
}

static void watch_mutant(struct fsdp_model *model, void *user)
{
    watch(model, user);
    model->training.observe = reach_outside;
}

Test(parity_memory, a_byte_outside_the_plan_is_seen, .timeout = 3000)
{
    struct reference *reference = reference_read("linears-a");
    static struct watches watches = { .n_micro = 1 };
    static struct seen seen;
    const struct way way = { .W = 2, .steps = 1, .prepare = watch_mutant, .user = &watches };

    case_run(reference, &way, &seen);

    cr_expect_eq(watches.of[0].n_outside, 1);
    free(watches.of[0].lives);
    free(watches.of[1].lives);
    seen_free(&seen);
    reference_free(reference);
}

/*
 * --- what stays between steps, by fsdp2's formula. It is 4 bytes of each padded row of parameters, 4 of each
 * that learns, and AdamW's 8 of each own element without padding. Replicas do not count; of a tensor that is
 * split the part is cut. ------
 */

/* Rows of the part that this rank has of a tensor, and elements of each. */
static size_t rows_of_part(const struct fsdp_parameter_info *info)
{
    const bool along = info->n_splits > 1 && info->split_dim == info->shard_dim;

    return info->shape[info->shard_dim] / (along ? (size_t)info->n_splits : 1);
}

static size_t elems_of_row(const struct fsdp_parameter_info *info)
{
    return info->n_elems / (size_t)info->n_splits / rows_of_part(info);
}

static size_t chunk_of(const struct fsdp_parameter_info *info, int n_shards)
{
    return (rows_of_part(info) + (size_t)n_shards - 1) / (size_t)n_shards * elems_of_row(info);
}

/* Ranks that the tensor is cut over: not its replicas, nor those that have other parts. */
static int shards_of(const struct way *way, const struct fsdp_parameter_info *info)
{
    int n = way->tensor > 1 ? way->W / way->tensor : way->W;

    if (way->replicate > 1 && !(way->mixed_meshes && info->group == 0))
        n /= way->replicate;
    return n;
}

static void expect_formula(struct fsdp_model *model, void *user)
{
    const struct way *way = user;
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();
    size_t parameters = 0, gradients = 0, own = 0;
    struct fsdp_optimizer *optimizer;
    struct fsdp_memory memory;

    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;
        size_t chunk;

        cr_assert(fsdp_model_parameter(model, i, &info, NULL) == FSDP_OK);
        chunk = chunk_of(&info, shards_of(way, &info));
        parameters += chunk;
        gradients += info.has_gradient ? chunk : 0;
        own += info.has_gradient ? info.n_rows * elems_of_row(&info) : 0;
    }
    fsdp_model_memory(model, &memory);
    cr_assert(fsdp_optimizer_create(&optimizer, model, &options, NULL) == FSDP_OK);
    cr_expect_eq(memory.parameters, 4 * parameters, "W %d: %zu, not %zu", way->W, memory.parameters,
                 4 * parameters);
    cr_expect_eq(memory.gradients, 4 * gradients, "W %d: %zu, not %zu", way->W, memory.gradients,
                 4 * gradients);
    cr_expect_eq(fsdp_optimizer_bytes(optimizer), 8 * own);
    fsdp_optimizer_destroy(optimizer);
}

static void expect_formula_in(const char *name, struct way *ways, size_t n_ways)
{
    struct reference *reference = reference_read(name);
    static struct seen seen;

    for (size_t i = 0; i < n_ways; i++) {
        ways[i].steps = 1;
        ways[i].prepare = expect_formula;
        ways[i].user = &ways[i];
        case_run(reference, &ways[i], &seen);
        seen_free(&seen);
    }
    reference_free(reference);
}

Test(parity_memory, persistent_state_is_the_formula_in_every_mode, .timeout = 3000)
{
    static const char *const cases[] = { "transformer", "tied", "biases", "linears-b" };

    for (size_t c = 0; c < N(cases); c++) {
        struct way ways[] = { { .W = 1 },
                              { .W = 3 },
                              { .W = 8 },
                              { .W = 5, .param_dtype = FSDP_BF16 },
                              { .W = 6, .replicate = 2 },
                              { .W = 8, .replicate = 4 },
                              { .W = 4, .reshard_size = 2 },
                              { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_LAST } };

        expect_formula_in(cases[c], ways, N(ways));
    }
}

/* Parts along dimension 0 and 1, cut in two, three and four, replicated too. */
Test(parity_memory, and_of_split_models_and_of_meshes_of_units, .timeout = 3000)
{
    struct way split[] = { { .W = 2, .tensor = 2 },
                           { .W = 4, .tensor = 2 },
                           { .W = 6, .tensor = 2 },
                           { .W = 8, .tensor = 2, .param_dtype = FSDP_BF16 },
                           { .W = 8, .tensor = 4 },
                           { .W = 8, .tensor = 2, .replicate = 2 },
                           { .W = 4, .replicate = 2, .mixed_meshes = true } };

    expect_formula_in("tensor", split, N(split));
}

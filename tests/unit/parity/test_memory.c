/*
 * test_fully_shard_memory.py, to the byte. While a step runs, every byte of the arena that no buffer of the plan lives in
 * is poisoned with NaN: before each entry, whatever ended its life is poisoned, and nothing outside the lives may have been
 * written. So an entry that writes outside its buffers is caught in the act, one that reads what is not there any more (or
 * not yet) spoils the result, which must be the same bits as without; and what was written at once, class by class, is
 * what the plan says at most.
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
    const struct fsdp_model *model;
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
    const struct plan *plan = &w->model->training.plan;

    memset(lives, 0, plan->arena_bytes);
    for (int i = 0; i < plan->n_buffers; i++)
        if (plan->buffers[i].storage == i && plan->buffers[i].last >= 0 &&
            (in_life(&plan->buffers[i], entry) || plan->buffers[i].step_long))
            memset(lives + plan->buffers[i].offset, true, plan->buffers[i].size_bytes);
}

/* Bytes up to the last one that was written. */
static size_t written(const struct watch *w, const struct plan_buffer *b)
{
    const unsigned char *bytes = (unsigned char *)w->model->training.arena + b->offset;
    size_t n = b->size_bytes;

    while (n > 0 && bytes[n - 1] == POISON)
        n--;
    return n;
}

static void measure(struct watch *w, int entry)
{
    const struct plan *plan = &w->model->training.plan;
    size_t now[PLAN_N_CLASSES] = { 0 }, whole[PLAN_N_CLASSES] = { 0 };

    for (int i = 0; i < plan->n_buffers; i++) {
        const struct plan_buffer *b = &plan->buffers[i];
        const size_t n = b->storage == i && b->last >= 0 && in_life(b, entry) ? written(w, b) : 0;

        now[b->class] += n;
        whole[b->class] += b->storage == i && b->last >= 0 && in_life(b, entry) ? b->size_bytes : 0;
        if (n > 0 && b->offset + n > w->end)
            w->end = b->offset + n;
    }
    for (int c = 0; c < PLAN_N_CLASSES; c++) {
        w->most[c] = now[c] > w->most[c] ? now[c] : w->most[c];
        w->whole[c] = whole[c] > w->whole[c] ? whole[c] : w->whole[c];
    }
}

/* What the entry before left outside its lives; then poison all that does not live on. */
static void observe(void *observer, int entry)
{
    struct watch *w = observer;
    const struct plan *plan = &w->model->training.plan;
    unsigned char *arena = (unsigned char *)w->model->training.arena;
    bool *lives = malloc(plan->arena_bytes);

    if (w->before >= 0) {
        measure(w, w->before);
        for (size_t i = 0; i < plan->arena_bytes; i++)
            w->n_outside += !w->lives[i] && arena[i] != POISON;
    }
    mark_lives(w, entry, lives);
    for (size_t i = 0; i < plan->arena_bytes; i++)
        if (!lives[i] || (w->before < 0 && w->micro == 0))
            arena[i] = POISON;
    free(w->lives);
    w->lives = lives;
    w->before = entry;
    if (entry == plan->n_entries) {
        w->before = -1;
        w->micro = (w->micro + 1) % w->n_micro;
    }
}

static void watch(struct fsdp_model *model, void *user)
{
    struct watches *all = user;
    const int rank = fsdp_context_rank(model->context);
    struct watch *w = &all->of[rank];

    *w = (struct watch){ .model = model, .before = -1, .n_micro = all->n_micro };
    model->training.observe = observe;
    model->training.observer = w;
    if (rank == 0) {
        memcpy(all->planned, model->training.plan.class_bytes, sizeof all->planned);
        all->arena = model->training.plan.arena_bytes;
    }
}

static const char *const class_names[PLAN_N_CLASSES] = { "activations", "gathered", "reduced", "scratch" };

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
    for (int r = 0; r < way.W; r++) {
        const struct watch *w = &watches.of[r];

        cr_expect_eq(w->n_outside, 0, "%s, rank %d: %zu bytes written outside the plan", name, r,
                     w->n_outside);
        cr_expect(w->end <= watches.arena && w->end + 64 >= watches.arena, "%s: %zu of the arena's %zu bytes",
                  name, w->end, watches.arena);
        for (int c = 0; c < PLAN_N_CLASSES; c++)
            cr_expect(w->most[c] <= watches.planned[c], "%s, rank %d, %s: %zu bytes at once, planned %zu",
                      name, r, class_names[c], w->most[c], watches.planned[c]);
        /* Nor is more planned than is used: 64 bytes of alignment a buffer aside, it is written. */
        for (int c = PLAN_ACTIVATIONS; c <= PLAN_REDUCED; c++)
            cr_expect((double)w->most[c] >= 0.95 * (double)w->whole[c],
                      "%s, rank %d, %s: only %zu bytes at once of %zu", name, r, class_names[c], w->most[c],
                      w->whole[c]);
        free(w->lives);
    }
    seen_free(&want);
    seen_free(&got);
}

/* On the reference numerics and on those that a job gets. */
static void expect_planned_in_rows(const struct reference *reference, const struct way *plain,
                                   const char *name)
{
    static const char *const rows[] = { "ref", "auto" };

    for (size_t row = 0; row < sizeof rows / sizeof *rows; row++) {
        struct way way = *plain;
        char label[96];

        way.steps = 2;
        way.numerics = rows[row];
        snprintf(label, sizeof label, "%s, numerics %s", name, rows[row]);
        expect_planned(reference, &way, label);
    }
}

Test(parity_memory, every_class_stays_within_the_plan_to_the_byte, .timeout = 300)
{
    static const struct {
        const char *reference, *name;
        struct way way;
    } cases[] = {
        { "transformer", "default", { .W = 2 } },
        { "transformer", "one rank", { .W = 1 } },
        { "transformer", "reshard true", { .W = 3, .reshard = FSDP_RESHARD_TRUE } },
        { "transformer", "reshard false", { .W = 3, .reshard = FSDP_RESHARD_FALSE } },
        { "transformer", "reshard to 2", { .W = 4, .reshard_size = 2 } },
        { "transformer", "prefetch", { .W = 2, .prefetch = 2, .in_flight = 2 } },
        { "transformer", "recompute", { .W = 2, .recompute = FSDP_CHECKPOINT_FULL } },
        { "transformer", "selective", { .W = 2, .recompute = FSDP_CHECKPOINT_SELECTIVE } },
        { "transformer", "bfloat16", { .W = 2, .param_dtype = FSDP_BF16 } },
        { "transformer",
          "bfloat16, bfloat16 sums",
          { .W = 3, .param_dtype = FSDP_BF16, .reduce_dtype = FSDP_BF16 } },
        { "transformer",
          "bfloat16, float32 sums",
          { .W = 3, .param_dtype = FSDP_BF16, .reduce_dtype = FSDP_F32 } },
        { "transformer", "float8", { .W = 2, .float8 = true } },
        { "transformer", "float8 of one rank", { .W = 1, .float8 = true } },
        { "transformer",
          "float8 to bfloat16, slices, micro-steps",
          { .W = 4, .float8 = true, .param_dtype = FSDP_BF16, .reshard_size = 2, .n_micro = 2 } },
        { "transformer",
          "float8, kept after backward",
          { .W = 3, .float8 = true, .n_micro = 2, .keep_after_backward = true } },
        { "transformer", "hybrid", { .W = 4, .replicate = 2 } },
        { "transformer", "micro-steps", { .W = 2, .n_micro = 3 } },
        { "transformer", "micro-steps, reduced in each", { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_EVERY } },
        { "transformer",
          "kept",
          { .W = 2, .n_micro = 3, .keep_after_backward = true, .reshard = FSDP_RESHARD_FALSE } },
        { "transformer", "two forwards", { .W = 2, .n_micro = 2, .forwards = 2 } },
        { "transformer",
          "two forwards, recompute",
          { .W = 2, .n_micro = 2, .forwards = 2, .recompute = FSDP_CHECKPOINT_FULL } },
        { "transformer",
          "two forwards, a backward of each",
          { .W = 2,
            .n_micro = 2,
            .forwards = 2,
            .backwards = FSDP_BACKWARD_OF_EACH,
            .sync = FSDP_SYNC_EVERY } },
        { "transformer", "columns", { .W = 2, .columns = true } },
        { "tensor", "tensor parallel", { .W = 4, .tensor = 2 } },
        { "tensor",
          "tensor parallel, recompute",
          { .W = 2, .tensor = 2, .recompute = FSDP_CHECKPOINT_SELECTIVE } },
        { "tensor", "tensor parallel, bfloat16", { .W = 4, .tensor = 4, .param_dtype = FSDP_BF16 } },
        { "tensor", "meshes of units", { .W = 4, .replicate = 2, .mixed_meshes = true } },
        { "leading", "frozen leading block", { .W = 2, .reshard = FSDP_RESHARD_TRUE } },
        { "twice", "twice", { .W = 2 } },
        { "tied", "tied", { .W = 3 } },
        { "biases", "frozen", { .W = 2 } },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct reference *reference = reference_read(cases[i].reference);

        expect_planned_in_rows(reference, &cases[i].way, cases[i].name);
        reference_free(reference);
    }
}

/* From 64 positions on attention keeps no probabilities (nn/attention.c). */
Test(parity_memory, long_sequences_stay_within_it_too, .timeout = 300)
{
    static const struct {
        const char *name;
        struct way way;
    } cases[] = { { "long", { .W = 2 } },
                  { "long, recompute", { .W = 2, .recompute = FSDP_CHECKPOINT_SELECTIVE } },
                  { "long, bfloat16", { .W = 2, .param_dtype = FSDP_BF16 } } };
    struct reference *reference = reference_read("transformer");

    reference->seq = 70;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        expect_planned_in_rows(reference, &cases[i].way, cases[i].name);
    reference_free(reference);
}

/* The observer sees what it is there for: an entry that writes one byte behind a buffer's life. */
static void reach_outside(void *observer, int entry)
{
    struct watch *w = observer;
    const struct plan *plan = &w->model->training.plan;
    bool *lives = calloc(plan->arena_bytes, 1);

    observe(observer, entry);
    mark_lives(w, entry, lives);
    for (size_t i = 0; i < plan->arena_bytes && entry == plan->n_entries / 2; i++)
        if (!lives[i]) {
            w->model->training.arena[i] = 1;
            break;
        }
    free(lives);
}

static void watch_mutant(struct fsdp_model *model, void *user)
{
    watch(model, user);
    model->training.observe = reach_outside;
}

Test(parity_memory, a_byte_outside_the_plan_is_seen, .timeout = 300)
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

/* --- what stays between steps: fsdp2's formula, 4 bytes of each padded row of parameters, 4 of each that learns, and
 * AdamW's 8 of each own element without padding. Replicas do not count. -------------------------------------------- */

static size_t chunk_of(const struct fsdp_parameter_info *info, int n_shards)
{
    const size_t rows = info->shape[info->shard_dim];

    return (rows + (size_t)n_shards - 1) / (size_t)n_shards * (info->n_elems / rows);
}

static void expect_formula(struct fsdp_model *model, void *user)
{
    const struct way *way = user;
    const int n_shards = way->replicate > 1 ? way->W / way->replicate : way->W;
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();
    size_t parameters = 0, gradients = 0, own = 0;
    struct fsdp_optimizer *optimizer;
    struct fsdp_memory memory;

    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;

        cr_assert(fsdp_model_parameter(model, i, &info, NULL) == FSDP_OK);
        parameters += chunk_of(&info, n_shards);
        gradients += info.has_gradient ? chunk_of(&info, n_shards) : 0;
        own += info.has_gradient ? info.n_rows * (info.n_elems / info.shape[info.shard_dim]) : 0;
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

Test(parity_memory, persistent_state_is_the_formula_in_every_mode, .timeout = 300)
{
    static const char *const cases[] = { "transformer", "tied", "biases", "linears-b" };
    static struct seen seen;

    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        struct reference *reference = reference_read(cases[c]);
        struct way ways[] = { { .W = 1 },
                              { .W = 3 },
                              { .W = 8 },
                              { .W = 5, .param_dtype = FSDP_BF16 },
                              { .W = 6, .replicate = 2 },
                              { .W = 4, .reshard_size = 2 },
                              { .W = 2, .n_micro = 3, .sync = FSDP_SYNC_LAST } };

        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            ways[i].steps = 1;
            ways[i].prepare = expect_formula;
            ways[i].user = &ways[i];
            case_run(reference, &ways[i], &seen);
            seen_free(&seen);
        }
        reference_free(reference);
    }
}

#include "tests/unit/parity/case.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/parity/case_model.h"
#include "tests/unit/parity/sabotage.h"

enum { MAX_MICRO = 4, MAX_SEQ = 70 };

struct run {
    const struct reference *reference;
    const struct way *way;
    struct seen *seen;
};

/* Data */

struct slice {
    float features[REFERENCE_BATCH * 16];
    int32_t tokens[REFERENCE_BATCH * MAX_SEQ], targets[REFERENCE_BATCH * MAX_SEQ];
};

static int32_t text(const struct reference *r, uint64_t place)
{
    place %= 40;
    return (int32_t)((place * place * 7 + place * 3 + 1) % r->vocab);
}

/*
 * Samples first ... first + batch - 1 of the step. What lies behind its last one pads a batch that the ranks
 * do not divide, and its targets are ignored.
 */
static void fill(const struct reference *r, int step, size_t first, size_t batch, struct slice *out)
{
    const size_t seq = r->seq > 0 ? r->seq : 1;

    for (size_t i = 0; i < batch; i++) {
        const bool pads = first + i >= REFERENCE_BATCH;
        const uint64_t sample = (uint64_t)step * REFERENCE_BATCH + first + i;

        for (size_t f = 0; f < r->widths[0]; f++)
            out->features[i * r->widths[0] + f] = (float)((f * 7 + sample * 3) % 11) * 0.2f - 1.0f;
        for (size_t t = 0; t < seq; t++) {
            out->tokens[i * seq + t] = r->vocab > 0 ? text(r, sample * seq + t) : 0;
            out->targets[i * seq + t] = pads           ? FSDP_IGNORED_TARGET
                                        : r->vocab > 0 ? text(r, sample * seq + t + 1)
                                                       : (int32_t)(sample * 3 % 11 % r->widths[2]);
        }
    }
}

/* A run */

static size_t batch_of(const struct way *way)
{
    const size_t parts = (size_t)case_data_ranks(way) * way->n_micro;

    return (REFERENCE_BATCH + parts - 1) / parts;
}

/* The forwards, then a backward of all of them or one of each. */
static void in_halves(struct fsdp_model *model, const struct way *way, const struct fsdp_batch *micro,
                      struct fsdp_loss *sum)
{
    const size_t n = way->forwards, n_backwards = way->backwards == FSDP_BACKWARD_OF_EACH ? n : 1;
    struct fsdp_err err = { 0 };

    *sum = (struct fsdp_loss){ 0 };
    for (size_t f = 0; f < n; f++) {
        struct fsdp_loss loss;

        case_must(fsdp_model_forward(model, &micro[f], &loss, &err), &err);
        sum->sum += loss.sum;
        sum->n_targets += loss.n_targets;
    }
    for (size_t b = 0; b < n_backwards; b++)
        case_must(fsdp_model_backward(model, &err), &err);
}

/* PyTorch's loop. */
static double call_by_call(struct fsdp_model *model, const struct way *way, const struct fsdp_batch *micro,
                           size_t n_micro)
{
    const size_t n = way->forwards;
    struct fsdp_err err = { 0 };
    double sum = 0, n_targets = 0;

    for (size_t m = 0; m < n_micro; m += n) {
        struct fsdp_loss loss;

        if (n_micro > n)
            fsdp_module_set_is_last_backward(model, m + n == n_micro);
        if (way->halves)
            in_halves(model, way, &micro[m], &loss);
        else
            case_must(fsdp_model_forward_backward(model, &micro[m], n, &loss, &err), &err);
        sum += loss.sum;
        n_targets += (double)loss.n_targets;
    }
    return sum / n_targets;
}

static double forward_backward(struct fsdp_model *model, const struct run *run, int step)
{
    const size_t batch = batch_of(run->way), n_micro = run->way->n_micro;
    const size_t rank = (size_t)(fsdp_context_rank(fsdp_model_context(model)) / run->way->tensor);
    struct slice slices[MAX_MICRO];
    struct fsdp_batch micro[MAX_MICRO];
    struct fsdp_err err = { 0 };
    struct fsdp_loss loss;

    cr_assert(n_micro <= MAX_MICRO && run->reference->seq <= MAX_SEQ);
    for (size_t m = 0; m < n_micro; m++) {
        const size_t first = (m * (size_t)case_data_ranks(run->way) + rank) * batch;

        fill(run->reference, step, first, batch, &slices[m]);
        micro[m] = (struct fsdp_batch){ .input = run->reference->vocab > 0 ? (void *)slices[m].tokens
                                                                           : (void *)slices[m].features,
                                        .targets = slices[m].targets,
                                        .first_sample = first };
    }
    if (run->way->calls || run->way->halves)
        return call_by_call(model, run->way, micro, n_micro);
    case_must(fsdp_model_forward_backward(model, micro, n_micro, &loss, &err), &err);
    return loss.mean;
}

/* Every parameter's whole gradient or value; collective, kept on rank 0. */
static void keep(struct fsdp_model *model, const struct run *run, enum fsdp_which which)
{
    struct seen *seen = run->seen;

    sabotage_hurry(true);
    for (size_t i = 0; i < fsdp_model_parameter_count(model); i++) {
        struct fsdp_parameter_info info;
        struct fsdp_err err = { 0 };
        float *whole;

        case_must(fsdp_model_parameter(model, i, &info, &err), &err);
        if (which == FSDP_GRADIENT && !info.has_gradient)
            continue;
        whole = calloc(info.n_elems, sizeof *whole);
        case_must(fsdp_parameter_gather(model, info.name, which, whole, info.n_elems, &err), &err);
        if (fsdp_context_rank(fsdp_model_context(model)) != 0) {
            free(whole);
            continue;
        }
        cr_assert(i < REFERENCE_MAX);
        seen->n_parameters = fsdp_model_parameter_count(model);
        seen->parameters[i].n_elems = info.n_elems;
        snprintf(seen->parameters[i].name, sizeof seen->parameters[i].name, "%s", info.name);
        *(which == FSDP_GRADIENT ? &seen->parameters[i].gradient : &seen->parameters[i].weight) = whole;
    }
    sabotage_hurry(false);
}

static struct fsdp_model_options model_options(const struct run *run)
{
    const struct reference *r = run->reference;

    return (struct fsdp_model_options){ .batch = batch_of(run->way),
                                        .seq = r->seq > 0 ? r->seq : 1,
                                        .input_features = r->widths[0],
                                        .seed = REFERENCE_SEED,
                                        .accumulates = run->way->n_micro > run->way->forwards,
                                        .forwards = run->way->forwards,
                                        .backwards = run->way->backwards,
                                        .gradient_sync = run->way->sync,
                                        .overlap = run->way->overlap == FSDP_OVERLAP_AUTO
                                                       ? FSDP_OVERLAP_OFF
                                                       : run->way->overlap };
}

static struct fsdp_optimizer *optimizer_of(struct fsdp_model *model, const struct reference *r)
{
    const struct fsdp_optimizer_group group = { .pattern = r->group_pattern,
                                                .lr = r->group_lr,
                                                .weight_decay = r->group_decay };
    struct fsdp_optimizer_options options = fsdp_optimizer_defaults();
    struct fsdp_optimizer *optimizer;
    struct fsdp_err err = { 0 };

    options.lr = r->lr;
    options.eps = r->eps;
    options.weight_decay = r->decay;
    options.groups = &group;
    options.n_groups = r->group_pattern[0] != '\0';
    case_must(fsdp_optimizer_create(&optimizer, model, &options, &err), &err);
    return optimizer;
}

static void train(struct fsdp_model *model, const struct run *run)
{
    struct fsdp_optimizer *optimizer = optimizer_of(model, run->reference);
    struct fsdp_context *context = fsdp_model_context(model);
    struct fsdp_err err = { 0 };

    for (int step = 0; step < run->way->steps; step++) {
        const double loss = forward_backward(model, run, step);
        double norm;

        if (step == 0)
            keep(model, run, FSDP_GRADIENT);
        case_must(
            fsdp_clip_grad_norm_of(model, run->reference->clip_norm, run->reference->clip_order, &norm, &err),
            &err);
        sabotage_before_optimizer(context);
        case_must(fsdp_optimizer_step(optimizer, &err), &err);
        if (fsdp_context_rank(context) == 0) {
            run->seen->losses[step] = loss;
            run->seen->norms[step] = norm;
            run->seen->n_steps = step + 1;
        }
    }
    keep(model, run, FSDP_VALUE);
    fsdp_optimizer_destroy(optimizer);
}

static void run_rank(struct fsdp_context *context, void *user)
{
    const struct run *run = user;
    const struct way *way = run->way;
    const struct fsdp_model_options options = model_options(run);
    const bool skips = run->reference->skips && 2 * fsdp_context_rank(context) >= way->W;
    const struct tiny tiny = case_tiny(run->reference, skips);
    struct fsdp_module *root = case_build(run->reference, &tiny);
    struct case_meshes meshes;
    struct fsdp_err err = { 0 };
    struct fsdp_model *model;

    sabotage_context(context);
    case_open_meshes(&meshes, context, way);
    case_freeze(root, run->reference->trains);
    case_split(root, way, meshes.tensor);
    case_shard(root, run->reference, way, &meshes);
    case_must(fsdp_model_create(&model, context, root, &options, &err), &err);
    sabotage_model(model);
    if (way->prepare != NULL)
        way->prepare(model, way->user);
    train(model, run);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    case_close_meshes(&meshes);
}

void case_run(const struct reference *reference, const struct way *way, struct seen *seen)
{
    struct way full = *way;
    struct run run = { .reference = reference, .way = &full, .seen = seen };

    full.n_micro = way->n_micro > 0 ? way->n_micro : 1;
    full.forwards = way->forwards > 0 ? way->forwards : 1;
    full.tensor = way->tensor > 1 ? way->tensor : 1;
    full.replicate = way->replicate > 1 ? way->replicate : 1;
    full.steps = way->steps > 0 ? way->steps : REFERENCE_STEPS;
    memset(seen, 0, sizeof *seen);
    sabotage_choose(way->slow, way->sabotage);
    world_run_on(way->W, way->numerics != NULL ? way->numerics : "ref", run_rank, &run);
}

void seen_free(struct seen *seen)
{
    for (size_t i = 0; i < seen->n_parameters; i++) {
        free(seen->parameters[i].gradient);
        free(seen->parameters[i].weight);
    }
}

/* Against the reference, and against each other */

double distance(const float *a, const double *b, size_t n)
{
    double difference = 0, size = 0;

    for (size_t i = 0; i < n; i++) {
        difference += (a[i] - b[i]) * (a[i] - b[i]);
        size += b[i] * b[i];
    }
    return sqrt(difference) / (sqrt(size) + 1e-30);
}

/* Written so that NaN is far. */
static int is_far(const char *label, const char *what, double got, double want, double allowed)
{
    const double off = fabs(got - want) / fabs(want);

    if (off <= allowed)
        return 0;
    cr_expect(label == NULL, "%s: %s is %.9g, not %.9g (%.2g off)", label, what, got, want, off);
    return 1;
}

int seen_compare(const struct seen *seen, const struct reference *r, const char *label)
{
    int n_far = 0, n_gradients = 0;

    for (int step = 0; step < seen->n_steps; step++) {
        n_far += is_far(label, "a loss", seen->losses[step], r->losses[step], 2e-6);
        n_far += is_far(label, "a norm", seen->norms[step], r->norms[step], 5e-6);
    }
    for (size_t i = 0; i < seen->n_parameters; i++) {
        const struct reference_tensor *want = reference_gradient(r, seen->parameters[i].name);
        double off;

        if (want == NULL || seen->parameters[i].gradient == NULL)
            continue;
        cr_assert_eq(want->n_elems, seen->parameters[i].n_elems);
        off = distance(seen->parameters[i].gradient, want->values, want->n_elems);
        n_gradients++;
        if (!(off <= 5e-6)) {
            n_far++;
            cr_expect(label == NULL, "%s: the gradient of %s is %.2g off", label, want->name, off);
        }
    }
    cr_assert_eq(n_gradients, r->n_gradients, "%s: %d gradients, not %d", label, n_gradients, r->n_gradients);
    return n_far;
}

static void expect_case(const char *name, const struct way *ways, size_t n_ways)
{
    static const char *const rows[] = { "ref", "auto" };
    struct reference *reference = reference_read(name);
    static struct seen seen;

    for (size_t i = 0; i < 2 * n_ways; i++) {
        struct way way = ways[i / 2];
        char label[96];

        way.numerics = rows[i % 2];
        snprintf(label, sizeof label, "%s, way %zu (W %d), numerics %s", name, i / 2, way.W, way.numerics);
        case_run(reference, &way, &seen);
        seen_compare(&seen, reference, label);
        seen_free(&seen);
    }
    reference_free(reference);
}

void case_expect(const char *cases, const struct way *ways, size_t n_ways)
{
    char names[128], *rest, *name;

    snprintf(names, sizeof names, "%s", cases);
    for (name = strtok_r(names, " ", &rest); name != NULL; name = strtok_r(NULL, " ", &rest)) {
        char *colon = strchr(name, ':');

        if (colon != NULL)
            *colon = '\0';
        expect_case(name, ways, colon == NULL ? n_ways : strtoul(colon + 1, NULL, 10));
    }
}

static bool same(const float *a, const float *b, size_t n)
{
    return (a == NULL) == (b == NULL) && (a == NULL || memcmp(a, b, n * sizeof *a) == 0);
}

bool seen_same_bits(const struct seen *one, const struct seen *other)
{
    bool alike = one->n_steps == other->n_steps && one->n_parameters == other->n_parameters &&
                 one->n_steps > 0 && memcmp(one->losses, other->losses, sizeof one->losses) == 0 &&
                 memcmp(one->norms, other->norms, sizeof one->norms) == 0;

    for (size_t i = 0; alike && i < one->n_parameters; i++)
        alike =
            same(one->parameters[i].gradient, other->parameters[i].gradient, one->parameters[i].n_elems) &&
            same(one->parameters[i].weight, other->parameters[i].weight, one->parameters[i].n_elems);
    return alike;
}

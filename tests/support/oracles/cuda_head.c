/*
 * The head on the cpu and on cuda, its logits and gradients element by element; links libfsdp.
 *
 * 100 classes are no multiple of anything: on cuda rows of logits are padded, and in bfloat16 the weight's
 * gradient is made in two products. Nothing of that may be seen from outside. Exit 0 if both devices agree;
 * else 1, with words on stderr.
 */
#include <fsdp/fsdp.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH = 2, SEQ = 5, VOCAB = 100, DIM = 24, MICRO = 2, ROWS = BATCH * SEQ };

struct seen {
    double loss;
    float weight[VOCAB * DIM], table[VOCAB * DIM]; /* gradients: of the head, of the embedding */
    float logits[ROWS * VOCAB];
};

static struct fsdp_err err;

static void must(enum fsdp_status status, const char *what)
{
    if (status == FSDP_OK)
        return;
    fprintf(stderr, "%s: %s\n", what, err.message);
    exit(1);
}

static struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_call(fsdp_module_child(self, "embedding"), x));
}

static void run(const char *device, int dtype, bool draws, size_t n_micro, struct seen *seen)
{
    const struct fsdp_context_options context_options = { .device = device, .collectives = "cpu" };
    const struct fsdp_model_options options = {
        .batch = BATCH, .seq = SEQ, .seed = 5, .accumulates = n_micro > 1
    };
    struct fsdp_mixed_precision_policy policy = fsdp_mixed_precision_defaults();
    struct fsdp_module *root = fsdp_module_create(forward, NULL);
    struct fsdp_batch batches[MICRO];
    int32_t tokens[MICRO][ROWS], targets[MICRO][ROWS];
    struct fsdp_context *context = NULL;
    struct fsdp_model *model = NULL;
    struct fsdp_loss loss;
    const float *logits;

    policy.param_dtype = dtype;
    policy.stochastic_rounding = draws;
    fsdp_embedding(root, "embedding", VOCAB, DIM);
    fsdp_linear(root, "output", DIM, VOCAB, false);
    must(fsdp_fully_shard(root, &(struct fsdp_fully_shard_options){ .mp_policy = &policy }, &err),
         "the tree");
    must(fsdp_context_create(&context, &context_options, &err), device);
    must(fsdp_model_create(&model, context, root, &options, &err), "the model");
    for (size_t m = 0; m < n_micro; m++) {
        for (int i = 0; i < ROWS; i++) { /* targets to the last class */
            tokens[m][i] = (int32_t)((m * 41 + (size_t)i * 7) % VOCAB);
            targets[m][i] = i == 3 ? FSDP_IGNORED_TARGET : VOCAB - 1 - i * 9;
        }
        batches[m] = (struct fsdp_batch){ .input = tokens[m], .targets = targets[m] };
    }
    must(fsdp_model_forward_backward(model, batches, n_micro, &loss, &err), "a step");
    seen->loss = loss.mean;
    must(fsdp_parameter_gather(model, "output.weight", FSDP_GRADIENT, seen->weight, VOCAB * DIM, &err),
         "gradient");
    must(fsdp_parameter_gather(model, "embedding.weight", FSDP_GRADIENT, seen->table, VOCAB * DIM, &err),
         "gradient");
    must(fsdp_model_prepare_evaluation(model, BATCH, SEQ, &err), "an evaluation");
    must(fsdp_model_evaluate(model, tokens[0], targets[0], &logits, &loss, &err), "an evaluation");
    memcpy(seen->logits, logits, sizeof seen->logits);
    fsdp_model_destroy(model);
    fsdp_context_destroy(context);
    fsdp_module_destroy(root);
}

static int n_failed;

/* Within `tolerance` times the largest. */
static void compare(const char *way, const char *what, const float *cpu, const float *cuda, size_t n,
                    double tolerance)
{
    double most = 0;

    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs((double)cpu[i]));
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)cpu[i] - (double)cuda[i]) <= tolerance * most) || most == 0) {
            fprintf(stderr, "%s: %s: element %zu is %.7g on the cpu and %.7g on cuda\n", way, what, i,
                    (double)cpu[i], (double)cuda[i]);
            n_failed++;
            return;
        }
}

int main(void)
{
    /* Of bfloat16: a gradient is rounded with the logit that it comes from, and once more itself. */
    static const struct way {
        const char *name;
        int dtype;
        bool draws;
        size_t n_micro;
        double logits, gradients;
    } ways[] = {
        { "float32", FSDP_F32, false, 1, 1e-6, 1e-5 },
        { "float32, two micro-steps", FSDP_F32, false, MICRO, 1e-6, 1e-5 },
        { "bfloat16", FSDP_BF16, false, 1, 1e-6, 2e-2 },
        { "bfloat16, two micro-steps", FSDP_BF16, false, MICRO, 1e-6, 2e-2 },
        { "bfloat16, rounded by draws", FSDP_BF16, true, 1, 1e-6, 2e-2 },
    };

    for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
        static struct seen cpu, cuda;
        const struct way *way = &ways[w];

        run("cpu", way->dtype, way->draws, way->n_micro, &cpu);
        run("cuda", way->dtype, way->draws, way->n_micro, &cuda);
        compare(way->name, "logits of an evaluation", cpu.logits, cuda.logits, ROWS * VOCAB, way->logits);
        compare(way->name, "gradient of the head", cpu.weight, cuda.weight, VOCAB * DIM, way->gradients);
        compare(way->name, "gradient of the embedding", cpu.table, cuda.table, VOCAB * DIM, way->gradients);
        if (!(fabs(cpu.loss - cuda.loss) <= 1e-3 * cpu.loss)) {
            fprintf(stderr, "%s: the loss is %.9g on the cpu and %.9g on cuda\n", way->name, cpu.loss,
                    cuda.loss);
            n_failed++;
        }
    }
    return n_failed > 0;
}

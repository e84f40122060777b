/*
 * A small transformer learns a text, byte by byte: model, training loop and checkpoints in one file.
 *
 *     cc train_transformer.c $(pkg-config --cflags --libs fsdp) -o train_transformer
 *     ./train_transformer book.txt                                  alone
 *     fsdprun --nproc-per-node 4 -- ./train_transformer book.txt    sharded over four ranks, the same losses
 *     ./train_transformer book.txt 300 saved                        300 steps; again: from saved/ on
 *     fsdprun --run-dir run -- ./train_transformer book.txt 300 -   the same, with the run directory for "-"
 */
#include <fsdp/fsdp.h>

#include <stdio.h>
#include <stdlib.h>

enum { LAYERS = 2, DIM = 64, HEADS = 4, VOCAB = 256, SEQ = 32, GLOBAL_BATCH = 12, STEPS = 30 };
enum { SAVE_EVERY = 10, KEEP = 3 };

/*
 * A block computes h = x + attention(norm(x)), and then h + mlp(norm(h)). The library calls these functions
 * once, to record the model; every step then runs that record.
 */
static struct fsdp_value *mlp_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    x = fsdp_gelu(fsdp_call(fsdp_module_child(self, "w1"), x));
    return fsdp_call(fsdp_module_child(self, "w2"), x);
}

static struct fsdp_value *block_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    struct fsdp_value *h = fsdp_call(fsdp_module_child(self, "attention_norm"), x);

    (void)user;
    x = fsdp_add(x, fsdp_call(fsdp_module_child(self, "attention"), h));
    h = fsdp_call(fsdp_module_child(self, "ffn_norm"), x);
    return fsdp_add(x, fsdp_call(fsdp_module_child(self, "feed_forward"), h));
}

static struct fsdp_value *model_forward(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    struct fsdp_module *layers = fsdp_module_child(self, "layers");
    struct fsdp_value *x;

    (void)user;
    x = fsdp_embed(fsdp_module_child(self, "tok_embeddings"), fsdp_module_child(self, "pos_embeddings"),
                   tokens);
    for (size_t i = 0; i < fsdp_module_child_count(layers); i++)
        x = fsdp_call(fsdp_module_child_at(layers, i), x);
    return fsdp_call(fsdp_module_child(self, "output"), fsdp_call(fsdp_module_child(self, "norm"), x));
}

/*
 * Each block becomes a unit of sharding. Then the root becomes one, with all parameters that no block has.
 * The results of constructors need no check: the tree remembers the first failure, and fsdp_model_create()
 * returns it.
 */
static enum fsdp_status build(struct fsdp_module *root, struct fsdp_err *err)
{
    struct fsdp_module *layers = fsdp_module_add(root, "layers", NULL, NULL);

    fsdp_embedding(root, "tok_embeddings", VOCAB, DIM);
    fsdp_embedding(root, "pos_embeddings", SEQ, DIM);
    for (int i = 0; i < LAYERS; i++) {
        char name[16];
        struct fsdp_module *block, *mlp;

        snprintf(name, sizeof name, "%d", i);
        block = fsdp_module_add(layers, name, block_forward, NULL);
        fsdp_layer_norm(block, "attention_norm", DIM, 1e-5f);
        fsdp_attention(block, "attention", DIM, HEADS, true, 0.0f);
        fsdp_layer_norm(block, "ffn_norm", DIM, 1e-5f);
        mlp = fsdp_module_add(block, "feed_forward", mlp_forward, NULL);
        fsdp_linear(mlp, "w1", DIM, 4 * DIM, true);
        fsdp_linear(mlp, "w2", 4 * DIM, DIM, true);
        if (fsdp_fully_shard(block, NULL, err) != FSDP_OK)
            return err->status;
    }
    fsdp_layer_norm(root, "norm", DIM, 1e-5f);
    fsdp_linear(root, "output", DIM, VOCAB, false);
    return fsdp_fully_shard(root, NULL, err);
}

/*
 * Copies `batch` samples, from number `first` on. Sample s is SEQ bytes of the text from byte s * SEQ on; its
 * targets are the SEQ bytes from byte s * SEQ + 1 on.
 */
static void read_samples(const unsigned char *text, size_t n_samples, uint64_t first, size_t batch,
                         int32_t *tokens, int32_t *targets)
{
    for (size_t i = 0; i < batch * SEQ; i++) {
        const size_t place = (size_t)((first + i / SEQ) % n_samples) * SEQ + i % SEQ;

        tokens[i] = text[place];
        targets[i] = text[place + 1];
    }
}

/* What the arguments ask for. */
struct task {
    unsigned char text[1 << 20];
    size_t length;
    uint64_t steps;
    bool saves;
    const char *directory; /* where the checkpoints are; NULL: in the run directory */
};

/* Trains up to task->steps. If checkpoints are asked for and there is one, training begins at the newest. */
static enum fsdp_status train(struct fsdp_model *model, struct fsdp_optimizer *optimizer,
                              const struct task *task, size_t batch, struct fsdp_err *err)
{
    const int rank = fsdp_context_rank(fsdp_model_context(model));
    int32_t tokens[GLOBAL_BATCH * SEQ], targets[GLOBAL_BATCH * SEQ];
    struct fsdp_checkpoint_state state = { .step = 0 };

    if (task->saves &&
        fsdp_checkpoint_load(model, optimizer, task->directory, -1, &state, err) == FSDP_ERR_NOT_FOUND)
        fsdp_err_clear(err);
    while (err->status == FSDP_OK && state.step < task->steps) {
        const uint64_t first = state.cursor + (uint64_t)rank * batch;
        const struct fsdp_batch micro = { .input = tokens, .targets = targets, .first_sample = first };
        struct fsdp_loss loss;
        double norm;

        read_samples(task->text, (task->length - 1) / SEQ, first, batch, tokens, targets);
        if (fsdp_model_forward_backward(model, &micro, 1, &loss, err) != FSDP_OK ||
            fsdp_clip_grad_norm(model, 1.0, &norm, err) != FSDP_OK ||
            fsdp_optimizer_step(optimizer, err) != FSDP_OK)
            break;
        state.cursor += GLOBAL_BATCH;
        state.step++;
        if (rank == 0)
            printf("step %d loss %.6f grad_norm %.5f\n", (int)state.step, loss.mean, norm);
        if (task->saves && state.step % SAVE_EVERY == 0)
            fsdp_checkpoint_save(model, optimizer, task->directory, &state, KEEP, NULL, err);
    }
    return err->status;
}

int main(int argc, char **argv)
{
    struct fsdp_optimizer_options adamw = fsdp_optimizer_defaults();
    struct fsdp_model_options options = { .seq = SEQ, .seed = 1234 };
    struct fsdp_module *root = NULL;
    struct fsdp_optimizer *optimizer = NULL;
    struct fsdp_context *context = NULL;
    struct fsdp_model *model = NULL;
    struct fsdp_err err = { 0 };
    static struct task task;
    FILE *file = argc >= 2 && argc <= 4 ? fopen(argv[1], "rb") : NULL;

    task.length = file != NULL ? fread(task.text, 1, sizeof task.text, file) : 0;
    task.steps = argc > 2 ? strtoull(argv[2], NULL, 10) : STEPS;
    task.saves = argc > 3;
    task.directory = task.saves && argv[3][0] != '-' ? argv[3] : NULL;
    if (file != NULL)
        fclose(file);
    if (task.length < SEQ + 1) {
        fprintf(stderr, "usage: %s TEXT [STEPS [CHECKPOINTS]]; the text has at least %d bytes\n", argv[0],
                SEQ + 1);
        return 2;
    }
    adamw.lr = 3e-3;
    root = fsdp_module_create(model_forward, NULL);
    if (fsdp_context_create(&context, NULL, &err) != FSDP_OK || build(root, &err) != FSDP_OK)
        goto done;
    options.batch = GLOBAL_BATCH / (size_t)fsdp_context_world_size(context);
    if (fsdp_model_create(&model, context, root, &options, &err) == FSDP_OK &&
        fsdp_optimizer_create(&optimizer, model, &adamw, &err) == FSDP_OK)
        train(model, optimizer, &task, options.batch, &err);
done:
    if (err.status != FSDP_OK)
        fprintf(stderr, "%s: %s\n", argv[0], err.message);
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
    fsdp_context_destroy(context);
    return err.status == FSDP_OK ? 0 : err.status == FSDP_ERR_PEER ? FSDP_EXIT_PEER : 1;
}

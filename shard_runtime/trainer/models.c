#include "shard_runtime/trainer/models.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/trainer/gpt2.h"
#include "shard_runtime/trainer/sharding.h"

static const float norm_eps = 1e-5f;
enum { FFN_FACTOR = 4, BLOCK_NAME_BYTES = 24 };

struct fsdp_value *models_call(struct fsdp_module *self, const char *name, struct fsdp_value *input)
{
    return fsdp_call(fsdp_module_child(self, name), input);
}

/* x -> w2(gelu(w1(x))) */
static struct fsdp_value *feed_forward(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    (void)user;
    return models_call(self, "w2", fsdp_gelu(models_call(self, "w1", x)));
}

/* Adds part(norm(x)) to x for each pair of a norm and a part, which are the children in this order. */
static struct fsdp_value *block(struct fsdp_module *self, struct fsdp_value *x, void *user)
{
    const struct job *job = user;

    for (size_t i = 0; i < fsdp_module_child_count(self); i += 2)
        x = fsdp_add_dropout(
            x, fsdp_call(fsdp_module_child_at(self, i + 1), fsdp_call(fsdp_module_child_at(self, i), x)),
            (float)job->model.dropout);
    return x;
}

struct fsdp_module *models_add_block(struct fsdp_module *blocks, uint64_t index, const struct job *job)
{
    char name[BLOCK_NAME_BYTES];

    snprintf(name, sizeof name, "%" PRIu64, index);
    return fsdp_module_add(blocks, name, block, (void *)job);
}

static void add_norm(struct fsdp_module *parent, const char *name, const struct job *job)
{
    if (job->model.norm == JOB_RMSNORM)
        fsdp_rms_norm(parent, name, job->model.dim, norm_eps);
    else
        fsdp_layer_norm(parent, name, job->model.dim, norm_eps);
}

static void add_block(struct fsdp_module *layers, uint64_t index, const struct job *job)
{
    const size_t dim = job->model.dim;
    struct fsdp_module *self = models_add_block(layers, index, job), *ffn;

    add_norm(self, "attention_norm", job);
    fsdp_attention(self, "attention", dim, job->model.heads, job->model.causal, (float)job->model.dropout);
    add_norm(self, "ffn_norm", job);
    ffn = fsdp_module_add(self, "feed_forward", feed_forward, NULL);
    fsdp_linear(ffn, "w1", dim, FFN_FACTOR * dim, true);
    fsdp_linear(ffn, "w2", FFN_FACTOR * dim, dim, true);
}

static const struct models_kind transformer_kind = { .name = "transformer",
                                                     .tokens = "tok_embeddings",
                                                     .positions = "pos_embeddings",
                                                     .blocks = "layers",
                                                     .norm = "norm",
                                                     .head = "output",
                                                     .add_block = add_block };

/* NULL: there is no such kind. */
static const struct models_kind *kind_of(const struct job *job)
{
    if (strcmp(job->model.kind, gpt2_kind.name) == 0)
        return &gpt2_kind;
    return strcmp(job->model.kind, transformer_kind.name) == 0 ? &transformer_kind : NULL;
}

/* tokens (batch, seq) -> logits (batch, seq, vocab) */
static struct fsdp_value *decoder(struct fsdp_module *self, struct fsdp_value *tokens, void *user)
{
    const struct job *job = user;
    const struct models_kind *kind = kind_of(job);
    struct fsdp_module *blocks = fsdp_module_child(self, kind->blocks);
    struct fsdp_value *x;

    x = fsdp_embed(fsdp_module_child(self, kind->tokens), fsdp_module_child(self, kind->positions), tokens);
    x = fsdp_dropout(x, (float)job->model.dropout);
    for (size_t i = 0; i < fsdp_module_child_count(blocks); i++)
        x = fsdp_call(fsdp_module_child_at(blocks, i), x);
    return models_call(self, kind->head, models_call(self, kind->norm, x));
}

static enum fsdp_status create_tree(struct fsdp_module **root, const struct models_kind *kind,
                                    const struct job *job, struct fsdp_err *err)
{
    const size_t dim = job->model.dim;
    struct fsdp_module *tree = *root = fsdp_module_create(decoder, (void *)job);
    struct fsdp_module *blocks;

    if (tree == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the model's tree");
    fsdp_embedding(tree, kind->tokens, job->model.vocab, dim);
    fsdp_embedding(tree, kind->positions, job->model.seq, dim);
    blocks = fsdp_module_add(tree, kind->blocks, NULL, NULL);
    for (uint64_t i = 0; i < job->model.layers; i++)
        kind->add_block(blocks, i, job);
    add_norm(tree, kind->norm, job);
    fsdp_linear(tree, kind->head, dim, job->model.vocab, false);
    /* the tree keeps any failure that occurred while it was built */
    OK_OR_RETURN(fsdp_module_check(tree, err));
    if (kind->tied || job->model.tied)
        OK_OR_RETURN(fsdp_module_tie_parameter(fsdp_module_child(tree, kind->head), "weight",
                                               fsdp_module_child(tree, kind->tokens), "weight", err));
    return FSDP_OK;
}

const struct fsdp_weight_names *models_weight_names(const struct job *job)
{
    return &kind_of(job)->weights;
}

enum fsdp_status models_create(struct fsdp_module **root, const struct job *job,
                               const struct sharding_meshes *meshes, struct fsdp_err *err)
{
    const struct models_kind *kind = kind_of(job);
    struct fsdp_module *tree = NULL;
    enum fsdp_status status;

    *root = NULL;
    if (kind == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "model.kind \"%s\" is not supported: only transformer and gpt2 are",
                         job->model.kind);
    if (job->model.heads == 0 || job->model.dim % job->model.heads != 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG,
                         "model.heads: %" PRIu64 " heads do not divide model.dim %" PRIu64, job->model.heads,
                         job->model.dim);
    status = create_tree(&tree, kind, job, err);
    if (status == FSDP_OK && meshes != NULL && meshes->tensor != NULL)
        status = sharding_split(tree, meshes->tensor, err);
    if (status == FSDP_OK) {
        sharding_checkpoint_blocks(tree, job);
        status = sharding_apply(tree, job, meshes != NULL ? meshes->data : NULL, err);
    }
    if (status != FSDP_OK) {
        fsdp_wrap(err, "building the model");
        fsdp_module_destroy(tree);
        return status;
    }
    *root = tree;
    return FSDP_OK;
}

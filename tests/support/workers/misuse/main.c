#include "misuse.h"

#include <stdio.h>
#include <string.h>

struct fsdp_err err;
enum { MAX_WORDS = 300 };

static int n_seen, n_wrong;
static char seen[MAX_WORDS][FSDP_ERR_MESSAGE_BYTES];

void expect(int line, enum fsdp_status want, const char *words, enum fsdp_status got)
{
    bool same = got == want && err.status == want && strcmp(err.message, words) == 0;

    for (int i = 0; i < n_seen && same; i++)
        same = strcmp(seen[i], words) != 0;
    if (!same || strchr(err.message, '\n') != NULL) {
        printf("line %d: want %s: %s\nline %d: got  %s: %s\n", line, fsdp_status_name(want), words, line,
               fsdp_status_name(got), err.message);
        n_wrong++;
    }
    snprintf(seen[n_seen++ % MAX_WORDS], FSDP_ERR_MESSAGE_BYTES, "%s", words);
    fsdp_err_clear(&err);
}

void hold(int line, bool holds, const char *what)
{
    if (!holds)
        printf("line %d: %s\n", line, what);
    n_wrong += !holds;
}

/* A model that is in order */

struct fsdp_value *forward(struct fsdp_module *self, struct fsdp_value *input, void *user)
{
    (void)user;
    return fsdp_call(
        fsdp_module_child(self, "out"),
        fsdp_call(fsdp_module_child(self, "middle"), fsdp_call(fsdp_module_child(self, "tokens"), input)));
}

struct fsdp_module *make_tree(fsdp_forward_fn root_forward)
{
    struct fsdp_module *root = fsdp_module_create(root_forward, NULL);

    fsdp_embedding(root, "tokens", VOCAB, DIM);
    fsdp_linear(root, "middle", DIM, DIM, true);
    fsdp_linear(root, "out", DIM, VOCAB, false);
    fsdp_module_add(root, "box", NULL, NULL);
    return root;
}

struct fsdp_module *make_sharded_tree(void)
{
    struct fsdp_module *root = make_tree(forward);

    OK(fsdp_fully_shard(fsdp_module_child(root, "middle"), NULL, &err));
    OK(fsdp_fully_shard(root, NULL, &err));
    return root;
}

const struct fsdp_model_options model_options = { .batch = BATCH, .seq = SEQ, .seed = 1 };
const int32_t tokens[BATCH * SEQ] = { 0, 1, 2, 3, 4, 5 };
static const int32_t targets[BATCH * SEQ] = { 1, 2, 3, 4, 5, 6 };
const struct fsdp_batch batch = { .input = tokens, .targets = targets };

struct fsdp_context *context;
struct fsdp_module *good_tree;
struct fsdp_model *good;
struct fsdp_optimizer *optimizer;

enum fsdp_status create(struct fsdp_module *root)
{
    struct fsdp_model *model = NULL;
    const enum fsdp_status status = fsdp_model_create(&model, context, root, &model_options, &err);

    fsdp_model_destroy(model);
    return status;
}

#define RUN(name) misuse_##name();

int main(void)
{
    struct fsdp_optimizer_options sgd = { .kind = FSDP_SGD, .lr = 0, .momentum = 0.5 };
    struct fsdp_loss before, after;

    OK(fsdp_context_create(&context, &(struct fsdp_context_options){ .device = "cpu", .threads = 1 }, &err));
    good_tree = make_sharded_tree();
    OK(fsdp_model_create(&good, context, good_tree, &model_options, &err));
    OK(fsdp_optimizer_create(&optimizer, good, &sgd, &err));
    OK(fsdp_model_forward_backward(good, &batch, 1, &before, &err));
    MISUSES(RUN)
    OK(fsdp_model_forward_backward(good, &batch, 1, &after, &err));
    OK(fsdp_optimizer_step(optimizer, &err));
    HOLD(before.sum == after.sum && before.n_targets == BATCH * SEQ);
    fsdp_optimizer_destroy(optimizer);
    fsdp_model_destroy(good);
    fsdp_module_destroy(good_tree);
    fsdp_context_destroy(context);
    printf("%d misuses, %d wrong\n", n_seen, n_wrong);
    return n_wrong != 0;
}

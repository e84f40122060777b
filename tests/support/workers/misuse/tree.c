/* Building a tree, what its forwards compute, its units, and the setters of these. */
#include "misuse.h"

#include <math.h>

/* Module.h, nn.h: what a tree remembers, and fully_shard says */

static enum fsdp_status shard_new(void (*build)(struct fsdp_module *root))
{
    struct fsdp_module *root = make_tree(forward);
    enum fsdp_status status;

    build(root);
    status = fsdp_fully_shard(root, NULL, &err);
    fsdp_module_destroy(root);
    return status;
}

#define ADD(name, what)                                                                                      \
    static void name(struct fsdp_module *root)                                                               \
    {                                                                                                        \
        HOLD((what) == NULL);                                                                                \
    }

ADD(add_dotted, fsdp_module_add(root, "a.b", NULL, NULL))
ADD(add_twice, fsdp_linear(root, "out", 1, 1, false))
ADD(add_nameless, fsdp_module_add(root, NULL, NULL, NULL))
ADD(add_huge, fsdp_linear(root, "huge", SIZE_MAX, 2, false))
ADD(add_strange_norm, fsdp_layer_norm(root, "norm", DIM, NAN))
ADD(add_latin1, fsdp_module_add(root, "caf\xe9", NULL, NULL))
ADD(add_headless, fsdp_attention(root, "attention", DIM, 0, true, 0))

void misuse_module(void)
{
    static const size_t shape[] = { 2, 2 };
    struct fsdp_module *root = make_tree(forward), *middle = fsdp_module_child(root, "middle");

    ARG("module \"a.b\" below \"\": a name has a dot in it", shard_new(add_dotted));
    ARG("module \"caf\xe9\" below \"\": a name is not UTF-8", shard_new(add_latin1));
    ARG("module \"out\" below \"\": the name is taken", shard_new(add_twice));
    ARG("module \"\" below \"\": a name is empty", shard_new(add_nameless));
    ARG("parameter \"weight\" of \"huge\": its shape is empty or too large", shard_new(add_huge));
    ARG("layer_norm \"norm\": eps must be positive", shard_new(add_strange_norm));
    ARG("attention \"attention\": 0 heads do not divide 4 features", shard_new(add_headless));
    ARG("parameter \"w\": no module", fsdp_module_add_parameter(NULL, "w", 2, shape, FSDP_INIT_ONES, &err));
    ARG("tying a parameter: no module", fsdp_module_tie_parameter(root, "weight", NULL, "weight", &err));
    ARG("tying \"nothing\" of \"middle\" to \"weight\" of \"\": there is no such pair",
        fsdp_module_tie_parameter(middle, "nothing", root, "weight", &err));
    ARG("\"middle\" has no parameter \"bias\" that begins normal with 1",
        fsdp_parameter_set_init_std(middle, "bias", 1, &err));
    ARG("\"middle\" has no parameter \"weight\" that begins normal with inf",
        fsdp_parameter_set_init_std(middle, "weight", INFINITY, &err));
    ARG("\"\" has no parameter \"\"", fsdp_parameter_set_requires_grad(NULL, NULL, true, &err));
    /* What went wrong first is what the tree remembers: this one comes last. */
    ARG("parameter \"flat\" of \"middle\": its shape is empty or too large",
        fsdp_module_add_parameter(middle, "flat", 2, NULL, FSDP_INIT_ONES, &err));
    fsdp_module_destroy(root);
    root = make_tree(forward);
    ARG("parameter \"odd\" of \"\": unknown init 12",
        fsdp_module_add_parameter(root, "odd", 2, shape, (enum fsdp_init)12, &err));
    ERR(FSDP_ERR_NOMEM, "the module is NULL: a constructor failed, or a look-up found nothing",
        fsdp_module_check(NULL, &err));
    HOLD(fsdp_rms_norm(NULL, "norm", DIM, 1) == NULL && fsdp_conv1d(NULL, "x", 1, 1, true) == NULL);
    HOLD(fsdp_module_add(NULL, "x", NULL, NULL) == NULL && fsdp_linear(NULL, "x", 1, 1, true) == NULL);
    HOLD(fsdp_module_child(NULL, "x") == NULL && fsdp_module_child(root, NULL) == NULL);
    HOLD(fsdp_module_child_count(NULL) == 0 && fsdp_module_child_at(root, 99) == NULL);
    HOLD(fsdp_module_path(NULL)[0] == '\0' && fsdp_module_n_elems(NULL) == 0 &&
         fsdp_call(root, NULL) == NULL);
    fsdp_module_requires_grad(NULL, true);
    fsdp_module_destroy(root);
    fsdp_module_destroy(NULL);
}

/* A forward that computes nothing good */

static struct fsdp_module *stranger;

#define FORWARD(name, value)                                                                                 \
    static struct fsdp_value *name(struct fsdp_module *self, struct fsdp_value *input, void *user)           \
    {                                                                                                        \
        return (void)self, (void)input, (void)user, (value);                                                 \
    }
#define CHILD(name) fsdp_module_child(self, name)
#define EMBEDDED    fsdp_call(CHILD("tokens"), input)

FORWARD(give_nothing, NULL)
FORWARD(give_back, input)
FORWARD(call_itself, fsdp_call(self, input))
FORWARD(call_nobody, fsdp_call(CHILD("nobody"), input))
FORWARD(call_box, fsdp_call(CHILD("box"), input))
FORWARD(call_stranger, fsdp_call(fsdp_module_child(stranger, "tokens"), input))
FORWARD(embed_stranger, fsdp_embed(CHILD("tokens"), fsdp_module_child(stranger, "middle"), input))
FORWARD(skip_embedding, fsdp_call(CHILD("middle"), input))
FORWARD(skip_middle, fsdp_call(CHILD("middle"), fsdp_call(CHILD("out"), EMBEDDED)))
FORWARD(drop_nan, fsdp_dropout(EMBEDDED, NAN))
FORWARD(cast_oddly, fsdp_cast(EMBEDDED, (enum fsdp_dtype)55))
FORWARD(attend_oddly, fsdp_packed_attention(EMBEDDED, 1, true, 0))

static enum fsdp_status create_from(fsdp_forward_fn root_forward)
{
    struct fsdp_module *root = make_tree(root_forward);
    enum fsdp_status status;

    OK(fsdp_fully_shard(root, NULL, &err));
    status = create(root);
    fsdp_module_destroy(root);
    return status;
}

void misuse_forward(void)
{
    stranger = make_sharded_tree();
    ARG("building the model: the forward of \"\" gave nothing", create_from(give_nothing));
    ARG("building the model: the root's forward gives its input back: there is nothing to compute",
        create_from(give_back));
    ARG("building the model: \"\": modules call each other more than 256 deep", create_from(call_itself));
    ARG("building the model: a module that does not exist is called in the forward of \"\"",
        create_from(call_nobody));
    ARG("building the model: \"box\" is a container without a forward and cannot be called",
        create_from(call_box));
    ARG("building the model: \"tokens\" of another tree is used in the forward of \"\"",
        create_from(call_stranger));
    ARG("building the model: \"middle\" of another tree is used in the forward of \"\"",
        create_from(embed_stranger));
    ARG("building the model: linear in \"middle\" is given tokens: it takes (batch, seq, features)",
        create_from(skip_embedding));
    ARG("building the model: linear \"middle\" takes 4 features and is given 7", create_from(skip_middle));
    ARG("building the model: dropout in \"\": p must be in [0, 1)", create_from(drop_nan));
    ARG("building the model: cast in \"\": to float32 or bfloat16, not unknown", create_from(cast_oddly));
    ARG("building the model: attention in \"\": 4 features are no q, k and v", create_from(attend_oddly));
    HOLD(fsdp_gelu(NULL) == NULL && fsdp_gelu_tanh(NULL) == NULL && fsdp_silu(NULL) == NULL);
    HOLD(fsdp_add(NULL, NULL) == NULL);
    HOLD(fsdp_dropout(NULL, 0) == NULL && fsdp_add_dropout(NULL, NULL, 0) == NULL);
    HOLD(fsdp_cast(NULL, FSDP_F32) == NULL && fsdp_embed(NULL, NULL, NULL) == NULL);
    HOLD(fsdp_packed_attention(NULL, 1, true, 0) == NULL);
    HOLD(fsdp_scaled_dot_product_attention(NULL, NULL, NULL, 1, true, 0) == NULL);
    fsdp_module_destroy(stranger);
}

/* Fully_shard.h, activation_checkpoint.h */

static enum fsdp_status shard_with(const struct fsdp_fully_shard_options *options)
{
    struct fsdp_module *root = make_tree(forward);
    const enum fsdp_status status = fsdp_fully_shard(root, options, &err);

    fsdp_module_destroy(root);
    return status;
}

static int place_far(const char *name, int n_dims, const size_t *shape, void *user)
{
    return (void)name, (void)n_dims, (void)shape, (void)user, 9;
}

void misuse_fully_shard(void)
{
    static const char *const unknown[] = { "nothing.weight" };
    struct fsdp_mixed_precision_policy odd = fsdp_mixed_precision_defaults();
    struct fsdp_module *root = make_sharded_tree(), *other = make_tree(forward);
    struct fsdp_module *list[] = { fsdp_module_child(other, "middle"), fsdp_module_child(other, "middle") };

    odd.param_dtype = FSDP_I64;
    ARG("fully_shard: \"middle\" is a unit of sharding already",
        fsdp_fully_shard(fsdp_module_child(root, "middle"), NULL, &err));
    ARG("fully_shard: \"box\" is a container without a forward: shard its children and its parent",
        fsdp_fully_shard(fsdp_module_child(root, "box"), NULL, &err));
    NULL_ARG(fsdp_fully_shard_modules, modules, NULL, 2, NULL);
    ARG("fully_shard: an empty list", fsdp_fully_shard_modules(list, 0, NULL, &err));
    ARG("fully_shard: \"middle\" is twice in the list, or of another tree",
        fsdp_fully_shard_modules(list, 2, NULL, &err));
    ARG("fsdp_fully_shard_modules: options->ignored_params is NULL",
        shard_with(&(struct fsdp_fully_shard_options){ .n_ignored_params = 1 }));
    ARG("fully_shard: of 1 ignored parameters 0 are in \"\"",
        shard_with(&(struct fsdp_fully_shard_options){ .ignored_params = unknown, .n_ignored_params = 1 }));
    ARG("fully_shard: param_dtype of \"\" must be float32 or bfloat16",
        shard_with(&(struct fsdp_fully_shard_options){ .mp_policy = &odd }));
    ARG("fully_shard: \"\" resharded to -1 ranks",
        shard_with(&(struct fsdp_fully_shard_options){ .reshard_after_forward = FSDP_RESHARD_TO,
                                                       .reshard_size = -1 }));
    ARG("fully_shard: \"\" has reshard_after_forward 9 and offload_policy 0",
        shard_with(&(struct fsdp_fully_shard_options){ .reshard_after_forward = (enum fsdp_reshard)9 }));
    ARG("fully_shard: \"tokens.weight\" of 2 dimensions is placed along dimension 9",
        shard_with(&(struct fsdp_fully_shard_options){ .shard_placement_fn = place_far }));
    fsdp_module_destroy(root);
    fsdp_module_destroy(other);
}

/* Setters and hooks on a module that is no unit */

static enum fsdp_status all_reduce_hook(void *row, size_t n, enum fsdp_dtype dtype,
                                        struct device_stream *stream, void *user, struct fsdp_err *e)
{
    return (void)row, (void)n, (void)dtype, (void)stream, (void)user, (void)e, FSDP_OK;
}

static enum fsdp_status post_hook(struct fsdp_model *model, int group, void *user, struct fsdp_err *e)
{
    return (void)model, (void)group, (void)user, (void)e, FSDP_OK;
}

#define SPOIL(name, call)                                                                                    \
    static void name(struct fsdp_module *root)                                                               \
    {                                                                                                        \
        struct fsdp_module *out = fsdp_module_child(root, "out");                                            \
        call;                                                                                                \
    }

SPOIL(reshard_forward, fsdp_module_set_reshard_after_forward(out, false, false))
SPOIL(reshard_backward, fsdp_module_set_reshard_after_backward(out, false, true))
SPOIL(gradient_sync, fsdp_module_set_requires_gradient_sync(out, false, false))
SPOIL(requires_all_reduce, fsdp_module_set_requires_all_reduce(out, false, false))
SPOIL(divide_factor, fsdp_module_set_gradient_divide_factor(out, 2, false))
SPOIL(divide_by_nan, fsdp_module_set_gradient_divide_factor(out, NAN, false))
SPOIL(force_sum, fsdp_module_set_force_sum_reduction_for_comms(out, true, false))
SPOIL(in_backward, fsdp_module_set_unshard_in_backward(out, false))
SPOIL(separate_group, fsdp_module_set_separate_reduce_scatter_group(out, true, false))
SPOIL(unused_params, fsdp_module_set_reduce_scatter_unused_params(out, true, false))
SPOIL(reduce_hook, fsdp_module_set_all_reduce_hook(out, all_reduce_hook, NULL))
SPOIL(custom_gather, fsdp_module_set_custom_all_gather(out, NULL, NULL))
SPOIL(custom_scatter, fsdp_module_set_custom_reduce_scatter(out, NULL, NULL))
SPOIL(grad_hook, fsdp_module_register_post_accumulate_grad_hook(out, post_hook, NULL, false))
SPOIL(wrap_oddly, fsdp_checkpoint_wrapper(out, (enum fsdp_activation_checkpoint)7))

/* On a module that does not exist a setter has nowhere to report: it does nothing. */
static void set_on_null(void)
{
    fsdp_module_set_reshard_after_forward(NULL, false, true);
    fsdp_module_set_gradient_divide_factor(NULL, NAN, true);
    fsdp_module_set_all_reduce_hook(NULL, NULL, NULL);
    fsdp_module_register_post_accumulate_grad_hook(NULL, NULL, NULL, true);
    fsdp_checkpoint_wrapper(NULL, FSDP_CHECKPOINT_FULL);
}

/* A tree that `spoil` does something wrong to does not become a model. */
static enum fsdp_status create_spoiled(void (*spoil)(struct fsdp_module *root))
{
    struct fsdp_module *root = make_sharded_tree();
    enum fsdp_status status;

    spoil(root);
    status = create(root);
    fsdp_module_destroy(root);
    return status;
}

#define NO_UNIT(setter) setter ": \"out\" is no unit of sharding: call fsdp_fully_shard() first"

void misuse_setters(void)
{
    struct fsdp_module *root = make_sharded_tree(), *out = fsdp_module_child(root, "out");

    ARG(NO_UNIT("fsdp_module_set_reshard_after_forward"), create_spoiled(reshard_forward));
    ARG("fsdp_module_set_reshard_after_backward: \"out\" is no unit of sharding, nor is any module below it: "
        "call "
        "fsdp_fully_shard() first",
        create_spoiled(reshard_backward));
    ARG(NO_UNIT("fsdp_module_set_requires_gradient_sync"), create_spoiled(gradient_sync));
    ARG(NO_UNIT("fsdp_module_set_requires_all_reduce"), create_spoiled(requires_all_reduce));
    ARG(NO_UNIT("fsdp_module_set_gradient_divide_factor"), create_spoiled(divide_factor));
    ARG("fsdp_module_set_gradient_divide_factor: nan for \"out\" is no number from 0 on",
        create_spoiled(divide_by_nan));
    ARG(NO_UNIT("fsdp_module_set_force_sum_reduction_for_comms"), create_spoiled(force_sum));
    ARG(NO_UNIT("fsdp_module_set_unshard_in_backward"), create_spoiled(in_backward));
    ARG(NO_UNIT("fsdp_module_set_separate_reduce_scatter_group"), create_spoiled(separate_group));
    ARG(NO_UNIT("fsdp_module_set_reduce_scatter_unused_params"), create_spoiled(unused_params));
    ARG(NO_UNIT("fsdp_module_set_all_reduce_hook"), create_spoiled(reduce_hook));
    ARG(NO_UNIT("fsdp_module_set_custom_all_gather"), create_spoiled(custom_gather));
    ARG(NO_UNIT("fsdp_module_set_custom_reduce_scatter"), create_spoiled(custom_scatter));
    ARG(NO_UNIT("fsdp_module_register_post_accumulate_grad_hook"), create_spoiled(grad_hook));
    ARG("checkpoint_wrapper: unknown mode 7 for \"out\"", create_spoiled(wrap_oddly));
    ARG("prefetching: \"out\" is no unit of sharding",
        fsdp_module_set_modules_to_forward_prefetch(out, NULL, 0, &err));
    ARG("prefetching for \"\": \"out\" is no unit of its tree",
        fsdp_module_set_modules_to_backward_prefetch(root, &out, 1, &err));
    ARG("prefetching for \"\": the list of units is NULL",
        fsdp_module_set_modules_to_forward_prefetch(root, NULL, 1, &err));
    ARG("0 buffers of gradients in flight: at least 1",
        fsdp_module_set_reduce_scatter_max_input_buffers(root, 0, true, &err));
    ARG("fsdp_module_set_reduce_scatter_max_input_buffers: \"out\" is no unit of sharding",
        fsdp_module_set_reduce_scatter_max_input_buffers(out, 2, false, &err));
    set_on_null();
    fsdp_module_destroy(root);
}

/* A setter on no unit while there is a model: the next step says so, and so does each one after it. */
void misuse_setters_of_model(void)
{
    struct fsdp_module *root = make_sharded_tree();
    struct fsdp_model *model = NULL;
    struct fsdp_loss loss;

    OK(fsdp_model_create(&model, context, root, &model_options, &err));
    OK(fsdp_model_forward_backward(model, &batch, 1, &loss, &err));
    fsdp_module_set_reshard_after_forward(fsdp_module_child(root, "tokens"), true, false);
    ARG("fsdp_module_set_reshard_after_forward: \"tokens\" is no unit of sharding: call fsdp_fully_shard() "
        "first",
        fsdp_model_forward_backward(model, &batch, 1, &loss, &err));
    HOLD(fsdp_model_prepare_evaluation(model, 1, 1, NULL) == FSDP_ERR_ARG);
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);

    root = make_sharded_tree();
    OK(fsdp_model_create(&model, context, root, &model_options, &err));
    fsdp_module_reshard(NULL, root);
    fsdp_module_reshard(model, fsdp_module_child(root, "out"));
    ARG("fsdp_module_reshard: \"out\" is no unit of the model",
        fsdp_model_forward_backward(model, &batch, 1, &loss, &err));
    fsdp_model_destroy(model);
    fsdp_module_destroy(root);
}

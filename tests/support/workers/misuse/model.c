/* A model, its steps and parameters, its optimizer, and what is saved of it. */
#include "misuse.h"

#include <math.h>
#include <string.h>

/* Model.h: making one */

static enum fsdp_status create_with(const struct fsdp_model_options *options)
{
    struct fsdp_model *model = NULL;
    struct fsdp_module *root = make_sharded_tree();
    const enum fsdp_status status = fsdp_model_create(&model, context, root, options, &err);

    HOLD(model == NULL);
    fsdp_module_destroy(root);
    return status;
}

static enum fsdp_status create_over(struct fsdp_device_mesh *mesh)
{
    struct fsdp_module *root = make_tree(forward);
    enum fsdp_status status;

    OK(fsdp_fully_shard(root, &(struct fsdp_fully_shard_options){ .mesh = mesh }, &err));
    status = create(root);
    fsdp_module_destroy(root);
    return status;
}

void misuse_model_create(void)
{
    struct fsdp_module *root = make_tree(forward);
    struct fsdp_device_mesh *two = NULL;
    struct fsdp_model *model = NULL;

    ARG("building the model: the root is no unit of sharding: call fsdp_fully_shard() on it last",
        create(root));
    OK(fsdp_fully_shard(fsdp_module_child(root, "middle"), NULL, &err));
    HOLD(create(root) == FSDP_ERR_ARG); /* a part is sharded, and the root is not */
    HOLD(create(NULL) == FSDP_ERR_NOMEM);
    ARG("a model is made of the root of a tree, not of \"middle\"",
        create(fsdp_module_child(root, "middle")));
    ARG("a model is made of this tree already: destroy that one first, or build another tree",
        fsdp_model_create(&model, context, good_tree, &model_options, &err));
    NULL_ARG(fsdp_model_create, out, NULL, context, good_tree, &model_options);
    NULL_ARG(fsdp_model_create, context, &model, NULL, good_tree, &model_options);
    NULL_ARG(fsdp_model_create, options, &model, context, good_tree, NULL);
    ARG("a model needs a seq of at least 1", create_with(&(struct fsdp_model_options){ .batch = 1 }));
    ARG("a model of 18446744073709551615 forwards before a backward: at most 4096",
        create_with(&(struct fsdp_model_options){ .batch = 1, .seq = 1, .forwards = SIZE_MAX }));
    ARG("a model with an unknown option: backwards 0, gradient_sync 5, overlap 0, recompute 0",
        create_with(&(struct fsdp_model_options){
            .batch = 1, .seq = 1, .gradient_sync = (enum fsdp_gradient_sync)5 }));
    ARG("building the model: a value of 18446744073709551615 x 3 x 0 elements does not fit",
        create_with(&(struct fsdp_model_options){ .batch = SIZE_MAX, .seq = SEQ }));
    OK(fsdp_init_device_mesh(&two, NULL, 1, (int[]){ 2 }, NULL, &err));
    ARG("building the model: \"\" has a mesh that was made without a context: it is for planning alone",
        create_over(two));
    HOLD(model == NULL);
    fsdp_device_mesh_destroy(two);
    fsdp_module_destroy(root);
    fsdp_model_destroy(NULL);
}

/* Model.h: running one */

void misuse_step(void)
{
    static const int32_t far[BATCH * SEQ] = { 0, 1, 2, 3, VOCAB, 5 }, negative[BATCH * SEQ] = { 0, -1 };
    struct fsdp_batch wrong = batch;
    struct fsdp_loss loss;

    NULL_ARG(fsdp_model_forward_backward, model, NULL, &batch, 1, &loss);
    NULL_ARG(fsdp_model_forward_backward, loss, good, &batch, 1, NULL);
    ARG("a step is given no batch", fsdp_model_forward_backward(good, NULL, 1, &loss, &err));
    ARG("0 batches in a model that runs 1 forwards before a backward",
        fsdp_model_forward_backward(good, &batch, 0, &loss, &err));
    ARG("2 micro-steps in a model that was made for one",
        fsdp_model_forward_backward(good, &batch, 2, &loss, &err));
    wrong.targets = NULL;
    ARG("a batch has no input or no targets", fsdp_model_forward_backward(good, &wrong, 1, &loss, &err));
    wrong.targets = far;
    ARG("target 7 of sample 1 is not in [0, 7)", fsdp_model_forward_backward(good, &wrong, 1, &loss, &err));
    wrong = (struct fsdp_batch){ .input = far, .targets = batch.targets };
    ARG("token 7 of sample 1 is not in the embedding's 7 rows",
        fsdp_model_forward_backward(good, &wrong, 1, &loss, &err));
    wrong.input = negative;
    ARG("token -1 of sample 0 is not in the embedding's 7 rows",
        fsdp_model_forward(good, &wrong, &loss, &err));
    NULL_ARG(fsdp_model_forward, model, NULL, &batch, &loss);
    NULL_ARG(fsdp_model_forward, loss, good, &batch, NULL);
    NULL_ARG(fsdp_model_backward, model, NULL);
    ARG("0 of 1 forwards have run: a backward is not next", fsdp_model_backward(good, &err));
    OK(fsdp_model_forward(good, &batch, &loss, &err));
    ARG("all 1 forwards have run: a backward is next", fsdp_model_forward(good, &batch, &loss, &err));
    ARG("a forward is waiting for its backward", fsdp_model_forward_backward(good, &batch, 1, &loss, &err));
    OK(fsdp_model_backward(good, &err));
    fsdp_module_set_is_last_backward(NULL, true);
    fsdp_module_set_is_last_backward(good, false);
    ARG("a backward that is not the step's last in a model that was made for one micro-step",
        fsdp_model_forward_backward(good, &batch, 1, &loss, &err));
    fsdp_module_set_is_last_backward(good, true);
    NULL_ARG(fsdp_module_reset_iteration, model, NULL);
}

void misuse_clip(void)
{
    struct fsdp_loss loss;
    double norm;

    OK(fsdp_model_forward_backward(good, &batch, 1, &loss, &err));
    NULL_ARG(fsdp_clip_grad_norm, model, NULL, 1, &norm);
    NULL_ARG(fsdp_clip_grad_norm, norm, good, 1, NULL);
    ARG("max_norm must be 0 or more", fsdp_clip_grad_norm(good, NAN, &norm, &err));
    NULL_ARG(fsdp_clip_grad_norm_of, model, NULL, 1, 2, &norm);
    ARG("norm_type must be 1 or more", fsdp_clip_grad_norm_of(good, 1, 0.5, &norm, &err));
}

void misuse_evaluation(void)
{
    static const int32_t far[SEQ] = { 0, 1, -5 };
    const float *logits;
    struct fsdp_loss loss;

    NULL_ARG(fsdp_model_prepare_evaluation, model, NULL, 1, 1);
    ARG("an evaluation of 0 samples of 3 tokens", fsdp_model_prepare_evaluation(good, 0, SEQ, &err));
    NULL_ARG(fsdp_model_evaluate, model, NULL, tokens, NULL, &logits, NULL);
    ARG("no evaluation was prepared", fsdp_model_evaluate(good, tokens, NULL, &logits, NULL, &err));
    OK(fsdp_model_prepare_evaluation(good, 1, SEQ, &err));
    ARG("an evaluation without input or place for its loss",
        fsdp_model_evaluate(good, NULL, NULL, &logits, &loss, &err));
    ARG("token -5 is not in the embedding's 7 rows",
        fsdp_model_evaluate(good, far, NULL, &logits, NULL, &err));
    ARG("target -5 is not in [0, 7)", fsdp_model_evaluate(good, tokens, far, &logits, &loss, &err));
}

void misuse_parameters(void)
{
    const struct fsdp_module *out = fsdp_module_child(good_tree, "out");
    struct fsdp_parameter_info info;
    struct fsdp_memory memory;
    float x[VOCAB * DIM] = { 0 };
    enum fsdp_dtype dtype;
    const void *data;

    NULL_ARG(fsdp_model_parameter, model, NULL, 0, &info);
    NULL_ARG(fsdp_model_parameter, info, good, 0, NULL);
    ARG("parameter 99 of 4", fsdp_model_parameter(good, 99, &info, &err));
    NULL_ARG(fsdp_parameter_gather, model, NULL, "out.weight", FSDP_VALUE, x, 1);
    NULL_ARG(fsdp_parameter_gather, name, good, NULL, FSDP_VALUE, x, 1);
    NULL_ARG(fsdp_parameter_gather, out, good, "out.weight", FSDP_VALUE, NULL, VOCAB * DIM);
    ARG("\"out.weight\" has 28 elements, not 27",
        fsdp_parameter_gather(good, "out.weight", FSDP_VALUE, x, VOCAB * DIM - 1, &err));
    ARG("of \"out.weight\" there is a value and a gradient, not 6",
        fsdp_parameter_gather(good, "out.weight", (enum fsdp_which)6, x, VOCAB * DIM, &err));
    NULL_ARG(fsdp_parameter_set, values, good, "out.weight", NULL, VOCAB * DIM);
    ARG("there is no parameter \"out.wait\"", fsdp_parameter_set(good, "out.wait", x, 1, &err));
    NULL_ARG(fsdp_module_unshard, model, NULL, good_tree, false, NULL);
    ARG("unsharding \"out\": it is no unit of the model", fsdp_module_unshard(good, out, false, NULL, &err));
    ARG("unsharding \"\": it is no unit of the model", fsdp_module_unshard(good, NULL, false, NULL, &err));
    NULL_ARG(fsdp_parameter_unsharded, data, good, "out.weight", NULL, &dtype);
    ARG("there is no parameter \"out.bias\"",
        fsdp_parameter_unsharded(good, "out.bias", &data, &dtype, &err));
    HOLD(fsdp_unshard_handle_wait(NULL, NULL) == FSDP_OK && fsdp_model_parameter_count(NULL) == 0);
    HOLD(fsdp_model_plan_text(NULL) == NULL && fsdp_model_context(NULL) == NULL);
    fsdp_model_state(NULL, NULL);
    fsdp_model_state(good, NULL);
    fsdp_model_memory(NULL, &memory);
    fsdp_model_memory(good, NULL);
    HOLD(memory.parameters == 0 && memory.arena == 0);
}

/* In optimizer.h */

static enum fsdp_status make_optimizer(struct fsdp_optimizer_options options)
{
    struct fsdp_optimizer *made = NULL;
    const enum fsdp_status status = fsdp_optimizer_create(&made, good, &options, &err);

    HOLD(made == NULL);
    fsdp_optimizer_destroy(made);
    return status;
}

void misuse_optimizer(void)
{
    const struct fsdp_optimizer_options defaults = fsdp_optimizer_defaults();
    const struct fsdp_optimizer_group nameless = { NULL, -1, -1 }, stray = { "nothing.*", -1, -1 };
    struct fsdp_optimizer_options o;
    struct fsdp_optimizer *made;
    float x[4] = { 0 };

    NULL_ARG(fsdp_optimizer_create, out, NULL, good, &defaults);
    NULL_ARG(fsdp_optimizer_create, model, &made, NULL, &defaults);
    NULL_ARG(fsdp_optimizer_create, options, &made, good, NULL);
    o = defaults, o.kind = (enum fsdp_optimizer_kind)5;
    ARG("optimizer: unknown kind 5", make_optimizer(o));
    o = defaults, o.schedule = (enum fsdp_schedule)6;
    ARG("optimizer: unknown decay 0 or schedule 6", make_optimizer(o));
    o = defaults, o.lr = -1;
    ARG("optimizer: lr -1 is no number from 0 on", make_optimizer(o));
    o = defaults, o.lr = NAN;
    ARG("optimizer: lr nan is no number from 0 on", make_optimizer(o));
    o = defaults, o.weight_decay = INFINITY;
    ARG("optimizer: weight_decay inf is no number from 0 on", make_optimizer(o));
    o = defaults, o.betas[1] = 1;
    ARG("optimizer: beta 1 is not in [0, 1)", make_optimizer(o));
    o = defaults, o.eps = -1e-8;
    ARG("optimizer: eps -1e-08 is no number from 0 on", make_optimizer(o));
    o = defaults, o.kind = FSDP_SGD, o.momentum = NAN;
    ARG("optimizer: momentum nan is no number from 0 on", make_optimizer(o));
    o = defaults, o.schedule = FSDP_COSINE;
    ARG("optimizer: a schedule that ends needs total_steps", make_optimizer(o));
    o = defaults, o.groups = NULL, o.n_groups = 1;
    ARG("optimizer group 0: no pattern, or what is no number", make_optimizer(o));
    o.groups = &nameless;
    HOLD(make_optimizer(o) == FSDP_ERR_ARG);
    o.groups = &stray;
    ARG("optimizer group \"nothing.*\": no parameter has such a name", make_optimizer(o));
    NULL_ARG(fsdp_optimizer_set_lr, optimizer, NULL, 1);
    ARG("optimizer: lr -2 is no number from 0 on", fsdp_optimizer_set_lr(optimizer, -2, &err));
    NULL_ARG(fsdp_optimizer_set_group_lr, optimizer, NULL, 0, 1);
    ARG("optimizer: there is no group 3, but 0 of them", fsdp_optimizer_set_group_lr(optimizer, 3, 1, &err));
    NULL_ARG(fsdp_optimizer_step, optimizer, NULL);
    NULL_ARG(fsdp_optimizer_step_group, optimizer, NULL, 0);
    ARG("group 99 is updated a second time, or not there", fsdp_optimizer_step_group(optimizer, 99, &err));
    NULL_ARG(fsdp_optimizer_read_state, optimizer, NULL, 0, 0, 1, x);
    NULL_ARG(fsdp_optimizer_read_state, out, optimizer, 0, 0, 1, NULL);
    ARG("18446744073709551615 elements from 1 of optimizer state 0 are not there",
        fsdp_optimizer_read_state(optimizer, 0, 1, SIZE_MAX, x, &err));
    ARG("1 elements from 0 of optimizer state 99 are not there",
        fsdp_optimizer_write_state(optimizer, 99, 0, 1, x, &err));
    HOLD(fsdp_optimizer_step_count(NULL) == 0 && fsdp_optimizer_lr(NULL) == 0);
    HOLD(fsdp_optimizer_state_count(NULL) == 0 && fsdp_optimizer_bytes(NULL) == 0);
    HOLD(fsdp_optimizer_offloaded_bytes(NULL) == 0 && fsdp_schedule_lr(NULL, 1) == 0);
    fsdp_optimizer_set_lr_lambda(NULL, NULL, NULL);
    fsdp_optimizer_set_step_count(NULL, 1);
    fsdp_optimizer_state(NULL, NULL);
    fsdp_optimizer_destroy(NULL);
}

/* State_dict.h, checkpoint.h */

void misuse_state_dict(void)
{
    struct fsdp_full_state_dict state = { 0 }, holed = { .n_tensors = 1 };
    struct fsdp_load_report report;

    ARG("fsdp_model_load_weights_named: model is NULL",
        fsdp_model_load_weights(NULL, "x", true, &report, &err));
    ARG("fsdp_model_load_weights_named: path is NULL",
        fsdp_model_load_weights(good, NULL, true, &report, &err));
    ARG("fsdp_model_load_weights_named: report is NULL",
        fsdp_model_load_weights(good, "x", true, NULL, &err));
    NULL_ARG(fsdp_model_load_weights_named, names, good, "x", true, NULL, &report);
    HOLD(fsdp_model_load_weights(good, "nowhere/weights", true, &report, &err) == FSDP_ERR_NOT_FOUND);
    HOLD(strstr(err.message, "nowhere/weights") != NULL && report.lines == NULL);
    NULL_ARG(fsdp_get_full_state_dict, out, good, NULL);
    NULL_ARG(fsdp_set_full_state_dict, model, NULL, &state);
    ARG("rank 0 gives no state to load", fsdp_set_full_state_dict(good, NULL, &err));
    ARG("tensor 0 of a state has no name or no data", fsdp_set_full_state_dict(good, &holed, &err));
    ERR(FSDP_ERR_MISMATCH, "\"tokens.weight\" is missing", fsdp_set_full_state_dict(good, &state, &err));
    NULL_ARG(fsdp_get_full_optimizer_state, optimizer, NULL, &state);
    NULL_ARG(fsdp_set_full_optimizer_state, optimizer, NULL, &state);
    OK(fsdp_get_full_state_dict(good, &state, &err));
    state.tensors[0].shape[0]++;
    ERR(FSDP_ERR_MISMATCH, "\"tokens.weight\" has another shape",
        fsdp_set_full_state_dict(good, &state, &err));
    fsdp_full_state_dict_fini(&state);
    fsdp_full_state_dict_fini(NULL);
    fsdp_load_report_fini(&report);
    fsdp_load_report_fini(NULL);
}

void misuse_checkpoint(void)
{
    struct fsdp_module *root = make_sharded_tree();
    struct fsdp_checkpoint_state state = { .step = 1 };
    struct fsdp_model *other = NULL;

    OK(fsdp_model_create(&other, context, root, &model_options, &err));
    NULL_ARG(fsdp_checkpoint_save, model, NULL, NULL, "x", &state, 0, NULL);
    NULL_ARG(fsdp_checkpoint_save, state, good, NULL, "x", NULL, 0, NULL);
    ARG("a checkpoint of a model and the optimizer of another one",
        fsdp_checkpoint_save(other, optimizer, "x", &state, 0, NULL, &err));
    HOLD(fsdp_checkpoint_load(other, optimizer, "x", 1, &state, NULL) == FSDP_ERR_ARG);
    NULL_ARG(fsdp_checkpoint_load, model, NULL, NULL, "x", 1, &state);
    NULL_ARG(fsdp_checkpoint_load, state, good, NULL, "x", 1, NULL);
    ERR(FSDP_ERR_NOT_FOUND, "there is no checkpoint in nowhere",
        fsdp_checkpoint_load(good, optimizer, "nowhere", -1, &state, &err));
    fsdp_model_destroy(other);
    fsdp_module_destroy(root);
}

/* In forecast.h */

static enum fsdp_status forecast(const struct fsdp_model_options *options, struct fsdp_forecast_world world)
{
    struct fsdp_forecast figures;

    return fsdp_model_forecast(good_tree, options, NULL, &world, &figures, &err);
}

void misuse_forecast(void)
{
    const struct fsdp_forecast_world world = { .size = 2, .ranks_per_host = 2, .threads = 1, .n_micro = 1 };
    struct fsdp_forecast_world odd = world;
    struct fsdp_module *bare = make_tree(forward);
    struct fsdp_forecast figures;
    char *text = NULL;

    NULL_ARG(fsdp_model_forecast, options, good_tree, NULL, NULL, &world, &figures);
    NULL_ARG(fsdp_model_forecast, world, good_tree, &model_options, NULL, NULL, &figures);
    NULL_ARG(fsdp_model_forecast, forecast, good_tree, &model_options, NULL, &world, NULL);
    NULL_ARG(fsdp_model_forecast_text, text, good_tree, &model_options, NULL, &world, NULL);
    ARG("planning the model: the root is no unit of sharding: call fsdp_fully_shard() on it last",
        fsdp_model_forecast_text(bare, &model_options, NULL, &world, &text, &err));
    odd.size = -2;
    ARG("a world of -2 ranks, 2 a host, 1 threads each", forecast(&model_options, odd));
    odd = world, odd.ranks_per_host = 3;
    ARG("a world of 2 ranks, 3 a host, 1 threads each", forecast(&model_options, odd));
    odd = world, odd.device = "tpu";
    ARG("planning for device tpu: not cpu or cuda", forecast(&model_options, odd));
    odd = world, odd.n_micro = 2;
    ARG("a step of 2 micro-steps of 2 samples", forecast(&model_options, odd));
    odd = world, odd.evaluation_batch = 1;
    ARG("an evaluation of 1 samples of 0 tokens", forecast(&model_options, odd));
    HOLD(text == NULL);
    fsdp_module_destroy(bare);
}

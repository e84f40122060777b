#include "tests/unit/engine/rig.h"

#include <stdlib.h>

#include "shard_runtime/engine/model.h"

void rig_init(struct rig *rig, struct fsdp_context *context)
{
    *rig = (struct rig){ .context = context,
                         .tiny = tiny_defaults,
                         .options = { .batch = 2, .seq = tiny_defaults.seq, .seed = 4 },
                         .updates = fsdp_optimizer_defaults(),
                         .n_micro = 1,
                         .rank = fsdp_context_rank(context),
                         .ranks = fsdp_context_world_size(context) };
}

void rig_start(struct rig *rig, struct fsdp_context *context)
{
    rig_init(rig, context);
    rig_open(rig);
}

void rig_mesh(struct rig *rig, int replicate, int tensor)
{
    static const char *const names[] = { "replicate", "shard", "tensor" };
    const int R = replicate > 1 ? replicate : 1, T = tensor > 1 ? tensor : 1;
    const int sizes[] = { R, rig->ranks / (R * T), T };

    if (R * T == 1)
        return;
    must(fsdp_init_device_mesh(&rig->mesh, rig->context, 3, sizes, names, &rig->err), &rig->err);
    must(fsdp_device_mesh_slice(&rig->data, rig->mesh, R > 1 ? names : names + 1, R > 1 ? 2 : 1, &rig->err),
         &rig->err);
    if (T > 1)
        must(fsdp_device_mesh_slice(&rig->tensor, rig->mesh, names + 2, 1, &rig->err), &rig->err);
    rig->tiny.mesh = rig->data;
    rig->tiny.tensor = rig->tensor;
    rig->rank /= T;
    rig->ranks /= T;
}

struct fsdp_module *rig_root(struct rig *rig)
{
    if (rig->root == NULL)
        rig->root = tiny_build(&rig->tiny, &rig->err);
    cr_assert_not_null(rig->root, "%s", rig->err.message);
    return rig->root;
}

struct fsdp_module *rig_block(struct rig *rig, size_t i)
{
    return fsdp_module_child_at(fsdp_module_child(rig_root(rig), "layers"), i);
}

void rig_model(struct rig *rig)
{
    must(fsdp_model_create(&rig->model, rig->context, rig_root(rig), &rig->options, &rig->err), &rig->err);
}

void rig_open(struct rig *rig)
{
    rig_model(rig);
    must(fsdp_optimizer_create(&rig->optimizer, rig->model, &rig->updates, &rig->err), &rig->err);
}

void rig_close(struct rig *rig)
{
    world_drop(rig->optimizer, rig->model, rig->root);
    fsdp_device_mesh_destroy(rig->tensor);
    fsdp_device_mesh_destroy(rig->data);
    fsdp_device_mesh_destroy(rig->mesh);
}

void rig_fill(struct rig *rig, int number)
{
    const size_t batch = rig->options.batch, n = batch * rig->tiny.seq;

    cr_assert(rig->n_micro <= RIG_MICRO && rig->n_micro * n <= RIG_TOKENS);
    for (size_t m = 0; m < rig->n_micro; m++) {
        const size_t place = ((size_t)number * rig->n_micro + m) * (size_t)rig->ranks + (size_t)rig->rank;
        int32_t *tokens = rig->tokens + m * n, *targets = rig->targets + m * n;

        tiny_samples(&rig->tiny, place * batch, batch, tokens, targets);
        rig->micro[m] =
            (struct fsdp_batch){ .input = tokens, .targets = targets, .first_sample = place * batch };
    }
}

enum fsdp_status rig_run(struct rig *rig)
{
    return fsdp_model_forward_backward(rig->model, rig->micro, rig->n_micro, &rig->loss, &rig->err);
}

enum fsdp_status rig_call(struct rig *rig, size_t m, enum rig_way way)
{
    enum fsdp_status status;

    fsdp_module_set_is_last_backward(rig->model, m + 1 == rig->n_micro);
    if (way != RIG_IN_HALVES)
        return fsdp_model_forward_backward(rig->model, &rig->micro[m], 1, &rig->loss, &rig->err);
    status = fsdp_model_forward(rig->model, &rig->micro[m], &rig->loss, &rig->err);
    return status == FSDP_OK ? fsdp_model_backward(rig->model, &rig->err) : status;
}

enum fsdp_status rig_backward(struct rig *rig, int number, enum rig_way way)
{
    enum fsdp_status status = FSDP_OK;

    fsdp_err_clear(&rig->err);
    rig_fill(rig, number);
    if (way == RIG_IN_ONE_CALL)
        return rig_run(rig);
    for (size_t m = 0; m < rig->n_micro && status == FSDP_OK; m++)
        status = rig_call(rig, m, way);
    fsdp_module_set_is_last_backward(rig->model, true);
    return status;
}

double rig_step(struct rig *rig, int number)
{
    must(rig_backward(rig, number, RIG_IN_ONE_CALL), &rig->err);
    must(fsdp_optimizer_step(rig->optimizer, &rig->err), &rig->err);
    return rig->loss.mean;
}

size_t rig_gather(struct rig *rig, enum fsdp_which which, float *out)
{
    size_t n = 0;

    for (size_t i = 0; i < fsdp_model_parameter_count(rig->model); i++) {
        struct fsdp_parameter_info info;

        must(fsdp_model_parameter(rig->model, i, &info, &rig->err), &rig->err);
        if (which == FSDP_GRADIENT && !info.has_gradient)
            continue;
        cr_assert(n + info.n_elems <= RIG_ELEMS);
        must(fsdp_parameter_gather(rig->model, info.name, which, out + n, info.n_elems, &rig->err),
             &rig->err);
        n += info.n_elems;
    }
    return n;
}

static const float *shards(const struct rig *rig, enum fsdp_which which, size_t *bytes)
{
    const struct model_memory *memory = &rig->model->memory[PLACE_DEVICE];

    *bytes = which == FSDP_VALUE ? memory->parameter_bytes : memory->gradient_bytes;
    return which == FSDP_VALUE ? memory->parameters : memory->gradients;
}

float *rig_copy(const struct rig *rig, enum fsdp_which which)
{
    size_t bytes;
    const float *own = shards(rig, which, &bytes);

    return memcpy(malloc(bytes), own, bytes);
}

bool rig_is(const struct rig *rig, enum fsdp_which which, const float *copy)
{
    size_t bytes;
    const float *own = shards(rig, which, &bytes);

    return memcmp(own, copy, bytes) == 0;
}

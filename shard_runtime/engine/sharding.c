/*
 * Which ranks a model is sharded over: all of the world, or those of the meshes that its units were given.
 * Also the tensor group of its split modules. All meshes of a tree consist of the same ranks, and each of
 * these computes on samples of its own. The ranks of a tensor group compute on the same samples.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/engine/mesh.h"
#include "shard_runtime/engine/model.h"

/*
 * Do mesh and model belong to the same context? The meshes of a forecast belong to none, and have no groups
 * of ranks.
 */
static enum fsdp_status check_context(const struct fsdp_model *model, const struct fsdp_module *module,
                                      const struct fsdp_device_mesh *mesh, struct fsdp_err *err)
{
    if (model->context->comm == NULL || mesh->context == model->context)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_ARG, "\"%s\" has a mesh that was made %s", module->path,
                     mesh->context == NULL ? "without a context: it is for planning alone"
                                           : "with another context");
}

static enum fsdp_status check_mesh(const struct fsdp_module *unit, const struct fsdp_device_mesh *mesh,
                                   struct fsdp_err *err)
{
    if (mesh->grid.n_dims > 2)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "\"%s\": a mesh of %d dimensions: one shards, or two replicate and shard",
                         unit->path, mesh->grid.n_dims);
    if (mesh->grid.n_dims == 2 && (mesh->grid.names[0][0] == '\0' || mesh->grid.names[1][0] == '\0'))
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "\"%s\": a mesh of two dimensions to shard over needs names for them", unit->path);
    return FSDP_OK;
}

static bool has_rank(const struct fsdp_device_mesh *mesh, int rank)
{
    int place[FSDP_MESH_MAX_DIMS];

    return mesh == NULL || mesh_grid_place(&mesh->grid, rank, place);
}

static int size_of(const struct fsdp_model *model, const struct fsdp_device_mesh *mesh)
{
    return mesh != NULL ? mesh_grid_size(&mesh->grid) : model->context->W;
}

static bool of_same_ranks(const struct fsdp_model *model, const struct fsdp_device_mesh *a,
                          const struct fsdp_device_mesh *b)
{
    bool same = size_of(model, a) == size_of(model, b);

    for (int i = 0; same && a != NULL && i < mesh_grid_size(&a->grid); i++)
        same = has_rank(b, a->grid.ranks[i]);
    return same;
}

static struct model_mesh describe(const struct fsdp_model *model, struct fsdp_device_mesh *mesh)
{
    struct model_mesh as = { .mesh = mesh,
                             .W = model->context->W,
                             .R = 1,
                             .shard_rank = model->context->rank,
                             .shards = model->context->comm };
    const int last = mesh != NULL ? mesh->grid.n_dims - 1 : 0;

    if (mesh == NULL)
        return as;
    as.W = mesh->grid.sizes[last];
    as.shard_rank = mesh->place[last];
    as.shards = mesh->comms[last];
    if (last > 0) {
        as.R = mesh->grid.sizes[0];
        as.replica_rank = mesh->place[0];
        as.replicas = as.R > 1 ? mesh->comms[0] : NULL;
    }
    return as;
}

static const struct model_mesh *find_mesh(const struct fsdp_model *model, const struct fsdp_device_mesh *mesh)
{
    for (int i = 0; i < model->n_meshes; i++)
        if (model->meshes[i].mesh == mesh)
            return &model->meshes[i];
    return NULL;
}

const struct model_mesh *model_mesh(const struct fsdp_model *model, int group)
{
    return find_mesh(model, model->layout.groups[group].unit->policy.mesh);
}

void model_ranks_of(const void *user, const struct fsdp_module *unit, int *W, int *R)
{
    const struct model_mesh *mesh = find_mesh(user, unit->policy.mesh);

    *W = mesh->W;
    *R = mesh->R;
}

/* List the meshes of all units, the root's first. */
static enum fsdp_status join_meshes(struct fsdp_model *model, struct fsdp_err *err)
{
    struct fsdp_device_mesh *of_root = model->root->policy.mesh;
    size_t room = 0;

    if (!model->root->sharded)
        return fsdp_fail(err, FSDP_ERR_ARG,
                         "the root is no unit of sharding: call fsdp_fully_shard() on it last");
    for (const struct fsdp_module *m = model->root; m != NULL; m = module_next(model->root, m)) {
        struct fsdp_device_mesh *mesh = m->policy.mesh;

        if (!m->sharded || find_mesh(model, mesh) != NULL)
            continue;
        if (mesh != NULL &&
            (check_context(model, m, mesh, err) != FSDP_OK || check_mesh(m, mesh, err) != FSDP_OK))
            return FSDP_ERR_ARG;
        if (!of_same_ranks(model, mesh, of_root))
            return fsdp_fail(
                err, FSDP_ERR_UNSUPPORTED,
                "\"%s\" is sharded over a mesh of other ranks than the root: its gradients would be of other "
                "samples",
                m->path);
        if (!alloc_room(&model->meshes, &room, (size_t)model->n_meshes, sizeof *model->meshes))
            return fsdp_fail(err, FSDP_ERR_NOMEM, "a model: out of memory");
        model->meshes[model->n_meshes++] = describe(model, mesh);
    }
    return FSDP_OK;
}

static enum fsdp_status check_tensor(const struct fsdp_model *model, const struct fsdp_module *module,
                                     struct fsdp_err *err)
{
    const struct fsdp_device_mesh *tensor = module->tensor.mesh, *data = model->root->policy.mesh;

    if (check_context(model, module, tensor, err) != FSDP_OK)
        return FSDP_ERR_ARG;
    if (model->tensor_mesh != NULL && model->tensor_mesh != tensor)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "\"%s\" is split over another mesh than the modules before it", module->path);
    for (int i = 0; i < mesh_grid_size(&tensor->grid); i++)
        if (tensor->grid.ranks[i] != tensor->rank && has_rank(data, tensor->grid.ranks[i]))
            return fsdp_fail(err, FSDP_ERR_ARG,
                             "\"%s\" is split over ranks that the model is sharded over: give "
                             "fsdp_fully_shard() the other "
                             "dimensions of the mesh",
                             module->path);
    if (size_of(model, data) * mesh_grid_size(&tensor->grid) != model->context->W)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "%d ranks that shard times %d that split are not the world's %d",
                         size_of(model, data), mesh_grid_size(&tensor->grid), model->context->W);
    return FSDP_OK;
}

static enum fsdp_status join_tensor_group(struct fsdp_model *model, struct fsdp_err *err)
{
    model->T = 1;
    for (const struct fsdp_module *m = model->root; m != NULL; m = module_next(model->root, m)) {
        if (m->tensor.mesh == NULL)
            continue;
        OK_OR_RETURN(check_tensor(model, m, err));
        model->tensor_mesh = m->tensor.mesh;
        model->T = m->tensor.n_parts;
        model->tensor_rank = m->tensor.part;
        model->tensor = m->tensor.mesh->comms[0];
    }
    return FSDP_OK;
}

enum fsdp_status model_join_mesh(struct fsdp_model *model, struct fsdp_err *err)
{
    OK_OR_RETURN(module_check_refusal(model->root, err));
    OK_OR_RETURN(join_meshes(model, err));
    OK_OR_RETURN(join_tensor_group(model, err));
    model->data_ranks = model->meshes[0].W * model->meshes[0].R;
    return FSDP_OK;
}

struct fsdp_comm *model_tensor_comm(const struct fsdp_model *model, const struct fsdp_device_mesh *mesh)
{
    return mesh != NULL ? model->tensor : NULL;
}

enum fsdp_status model_reduce_over_data(const struct fsdp_model *model, void *buffer, size_t n_elems,
                                        enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err)
{
    const struct model_mesh *mesh = &model->meshes[0];
    struct device_stream *stream = model->context->streams[PLAN_COMPUTE];

    if (model->data_ranks == model->context->W)
        return model->data_ranks > 1
                   ? fsdp_all_reduce(model->context->comm, buffer, n_elems, dtype, op, stream, err)
                   : FSDP_OK;
    if (mesh->W > 1)
        OK_OR_RETURN(fsdp_all_reduce(mesh->shards, buffer, n_elems, dtype, op, stream, err));
    if (mesh->R > 1)
        OK_OR_RETURN(fsdp_all_reduce(mesh->replicas, buffer, n_elems, dtype, op, stream, err));
    return FSDP_OK;
}

enum fsdp_status model_reduce_over_all(const struct fsdp_model *model, void *buffer, size_t n_elems,
                                       enum fsdp_dtype dtype, enum fsdp_reduce_op op, struct fsdp_err *err)
{
    enum fsdp_status status;

    if (model->data_ranks * model->T == model->context->W && model->context->W > 1)
        return fsdp_all_reduce(model->context->comm, buffer, n_elems, dtype, op,
                               model->context->streams[PLAN_COMPUTE], err);
    status = model_reduce_over_data(model, buffer, n_elems, dtype, op, err);
    return status == FSDP_OK && model->T > 1 ? fsdp_all_reduce(model->tensor, buffer, n_elems, dtype, op,
                                                               model->context->streams[PLAN_COMPUTE], err)
                                             : status;
}

enum fsdp_status model_broadcast(const struct fsdp_model *model, void *buffer, size_t size_bytes,
                                 struct fsdp_err *err)
{
    const struct model_mesh *mesh = &model->meshes[0];
    struct fsdp_context *context = model->context;
    struct device_stream *stream = context->streams[PLAN_COMPUTE];

    if (model->data_ranks * model->T == context->W)
        return context->W > 1 ? fsdp_broadcast(context->comm, buffer, size_bytes, 0, stream, err) : FSDP_OK;
    if (mesh->W > 1)
        OK_OR_RETURN(fsdp_broadcast(mesh->shards, buffer, size_bytes, 0, stream, err));
    /* each rank of the first replica sends to the ranks at the same place in the other replicas */
    if (mesh->R > 1)
        OK_OR_RETURN(fsdp_broadcast(mesh->replicas, buffer, size_bytes, 0, stream, err));
    return FSDP_OK;
}

bool model_wants_separate_reduces(const struct fsdp_model *model)
{
    for (const struct fsdp_module *m = model->root; m != NULL; m = module_next(model->root, m))
        if (m->sharded && module_group(m)->policy.separate_reduces)
            return true;
    return false;
}

void model_list_shards(const struct fsdp_model *model, const struct model_mesh *mesh, int *ranks)
{
    if (mesh->mesh != NULL)
        mesh_grid_line(&mesh->mesh->grid, mesh->mesh->rank, mesh->mesh->grid.n_dims - 1, ranks);
    else
        for (int i = 0; i < model->context->W; i++)
            ranks[i] = i;
}

/*
 * Open a group of `n` ranks that shard, with this one among them: those whose place divided by n is the same.
 */
static enum fsdp_status open_some(struct fsdp_model *model, const struct model_mesh *mesh, const char *what,
                                  int n, struct fsdp_comm **out, struct fsdp_err *err)
{
    struct fsdp_context *context = model->context;
    const int *own = model->ranks + (mesh->shard_rank - mesh->shard_rank % n);
    char name[48];

    model_list_shards(model, mesh, model->ranks);
    snprintf(name, sizeof name, "%s.%u.%d", what, context->n_groups++, own[0]);
    return comm_split(out, context->comm, name, own, n, err);
}

struct fsdp_comm *model_part(const struct fsdp_model *model, const struct model_mesh *mesh, int k)
{
    for (int i = 0; i < model->n_parts; i++)
        if (model->parts[i].k == k && model->parts[i].mesh == mesh)
            return model->parts[i].comm;
    return NULL;
}

enum fsdp_status model_prepare_comms(struct fsdp_model *model, struct fsdp_err *err)
{
    model->parts = alloc_array((size_t)model->layout.n_groups, sizeof *model->parts);
    model->ranks = alloc_array((size_t)model->context->W, sizeof *model->ranks);
    return model->parts != NULL && model->ranks != NULL
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_NOMEM, "a model: out of memory");
}

enum fsdp_status model_open_comms(struct fsdp_model *model, struct fsdp_err *err)
{
    const bool separate = model_wants_separate_reduces(model);

    for (int i = 0; i < model->n_meshes && separate; i++)
        if (model->meshes[i].W > 1)
            OK_OR_RETURN(open_some(model, &model->meshes[i], "reduces", model->meshes[i].W,
                                   &model->meshes[i].own_reduces, err));
    for (int g = 0; g < model->layout.n_groups; g++) {
        const int k = model->layout.groups[g].k;
        const struct model_mesh *mesh = model_mesh(model, g);
        struct model_part *part = &model->parts[model->n_parts];

        if (k == 0 || model_part(model, mesh, k) != NULL)
            continue;
        *part = (struct model_part){ .k = k, .mesh = mesh };
        OK_OR_RETURN(open_some(model, mesh, "slices", k, &part->comm, err));
        model->n_parts++;
    }
    return FSDP_OK;
}

#define ORIGIN "world rank " /* the words of a rank that gave up begin with this */

/*
 * How long a rank asks the world's group for a reason. A rank may only know that another one has left; the
 * rank that knows why has put the reason there.
 */
enum { WHY_MS = 300 };

static const char *find_origin(struct fsdp_model *model, struct fsdp_err *err)
{
    const char *origin = strstr(err->message, ORIGIN);
    struct fsdp_err heard = { 0 };
    const char *word;

    if (origin != NULL || err->status != FSDP_ERR_PEER || !comm_hear(model->context->comm, WHY_MS, &heard))
        return origin;
    word = strstr(heard.message, ORIGIN);
    if (word == NULL)
        return NULL;
    fsdp_fail(err, err->status, "%.200s (%.300s)", err->message, word);
    return strstr(err->message, ORIGIN);
}

/* Returns the number of the model's groups, without the tensor group and the world. Some of them are NULL. */
static int count_groups(const struct fsdp_model *model)
{
    return model->n_parts + 3 * model->n_meshes;
}

static struct fsdp_comm *group_at(const struct fsdp_model *model, int i)
{
    const struct model_mesh *mesh;

    if (i < model->n_parts)
        return model->parts[i].comm;
    i -= model->n_parts;
    mesh = &model->meshes[i / 3];
    i %= 3;
    return i == 0 ? mesh->shards : i == 1 ? mesh->replicas : mesh->own_reduces;
}

void model_break(struct fsdp_model *model, enum fsdp_status status, struct fsdp_err *err)
{
    char words[FSDP_ERR_MESSAGE_BYTES];
    struct fsdp_err nobody = { 0 };
    const char *origin;

    err = err != NULL ? err : &nobody;
    err->status = status;
    origin = find_origin(model, err);
    /*
     * `origin` holds the words of another rank. This rank passes them on to groups in which that rank is not.
     */
    if (origin != NULL)
        snprintf(words, sizeof words, "%s", origin);
    else
        snprintf(words, sizeof words, ORIGIN "%d: %.460s", model->context->rank, err->message);
    for (int i = 0; i < count_groups(model); i++)
        comm_fail(group_at(model, i), status, words);
    comm_fail(model->tensor, status, words);
    comm_fail(model->context->comm, status, words);
}

void model_lend(struct fsdp_model *model, bool lent)
{
    for (int i = 0; i < count_groups(model); i++)
        comm_lend(group_at(model, i), lent);
}

bool model_is_broken(const struct fsdp_model *model)
{
    bool broken = comm_is_broken(model->context->comm) || comm_is_broken(model->tensor);

    for (int i = 0; i < count_groups(model); i++)
        broken = broken || comm_is_broken(group_at(model, i));
    return broken;
}

void model_close_comms(struct fsdp_model *model)
{
    for (int i = 0; i < model->n_parts; i++)
        fsdp_comm_destroy(model->parts[i].comm);
    for (int i = 0; i < model->n_meshes; i++)
        fsdp_comm_destroy(model->meshes[i].own_reduces);
    free(model->parts);
    free(model->ranks);
}

/*
 * Meshes of real groups. Who hears whom along each dimension? Slices and flattenings share or make groups.
 * What cannot be is refused on every rank alike. The last tests show what an all-reduce hook sees.
 */
#include <criterion/criterion.h>
#include <string.h>

#include "tests/unit/engine/rig.h"

static int64_t sum_over(struct fsdp_device_mesh *mesh, int dim, int64_t value)
{
    struct fsdp_err err = { 0 };

    must(fsdp_all_reduce(fsdp_device_mesh_get_group(mesh, dim), &value, 1, FSDP_I64, FSDP_SUM, NULL, &err),
         &err);
    return value;
}

static void use_mesh(struct fsdp_context *context, void *user)
{
    static const char *const names[] = { "replicate", "shard" };
    const int rank = fsdp_context_rank(context), sizes[] = { 2, 3 };
    struct fsdp_device_mesh *mesh, *slice, *flat;
    struct fsdp_err err = { 0 };

    (void)user;
    must(fsdp_init_device_mesh(&mesh, context, 2, sizes, names, &err), &err);
    cr_expect(fsdp_device_mesh_ndim(mesh) == 2 && fsdp_device_mesh_size(mesh, -1) == 6 &&
              fsdp_device_mesh_size(mesh, 1) == 3);
    cr_expect(fsdp_device_mesh_get_local_rank(mesh, 0) == rank / 3 &&
              fsdp_device_mesh_get_local_rank(mesh, 1) == rank % 3);
    cr_expect_str_eq(fsdp_device_mesh_dim_name(mesh, 1), "shard");
    cr_expect(sum_over(mesh, 1, rank) == (rank < 3 ? 0 + 1 + 2 : 3 + 4 + 5));
    cr_expect(sum_over(mesh, 0, rank) == 2 * (rank % 3) + 3);

    must(fsdp_device_mesh_slice(&slice, mesh, &names[1], 1, &err), &err);
    cr_expect(fsdp_device_mesh_get_group(slice, 0) == fsdp_device_mesh_get_group(mesh, 1));
    must(fsdp_device_mesh_flatten(&flat, mesh, "all", &err), &err);
    cr_expect(fsdp_comm_size(fsdp_device_mesh_get_group(flat, 0)) == 6 && sum_over(flat, 0, rank) == 15);
    fsdp_device_mesh_destroy(flat);
    fsdp_device_mesh_destroy(slice);
    fsdp_device_mesh_destroy(mesh);
}

WorldTest(device_mesh, groups_are_the_lines_of_the_grid, use_mesh, 6);

static void refuse_meshes(struct fsdp_context *context, void *user)
{
    static const char *const names[] = { "a", "b", "c" };
    const int too_many[] = { 2, 2 }, three[] = { 1, 2, 1 }, two[] = { 1, 2 };
    struct fsdp_device_mesh *mesh;
    struct fsdp_err err = { 0 };

    (void)user;
    cr_expect(fsdp_init_device_mesh(&mesh, context, 2, too_many, names, &err) == FSDP_ERR_ARG &&
              mesh == NULL);
    for (int nameless = 0; nameless < 2; nameless++) {
        struct rig rig;

        rig_init(&rig, context);
        must(fsdp_init_device_mesh(&rig.mesh, context, nameless ? 2 : 3, nameless ? two : three,
                                   nameless ? NULL : names, &err),
             &err);
        rig.tiny.mesh = rig.mesh;
        expect_refused(fsdp_model_create(&rig.model, context, rig_root(&rig), &rig.options, &err),
                       FSDP_ERR_ARG, nameless ? "needs names" : "3 dimensions", &err);
        rig_close(&rig);
    }
}

WorldTest(device_mesh, what_cannot_be_sharded_over_is_refused, refuse_meshes, 2);

struct hooked {
    int W, R, n_calls;
    size_t n_elems;
};

static enum fsdp_status wipe(void *row, size_t n_elems, enum fsdp_dtype dtype, struct device_stream *stream,
                             void *user, struct fsdp_err *err)
{
    struct hooked *hooked = user;

    (void)stream;
    (void)err;
    cr_expect(dtype == FSDP_F32);
    memset(row, 0, n_elems * sizeof(float));
    hooked->n_calls++;
    hooked->n_elems = n_elems;
    return FSDP_OK;
}

static enum fsdp_status give_up(void *row, size_t n_elems, enum fsdp_dtype dtype,
                                struct device_stream *stream, void *user, struct fsdp_err *err)
{
    (void)row, (void)n_elems, (void)dtype, (void)stream, (void)user;
    return fsdp_fail(err, FSDP_ERR_IO, "the hook gives up");
}

static void train_hooked(struct fsdp_context *context, void *user)
{
    const struct hooked *shape = user;
    struct hooked hooked = *shape;
    struct rig rig;
    float grad[12];

    rig_init(&rig, context);
    rig_mesh(&rig, shape->R, 1);
    fsdp_module_set_all_reduce_hook(rig_block(&rig, 0), wipe, &hooked);
    rig_model(&rig);
    must(rig_backward(&rig, 0, RIG_IN_ONE_CALL), &rig.err);
    cr_expect(hooked.n_calls == 1 && hooked.n_elems > 0, "%d calls", hooked.n_calls);
    must(fsdp_parameter_gather(rig.model, "layers.0.ffn_norm.bias", FSDP_GRADIENT, grad, 12, &rig.err),
         &rig.err);
    for (int i = 0; i < 12; i++)
        cr_expect(grad[i] == 0);
    must(fsdp_parameter_gather(rig.model, "layers.1.ffn_norm.bias", FSDP_GRADIENT, grad, 12, &rig.err),
         &rig.err);
    cr_expect(grad[0] != 0);
    fsdp_model_destroy(rig.model);

    fsdp_module_set_all_reduce_hook(rig_block(&rig, 0), give_up, NULL);
    rig_model(&rig);
    expect_refused(rig_run(&rig), FSDP_ERR_IO, "store of layers.0: the hook gives up", &rig.err);
    rig_close(&rig);
}

Test(hooks, an_all_reduce_hook_changes_what_is_stored_and_its_error_ends_the_step)
{
    struct hooked shapes[] = { { 1, 1, 0, 0 }, { 2, 1, 0, 0 }, { 2, 2, 0, 0 }, { 1, 2, 0, 0 } };

    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        world_run(shapes[i].W * shapes[i].R, train_hooked, &shapes[i]);
}

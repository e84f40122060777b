/* A process, its groups of ranks, and how a tree is split over them. */
#include "misuse.h"

#include <string.h>

/* In context.h */

static enum fsdp_status open_context(const struct fsdp_context_options *options)
{
    struct fsdp_context *other = NULL;
    const enum fsdp_status status = fsdp_context_create(&other, options, &err);

    HOLD(other == NULL);
    fsdp_context_destroy(other);
    return status;
}

void misuse_context(void)
{
    char line[8];
    size_t length = 1;

    NULL_ARG(fsdp_context_create, out, NULL, NULL);
    ERR(FSDP_ERR_CONFIG, "device tpu: not one of cpu, cuda, auto",
        open_context(&(struct fsdp_context_options){ .device = "tpu" }));
    ERR(FSDP_ERR_CONFIG, "collectives pigeon: not one of cpu, nccl, auto",
        open_context(&(struct fsdp_context_options){ .collectives = "pigeon" }));
    ERR(FSDP_ERR_CONFIG, "numerics fast: not one of auto, onednn, plain, ref in this build",
        open_context(&(struct fsdp_context_options){ .numerics = "fast" }));
    ARG("opening a context: -3 threads, not 0 to 4096",
        open_context(&(struct fsdp_context_options){ .threads = -3 }));
    ARG("opening a context: unknown matmul_precision 9",
        open_context(&(struct fsdp_context_options){ .matmul_precision = (enum fsdp_matmul_precision)9 }));
    NULL_ARG(fsdp_context_event, context, NULL, "{}");
    ARG("an event is a JSON object of at most 3072 bytes", fsdp_context_event(context, NULL, &err));
    HOLD(fsdp_context_rank(NULL) == 0 && fsdp_context_world_size(NULL) == 1 &&
         fsdp_context_local_rank(NULL) == 0);
    HOLD(fsdp_context_local_world_size(NULL) == 1 && fsdp_context_generation(NULL) == 0);
    HOLD(fsdp_context_resume_step(NULL) == -1 && fsdp_context_run_dir(NULL)[0] == '\0' &&
         fsdp_context_alone(NULL));
    HOLD(fsdp_context_job(NULL, &length) == NULL && length == 0 && fsdp_context_threads(NULL) == 0);
    HOLD(fsdp_context_comm(NULL) == NULL && fsdp_context_device(NULL)[0] == '\0');
    HOLD(fsdp_context_device_refusal(NULL)[0] == '\0' && fsdp_context_device_memory(NULL) == 0);
    HOLD(fsdp_context_device_wait_s(NULL) == 0 && fsdp_context_opening(NULL).device_s == 0);
    HOLD(fsdp_context_describe(NULL, line, sizeof line)[0] == '\0');
    HOLD(strlen(fsdp_context_describe(context, line, sizeof line)) == sizeof line - 1);
    HOLD(fsdp_context_describe(context, NULL, 0)[0] == '\0' && !fsdp_context_poll_notice(NULL, NULL));
    fsdp_context_beat(NULL, &(struct fsdp_beat){ 0 });
    fsdp_context_beat(context, NULL);
    fsdp_context_phase(NULL, FSDP_PHASE_DATA);
    fsdp_context_on_phase(NULL, NULL, NULL);
    fsdp_context_destroy(NULL);
}

/* Comm.h, dtype.h, status.h */

void misuse_comm(void)
{
    struct fsdp_comm *comm = fsdp_context_comm(context);
    float x[4] = { 0 };
    enum fsdp_dtype dtype = FSDP_F64;

    NULL_ARG(fsdp_all_gather, comm, NULL, x, x, 1, FSDP_F32, NULL);
    ARG("fsdp_all_gather: a buffer is NULL", fsdp_all_gather(comm, x, NULL, 1, FSDP_F32, NULL, &err));
    ARG("fsdp_all_gather: unknown dtype 77", fsdp_all_gather(comm, x, x, 1, (enum fsdp_dtype)77, NULL, &err));
    ARG("fsdp_all_gather: 18446744073709551615 elements on each of 1 ranks are too many",
        fsdp_all_gather(comm, x, x, SIZE_MAX, FSDP_F32, NULL, &err));
    ARG("fsdp_all_gather: the two buffers overlap, and not as block 0 of the large one",
        fsdp_all_gather(comm, x, x + 1, 2, FSDP_F32, NULL, &err));
    NULL_ARG(fsdp_reduce_scatter, comm, NULL, x, x, 1, FSDP_F32, FSDP_SUM, NULL);
    ARG("reduce_scatter: 9 is no operation",
        fsdp_reduce_scatter(comm, x, x, 1, FSDP_F32, (enum fsdp_reduce_op)9, NULL, &err));
    ARG("reduce_scatter sums float32 and bfloat16, not uint8",
        fsdp_reduce_scatter(comm, x, x, 1, FSDP_U8, FSDP_SUM, NULL, &err));
    NULL_ARG(fsdp_all_reduce, comm, NULL, x, 1, FSDP_F32, FSDP_SUM, NULL);
    NULL_ARG(fsdp_all_reduce, buffer, comm, NULL, 1, FSDP_F32, FSDP_SUM, NULL);
    ARG("all_reduce: 8 is no operation",
        fsdp_all_reduce(comm, x, 1, FSDP_F32, (enum fsdp_reduce_op)8, NULL, &err));
    ARG("all_reduce takes float32, bfloat16, float64 or int64",
        fsdp_all_reduce(comm, x, 1, FSDP_I32, FSDP_SUM, NULL, &err));
    ARG("the mean of int64 is no int64", fsdp_all_reduce(comm, x, 1, FSDP_I64, FSDP_MEAN, NULL, &err));
    NULL_ARG(fsdp_broadcast, comm, NULL, x, 4, 0, NULL);
    NULL_ARG(fsdp_broadcast, buffer, comm, NULL, 4, 0, NULL);
    ARG("broadcast from rank 5 of a group of 1", fsdp_broadcast(comm, x, 4, 5, NULL, &err));
    NULL_ARG(fsdp_barrier, comm, NULL);
    HOLD(fsdp_comm_rank(NULL) == 0 && fsdp_comm_size(NULL) == 1);
    fsdp_comm_destroy(NULL);
    HOLD(fsdp_dtype_size((enum fsdp_dtype)77) == 0);
    HOLD(strcmp(fsdp_dtype_name((enum fsdp_dtype) - 1), "unknown") == 0);
    HOLD(strcmp(fsdp_dtype_safetensors_name((enum fsdp_dtype)77), "unknown") == 0);
    HOLD(!fsdp_dtype_parse(NULL, &dtype) && !fsdp_dtype_parse("float33", &dtype) && dtype == FSDP_F64);
    HOLD(!fsdp_dtype_parse("float32", NULL) &&
         strcmp(fsdp_status_name((enum fsdp_status)99), "unknown") == 0);
    fsdp_err_clear(NULL);
    fsdp_wrap(NULL, "words");
    HOLD(fsdp_fail(NULL, FSDP_ERR_IO, "words") == FSDP_ERR_IO);
}

/* Mesh.h, tensor_parallel.h */

static enum fsdp_status make_mesh(struct fsdp_context *of, int n_dims, const int *sizes,
                                  const char *const *names)
{
    struct fsdp_device_mesh *mesh = NULL;
    const enum fsdp_status status = fsdp_init_device_mesh(&mesh, of, n_dims, sizes, names, &err);

    HOLD(mesh == NULL);
    fsdp_device_mesh_destroy(mesh);
    return status;
}

void misuse_mesh(void)
{
    static const char *const names[] = { "a", "b" }, *const twice[] = { "a", "a" }, *const other[] = { "c" };
    struct fsdp_device_mesh *mesh = NULL, *out = NULL;

    NULL_ARG(fsdp_init_device_mesh, out, NULL, context, 1, (int[]){ 1 }, NULL);
    ARG("fsdp_init_device_mesh: sizes is NULL", make_mesh(context, 1, NULL, NULL));
    ARG("a mesh has 1 to 4 dimensions, not 0", make_mesh(context, 0, (int[]){ 1 }, NULL));
    ARG("a mesh has 1 to 4 dimensions, not -1", make_mesh(context, -1, (int[]){ 1 }, NULL));
    ARG("a mesh: dimension 0 of -2 ranks", make_mesh(context, 1, (int[]){ -2 }, NULL));
    ARG("a mesh: dimension 1 of 2147483647 ranks", make_mesh(NULL, 2, (int[]){ 2, INT32_MAX }, NULL));
    ARG("a mesh of 2 ranks in a world of 1", make_mesh(context, 2, (int[]){ 2, 1 }, names));
    ARG("a mesh: two dimensions are called \"a\"", make_mesh(context, 2, (int[]){ 1, 1 }, twice));
    ARG("a mesh: the name of dimension 0 must have 1 to 23 letters and no '/'",
        make_mesh(context, 1, (int[]){ 1 }, (const char *const[]){ "a/b" }));
    OK(fsdp_init_device_mesh(&mesh, context, 2, (int[]){ 1, 1 }, names, &err));
    NULL_ARG(fsdp_device_mesh_slice, mesh, &out, NULL, names, 1);
    NULL_ARG(fsdp_device_mesh_slice, names, &out, mesh, NULL, 1);
    ARG("slicing a mesh: it has no dimension \"c\"", fsdp_device_mesh_slice(&out, mesh, other, 1, &err));
    ARG("slicing a mesh of 2 dimensions by 3 names", fsdp_device_mesh_slice(&out, mesh, names, 3, &err));
    NULL_ARG(fsdp_device_mesh_flatten, out, NULL, mesh, "all");
    NULL_ARG(fsdp_device_mesh_flatten, mesh, &out, NULL, "all");
    HOLD(out == NULL && fsdp_device_mesh_ndim(NULL) == 0 && fsdp_device_mesh_size(NULL, -1) == 0);
    HOLD(fsdp_device_mesh_dim_name(NULL, 0)[0] == '\0' && fsdp_device_mesh_dim_name(mesh, 7)[0] == '\0');
    HOLD(fsdp_device_mesh_get_local_rank(NULL, 0) == 0 && fsdp_device_mesh_get_group(NULL, 0) == NULL);
    fsdp_device_mesh_destroy(mesh);
    fsdp_device_mesh_destroy(NULL);
}

void misuse_tensor_parallel(void)
{
    struct fsdp_module *root = make_tree(forward), *middle = fsdp_module_child(root, "middle");
    struct fsdp_device_mesh *three = NULL; /* for planning */
    struct fsdp_parallel_rule rule = { "nothing.*", FSDP_COLWISE_PARALLEL };

    OK(fsdp_init_device_mesh(&three, NULL, 1, (int[]){ 3 }, NULL, &err));
    ARG("parallelize: it takes a linear and a mesh of one dimension",
        fsdp_colwise_parallel(middle, NULL, &err));
    ARG("parallelize: \"box\" is no linear: only these are split",
        fsdp_rowwise_parallel(fsdp_module_child(root, "box"), three, &err));
    ARG("parallelize: 3 ranks do not divide the 4 output features of \"middle\"",
        fsdp_colwise_parallel(middle, three, &err));
    ARG("parallelize: no module below \"\" is called nothing.*",
        fsdp_parallelize_module(root, three, &rule, 1, &err));
    ARG("parallelize: rule 0 has no pattern or an unknown style",
        fsdp_parallelize_module(root, three, NULL, 1, &err));
    fsdp_module_destroy(root);
    fsdp_device_mesh_destroy(three);
}

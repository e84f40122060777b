/* Attention of the cuda row by cuDNN's graphs, over a stand-in that computes what a graph says. Linked with libfsdp.
 * The emulated device alone: FSDP_CUDA_PLUGIN and FSDP_CUDNN_LIBRARY name both. A line for each check, as cuda_numerics.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "shard_runtime/device/device.h"
#include "shard_runtime/device/plugin.h"
#include "shard_runtime/numerics/cuda_plan.h"
#include "shard_runtime/numerics/cuda_plan_attention.h"
#include "shard_runtime/numerics/numerics.h"

enum { PARTS = 3, MAX_WALK = 2000 };

/* D, dS and the results are rounded to bfloat16: the tolerance of our own kernels' tests. */
static const double allowed = 2e-2;

static struct device device;
static struct device_stream *stream;
static const struct plugin *plugin;
static struct numerics ref;
static int n_failed;
static struct {
    void (*fail)(int n);
    int (*calls)(void), (*live)(void), (*runs)(void), (*plans)(void);
    void (*refuse)(int n, int m);
} standin;

static void check(const char *name, bool good, const char *words)
{
    printf("%s - cuDNN: %s%s%s\n", good ? "ok" : "not ok", name, good ? "" : ": ", good ? "" : words);
    n_failed += !good;
}

static void require(enum fsdp_status status, const struct fsdp_err *err)
{
    if (status == FSDP_OK)
        return;
    printf("not ok - cuDNN: %s\n", err->message);
    exit(1);
}

/* --- one problem, on the device in bfloat16 and by the reference in float32 ------------------------------- */

struct problem {
    struct fused_attention_desc desc;
    size_t rows, features, part; /* elements between q, k and v */
    float *qkv, *dout;           /* rounded to bfloat16 */
    void *on_device[5];          /* qkv, dout, out, dqkv, lse */
    size_t bytes[5];
};

enum { QKV, DOUT, OUT, DQKV, LSE };

/* Memory that somebody used before: NaNs of either dtype. */
static void *alloc(size_t size_bytes)
{
    struct fsdp_err err = { 0 };
    void *memory, *used = malloc(size_bytes + 1);

    require(device.ops->alloc(&device, size_bytes, &memory, &err), &err);
    memset(used, 0xff, size_bytes);
    device.ops->copy(stream, memory, used, size_bytes, DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err), &err);
    free(used);
    return memory;
}

static float *fill(uint64_t key, size_t n, void *to)
{
    float *numbers = malloc(n * sizeof *numbers);
    uint16_t *narrow = malloc(n * sizeof *narrow);
    struct fsdp_err err = { 0 };

    rng_fill_normal(key, 0, numbers, n, 1.0f);
    for (size_t i = 0; i < n; i++)
        numbers[i] = bf16_to_f32(narrow[i] = bf16_of_f32(numbers[i]));
    device.ops->copy(stream, to, narrow, n * sizeof *narrow, DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err), &err);
    free(narrow);
    return numbers;
}

static struct problem make_problem(struct attention_desc shape, bool packed)
{
    const size_t features = shape.heads * shape.head_dim, rows = shape.batch * shape.seq,
                 stride = packed ? PARTS * features : features;
    struct problem p = { .desc = { .shape = shape,
                                   .dtype = FSDP_BF16,
                                   .scale = 1.0f / sqrtf((float)shape.head_dim),
                                   .q_stride = stride,
                                   .k_stride = stride,
                                   .v_stride = stride,
                                   .out_stride = features },
                         .rows = rows,
                         .features = features,
                         .part = packed ? features : rows * features };

    p.bytes[QKV] = p.bytes[DQKV] = PARTS * rows * features * sizeof(uint16_t);
    p.bytes[DOUT] = p.bytes[OUT] = rows * features * sizeof(uint16_t);
    p.bytes[LSE] = shape.batch * shape.heads * shape.seq * sizeof(float);
    for (int i = 0; i < 5; i++)
        p.on_device[i] = alloc(p.bytes[i]);
    p.qkv = fill(3, PARTS * rows * features, p.on_device[QKV]);
    p.dout = fill(4, rows * features, p.on_device[DOUT]);
    return p;
}

static void drop_problem(struct problem *p)
{
    for (int i = 0; i < 5; i++)
        device.ops->free(&device, p->on_device[i], p->bytes[i]);
    free(p->qkv);
    free(p->dout);
}

static void *third(const struct problem *p, int of, size_t i)
{
    return (uint16_t *)p->on_device[of] + i * p->part;
}

/* Forward, then backward; the first failure. */
static enum fsdp_status run_on_device(struct numerics *cuda, const struct problem *p, struct fsdp_err *err)
{
    struct fused_attention *attention;
    size_t bytes[2];
    void *scratch[2];
    enum fsdp_status status =
        cuda->ops->attention_create(cuda, &p->desc, &attention, &bytes[0], &bytes[1], err);
    struct fused_attention_forward forward = { .q = third(p, QKV, 0),
                                               .k = third(p, QKV, 1),
                                               .v = third(p, QKV, 2),
                                               .out = p->on_device[OUT],
                                               .lse = p->on_device[LSE] };
    struct fused_attention_backward backward = { .q = forward.q,
                                                 .k = forward.k,
                                                 .v = forward.v,
                                                 .out = forward.out,
                                                 .dout = p->on_device[DOUT],
                                                 .lse = forward.lse,
                                                 .dq = third(p, DQKV, 0),
                                                 .dk = third(p, DQKV, 1),
                                                 .dv = third(p, DQKV, 2) };

    if (status != FSDP_OK)
        return status;
    for (int i = 0; i < 2; i++)
        scratch[i] = alloc(bytes[i]);
    forward.scratch = scratch[0];
    backward.scratch = scratch[1];
    status = cuda->ops->attention_forward(attention, stream, &forward, err);
    if (status == FSDP_OK)
        status = cuda->ops->attention_backward(attention, stream, &backward, err);
    require(device.ops->synchronize(stream, err), err);
    for (int i = 0; i < 2; i++)
        device.ops->free(&device, scratch[i], bytes[i]);
    cuda->ops->attention_destroy(attention);
    return status;
}

/* The largest difference between what is on the device and `theirs`, relative to the largest or to 1. */
static double far_off(const void *on_device, bool narrow, const float *theirs, size_t n)
{
    const size_t each = narrow ? sizeof(uint16_t) : sizeof(float);
    char *ours = malloc(n * each);
    struct fsdp_err err = { 0 };
    double most = 0, size = 1;

    device.ops->copy(stream, ours, on_device, n * each, DEVICE_COPY_FROM);
    require(device.ops->synchronize(stream, &err), &err);
    for (size_t i = 0; i < n; i++) {
        const float mine = narrow ? bf16_to_f32(((uint16_t *)ours)[i]) : ((float *)ours)[i];
        const double d = fabs((double)mine - (double)theirs[i]);

        size = fabs((double)theirs[i]) > size ? fabs((double)theirs[i]) : size;
        most = isnan(d) || d > most ? d : most;
    }
    free(ours);
    return most / size;
}

/* How far the device's out, lse and gradients are from the reference's: the farthest. */
static double against_reference(const struct problem *p)
{
    const size_t n = p->rows * p->features, n_lse = p->bytes[LSE] / sizeof(float);
    float *out = malloc(n * sizeof *out), *lse = malloc(n_lse * sizeof *lse),
          *dqkv = malloc(PARTS * n * sizeof *dqkv);
    struct fused_attention_desc desc = p->desc;
    struct fused_attention *attention;
    struct fsdp_err err = { 0 };
    size_t bytes[2];
    void *scratch;
    double far[3];

    desc.dtype = FSDP_F32;
    require(ref.ops->attention_create(&ref, &desc, &attention, &bytes[0], &bytes[1], &err), &err);
    scratch = malloc((bytes[0] > bytes[1] ? bytes[0] : bytes[1]) + 1);
    require(ref.ops->attention_forward(attention, NULL,
                                       &(struct fused_attention_forward){ .q = p->qkv,
                                                                          .k = p->qkv + p->part,
                                                                          .v = p->qkv + 2 * p->part,
                                                                          .out = out,
                                                                          .lse = lse,
                                                                          .scratch = scratch },
                                       &err),
            &err);
    require(ref.ops->attention_backward(attention, NULL,
                                        &(struct fused_attention_backward){ .q = p->qkv,
                                                                            .k = p->qkv + p->part,
                                                                            .v = p->qkv + 2 * p->part,
                                                                            .out = out,
                                                                            .dout = p->dout,
                                                                            .lse = lse,
                                                                            .dq = dqkv,
                                                                            .dk = dqkv + p->part,
                                                                            .dv = dqkv + 2 * p->part,
                                                                            .scratch = scratch },
                                        &err),
            &err);
    far[0] = far_off(p->on_device[OUT], true, out, n);
    far[1] = far_off(p->on_device[LSE], false, lse, n_lse);
    far[2] = far_off(p->on_device[DQKV], true, dqkv, PARTS * n);
    ref.ops->attention_destroy(attention);
    free(scratch), free(out), free(lse), free(dqkv);
    for (int i = 1; i < 3; i++)
        far[0] = isnan(far[i]) || far[i] > far[0] ? far[i] : far[0];
    return far[0];
}

static enum fsdp_status open_row(struct numerics *cuda, const char *choice, struct fsdp_err *err)
{
    setenv("FSDP_CUDA_ATTENTION", choice, 1);
    return numerics_open(
        cuda, &(struct numerics_config){ .threads = 1, .row = plugin->numerics, .device = &device }, err);
}

/* --- the checks ------------------------------------------------------------------------------------------- */

static const struct attention_desc small = {
    .batch = 2, .seq = 37, .heads = 3, .head_dim = 16, .causal = true
};

static void check_numbers(void)
{
    static const size_t dims[] = { 8, 24, 64, 128 }, seqs[] = { 1, 5, 37, 66 };
    struct fsdp_err err = { 0 };
    struct numerics cuda;
    char name[160], words[160];

    require(open_row(&cuda, "cudnn", &err), &err);
    for (size_t i = 0; i < 4 * 4 * 4; i++) {
        const bool causal = i & 1, packed = i & 2;
        const struct attention_desc shape = { .batch = causal ? 2 : 1,
                                              .seq = causal ? seqs[i / 4 % 4] : 128, /* alone is asked for */
                                              .heads = 2,
                                              .head_dim = dims[i / 16],
                                              .causal = causal };
        struct problem p = make_problem(shape, packed);
        const int before = standin.runs();
        double far;

        if (!causal && i / 4 % 4 > 0) {
            drop_problem(&p);
            continue;
        }
        require(run_on_device(&cuda, &p, &err), &err);
        far = against_reference(&p);
        snprintf(name, sizeof name, "%zu positions, heads of %zu%s%s", shape.seq, shape.head_dim,
                 causal ? ", causal" : "", packed ? ", packed" : "");
        snprintf(words, sizeof words, "off by %g, %d runs", far, standin.runs() - before);
        check(name, far <= allowed && standin.runs() - before == 2, words);
        drop_problem(&p);
    }
    numerics_close(&cuda);
    check("all is given back", standin.live() == 0, "something is left");
}

/* Without a place for the logarithms forward uses its scratch: there is nobody else to write beyond. */
static void check_no_lse(void)
{
    struct fsdp_err err = { 0 };
    struct problem p = make_problem(small, true);
    struct fused_attention_forward forward = {
        .q = third(&p, QKV, 0), .k = third(&p, QKV, 1), .v = third(&p, QKV, 2), .out = p.on_device[OUT]
    };
    const size_t n = p.rows * p.features;
    float *first = malloc(n * sizeof *first);
    uint16_t *narrow = malloc(n * sizeof *narrow);
    struct fused_attention *attention;
    struct numerics cuda;
    size_t bytes[2];
    void *scratch;

    require(open_row(&cuda, "cudnn", &err), &err);
    require(run_on_device(&cuda, &p, &err), &err);
    device.ops->copy(stream, narrow, p.on_device[OUT], n * sizeof *narrow, DEVICE_COPY_FROM);
    require(device.ops->synchronize(stream, &err), &err);
    for (size_t i = 0; i < n; i++)
        first[i] = bf16_to_f32(narrow[i]);
    require(cuda.ops->attention_create(&cuda, &p.desc, &attention, &bytes[0], &bytes[1], &err), &err);
    scratch = forward.scratch = alloc(bytes[0]);
    require(cuda.ops->attention_forward(attention, stream, &forward, &err), &err);
    require(device.ops->synchronize(stream, &err), &err);
    check("forward alone", far_off(p.on_device[OUT], true, first, n) == 0, "another result");
    device.ops->free(&device, scratch, bytes[0]);
    cuda.ops->attention_destroy(attention);
    numerics_close(&cuda);
    drop_problem(&p);
    free(first), free(narrow);
}

/* Layers of one shape share their plans; what is carved is what is planned, for every choice and shape. */
static void check_plans(void)
{
    static const char *const choices[] = { "ours", "auto", "cudnn" };
    struct fsdp_err err = { 0 };
    bool same = true;
    int before;

    for (int choice = 0; choice < 3; choice++) {
        struct numerics cuda, plan;
        struct fused_attention *attention;
        size_t ours[2], planned[2];

        require(open_row(&cuda, choices[choice], &err), &err);
        require(numerics_open(&plan,
                              &(struct numerics_config){
                                  .threads = 1, .row = &numerics_cuda_plan_ops, .device = &device },
                              &err),
                &err);
        before = standin.plans();
        for (int i = 0; i < 6; i++) {
            struct fused_attention_desc desc = { .shape = small, .dtype = FSDP_BF16, .scale = 0.25f };

            desc.shape.seq += (size_t)(i / 3);
            desc.q_stride = desc.k_stride = desc.v_stride = desc.out_stride = small.heads * small.head_dim;
            if (choice < 2 && i == 5)
                desc.dtype = FSDP_F32; /* which cuDNN is not asked for */
            require(cuda.ops->attention_create(&cuda, &desc, &attention, &ours[0], &ours[1], &err), &err);
            cuda.ops->attention_destroy(attention);
            require(plan.ops->attention_create(&plan, &desc, &attention, &planned[0], &planned[1], &err),
                    &err);
            plan.ops->attention_destroy(attention);
            same = same && ours[0] == planned[0] && ours[1] == planned[1];
        }
        check("plans are shared", standin.plans() - before == (choice == 0 ? 0 : 4), choices[choice]);
        numerics_close(&plan);
        numerics_close(&cuda);
    }
    check("scratch is what is planned", same, "it differs");
}

static void check_engines(void)
{
    struct problem p = make_problem(small, false);
    struct fsdp_err err = { 0 };
    struct numerics cuda;
    char words[300];
    int before;

    standin.refuse(2, 2); /* of five, and one more of the other heuristic */
    require(open_row(&cuda, "cudnn", &err), &err);
    require(run_on_device(&cuda, &p, &err), &err);
    check("engines that refuse, or want too much, are passed over", against_reference(&p) <= allowed,
          "wrong");
    numerics_close(&cuda);

    standin.refuse(5, 0);
    require(open_row(&cuda, "cudnn", &err), &err);
    require(run_on_device(&cuda, &p, &err), &err);
    check("the other heuristic is asked", against_reference(&p) <= allowed, "wrong");
    numerics_close(&cuda);

    standin.refuse(9, 0);
    require(open_row(&cuda, "cudnn", &err), &err);
    check("no engine is an error where cuDNN was asked for",
          run_on_device(&cuda, &p, &err) == FSDP_ERR_UNSUPPORTED &&
              strstr(err.message, "FSDP_CUDA_ATTENTION=cudnn: forward: cudnnBackendFinalize: "
                                  "CUDNN_STATUS_NOT_SUPPORTED: this engine refuses") != NULL,
          err.message);
    numerics_close(&cuda);

    standin.refuse(20, 0); /* of twenty, more than we ask for */
    require(open_row(&cuda, "cudnn", &err), &err);
    check("engines beyond those asked for are let be",
          run_on_device(&cuda, &p, &err) == FSDP_ERR_UNSUPPORTED &&
              strstr(err.message, "this engine refuses") != NULL,
          err.message);
    numerics_close(&cuda);

    standin.refuse(0, 9);
    before = standin.runs();
    require(open_row(&cuda, "auto", &err), &err);
    require(run_on_device(&cuda, &p, &err), &err);
    numerics_describe(&cuda, words, sizeof words);
    check("and ours where it was not", against_reference(&p) <= allowed && standin.runs() == before, "wrong");
    check("which is told", strstr(words, "attention ours (forward: an engine wants") != NULL, words);
    standin.refuse(0, 0);
    p.desc.scale *= 2;
    require(run_on_device(&cuda, &p, &err), &err);
    numerics_describe(&cuda, words, sizeof words);
    check("and that some is cuDNN's, where it is",
          strstr(words, "attention cuDNN 91900, some ours (") != NULL, words);
    numerics_close(&cuda);
    standin.refuse(0, 0);
    check("nothing is left of any", standin.live() == 0, "something is");
    drop_problem(&p);
}

static void check_refusals(void)
{
    const struct fused_attention_desc good = {
        .shape = small, .dtype = FSDP_BF16, .q_stride = 48, .k_stride = 48, .v_stride = 48, .out_stride = 48
    };
    struct fused_attention_desc bad[6] = { good, good, good, good, good, good };
    static const char *const words[] = { "only bfloat16", "its dropout", "heads are",
                                         "heads are",     "strides are", "no multiple of 128" };
    struct fsdp_err err = { 0 };
    struct numerics cuda;

    bad[0].dtype = FSDP_F32;
    bad[1].drops = true;
    bad[2].shape.head_dim = 12;
    bad[3].shape.head_dim = 136;
    bad[3].q_stride = bad[3].k_stride = bad[3].v_stride = bad[3].out_stride = 3 * 136;
    bad[4].k_stride = 52;
    bad[5].shape.causal = false;
    require(open_row(&cuda, "cudnn", &err), &err);
    for (int i = 0; i < 6; i++) {
        struct fused_attention *attention;
        size_t bytes[2];

        check(words[i],
              cuda.ops->attention_create(&cuda, &bad[i], &attention, &bytes[0], &bytes[1], &err) ==
                      FSDP_ERR_UNSUPPORTED &&
                  strstr(err.message, words[i]) != NULL && attention == NULL,
              err.message);
    }
    numerics_close(&cuda);
    check("another word for the choice",
          open_row(&cuda, "theirs", &err) == FSDP_ERR_CONFIG && strstr(err.message, "theirs") != NULL,
          err.message);
}

/* Every call fails once: an error that names it where cuDNN was asked for; otherwise at the latest a run fails so, and what came
 * before is ours. Nothing is left either way. Every turn has another scale, and so plans of its own. */
static void walk(const char *choice)
{
    const bool strict = strcmp(choice, "cudnn") == 0;
    struct problem p = make_problem((struct attention_desc){ 1, 4, 1, 8, true }, false);
    int n, n_errors = 0, n_whole = 0, n_wrong = 0, n_left = 0;
    struct fsdp_err err = { 0 };
    struct numerics cuda;
    char name[80], words[160];

    require(open_row(&cuda, choice, &err), &err);
    for (n = 1; n < MAX_WALK; n++) {
        const int before = standin.live(), plans = standin.plans();
        enum fsdp_status status;

        p.desc.scale += 1e-4f;
        standin.fail(n);
        fsdp_err_clear(&err);
        status = run_on_device(&cuda, &p, &err);
        if (standin.calls() < n)
            break;
        n_left += standin.plans() - plans < 2 && standin.live() != before;
        if (status != FSDP_OK) {
            n_errors++;
            n_wrong += strstr(err.message, "planted") == NULL || strstr(err.message, "cudnn") == NULL;
        } else {
            n_whole++;
            n_wrong += !(against_reference(&p) <= allowed);
        }
    }
    standin.fail(0);
    numerics_close(&cuda);
    n_left += standin.live();
    snprintf(name, sizeof name, "every call fails once, %s", choice);
    snprintf(words, sizeof words, "%d calls, %d errors, %d whole, %d wrong, %d left", n - 1, n_errors,
             n_whole, n_wrong, n_left);
    printf("# %s: %s\n", name, words);
    check(name,
          n > 300 && n < MAX_WALK && n_wrong == 0 && n_left == 0 &&
              (strict ? n_errors > n_whole : n_whole > n_errors),
          words);
    drop_problem(&p);
}

static void check_no_handle(void)
{
    struct fsdp_err err = { 0 };
    struct numerics cuda;

    standin.fail(1);
    check("no handle, where it was asked for",
          open_row(&cuda, "cudnn", &err) == FSDP_ERR_UNSUPPORTED &&
              strstr(err.message, "cudnnCreate") != NULL,
          err.message);
    standin.fail(1);
    require(open_row(&cuda, "auto", &err), &err);
    numerics_close(&cuda);
    standin.fail(0);
    check("nothing is left of it", standin.live() == 0, "something is");
}

static void find_standin(void)
{
    void *library = dlopen(getenv("FSDP_CUDNN_LIBRARY"), RTLD_NOW | RTLD_LOCAL);

    if (library == NULL) {
        printf("not ok - cuDNN: %s\n", dlerror());
        exit(1);
    }
    *(void **)&standin.fail = dlsym(library, "cudnn_standin_fail");
    *(void **)&standin.calls = dlsym(library, "cudnn_standin_calls");
    *(void **)&standin.live = dlsym(library, "cudnn_standin_live");
    *(void **)&standin.runs = dlsym(library, "cudnn_standin_runs");
    *(void **)&standin.plans = dlsym(library, "cudnn_standin_plans");
    *(void **)&standin.refuse = dlsym(library, "cudnn_standin_refuse");
}

int main(void)
{
    const struct device_config config = { .name = "cuda", .plugin = &plugin };
    struct fsdp_err err = { 0 };

    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    require(device_open(&device, &config, &err), &err);
    require(device.ops->stream_create(&device, &stream, false, &err), &err);
    require(numerics_open(&ref, &(struct numerics_config){ .threads = 1, .name = "ref" }, &err), &err);
    find_standin();
    check_numbers();
    check_no_lse();
    check_plans();
    check_engines();
    check_refusals();
    check_no_handle();
    walk("cudnn");
    walk("auto");
    numerics_close(&ref);
    device.ops->stream_destroy(stream);
    device_close(&device);
    return n_failed > 0;
}

/*
 * Attention of the cuda row by cuDNN's graphs, over a stand-in that computes what a graph says. Linked with
 * libfsdp. The emulated device alone: FSDP_CUDA_PLUGIN and FSDP_CUDNN_LIBRARY name both. A line for each
 * check, as cuda_numerics.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/numerics/cuda_plan.h"
#include "shard_runtime/numerics/cuda_plan_attention.h"
#include "tests/support/oracles/cuda_row/row.h"

enum { MAX_WALK = 2000 };

/* D, dS and the results are rounded to bfloat16: the tolerance of our own kernels' tests. */
static const double allowed = 2e-2;

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

/* Outputs hold NaNs before a run. */
static struct attention_problem make_problem(struct attention_desc shape, bool packed)
{
    struct attention_problem p = make_attention(shape, FSDP_BF16, packed);
    struct tensor outputs[] = { p.out, p.dqkv, p.lse };

    for (int i = 0; i < 3; i++) {
        void *used = used_before(outputs[i].n * sizeof(float));

        device.ops->copy(stream, outputs[i].device, used, outputs[i].n * sizeof(float), DEVICE_COPY_WITHIN);
        require(device.ops->synchronize(stream, &err));
        device.ops->free(&device, used, outputs[i].n * sizeof(float));
    }
    return p;
}

/* How far the device's out, lse and gradients are from the reference's: the farthest. */
static double against_reference(const struct attention_problem *p)
{
    const struct tensor outputs[] = { p->out, p->dqkv, p->lse };
    double farthest = 0;

    require(run_attention(p, 1));
    for (int i = 0; i < 3; i++) {
        float *got = fetch(outputs[i], i < 2);
        const double far = far_off(got, outputs[i].host, outputs[i].n, 1);

        farthest = isnan(far) || far > farthest ? far : farthest;
        free(got);
    }
    return farthest;
}

static enum fsdp_status open_cuda(const char *choice)
{
    setenv("FSDP_CUDA_ATTENTION", choice, 1);
    return open_row(&cuda);
}

/* The checks */

static const struct attention_desc small = {
    .batch = 2, .seq = 37, .heads = 3, .head_dim = 16, .causal = true
};

static void check_numbers(void)
{
    static const size_t dims[] = { 8, 24, 64, 128 }, seqs[] = { 1, 5, 37, 66 };
    char name[160], words[160];

    require(open_cuda("cudnn"));
    for (size_t i = 0; i < 4 * 4 * 4; i++) {
        const bool causal = i & 1, packed = i & 2;
        const struct attention_desc shape = { .batch = causal ? 2 : 1,
                                              .seq = causal ? seqs[i / 4 % 4] : 128, /* alone is asked for */
                                              .heads = 2,
                                              .head_dim = dims[i / 16],
                                              .causal = causal };
        struct attention_problem p = make_problem(shape, packed);
        const int before = standin.runs();
        double far;

        if (!causal && i / 4 % 4 > 0) {
            drop_attention(&p);
            continue;
        }
        require(run_attention(&p, 0));
        far = against_reference(&p);
        snprintf(name, sizeof name, "%zu positions, heads of %zu%s%s", shape.seq, shape.head_dim,
                 causal ? ", causal" : "", packed ? ", packed" : "");
        snprintf(words, sizeof words, "off by %g, %d runs", far, standin.runs() - before);
        check(name, far <= allowed && standin.runs() - before == 2, words);
        drop_attention(&p);
    }
    numerics_close(&cuda);
    check("all is given back", standin.live() == 0, "something is left");
}

/* Without a place for the logarithms forward uses its scratch: there is nobody else to write beyond. */
static void check_no_lse(void)
{
    struct attention_problem p = make_problem(small, true);
    char *x = (char *)p.qkv.device;
    const size_t part = p.part * sizeof(uint16_t);
    struct fused_attention *attention;
    float *first, *again;
    size_t bytes[2];
    void *scratch;

    require(open_cuda("cudnn"));
    require(run_attention(&p, 0));
    first = fetch(p.out, true);
    require(cuda.ops->attention_create(&cuda, &p.desc, &attention, &bytes[0], &bytes[1], &err));
    scratch = used_before(bytes[0]);
    require(op_attention_forward(&cuda, attention, stream, (void *const[]){ x, x + part, x + 2 * part },
                                 p.out.device, NULL, NULL, scratch, &err));
    again = fetch(p.out, true);
    check("forward alone", far_off(again, first, p.out.n, 1) == 0, "another result");
    device.ops->free(&device, scratch, bytes[0]);
    cuda.ops->attention_destroy(attention);
    numerics_close(&cuda);
    drop_attention(&p);
    free(first), free(again);
}

/* Layers of one shape share their plans; what is carved is what is planned, for every choice and shape. */
static void check_plans(void)
{
    static const char *const choices[] = { "ours", "auto", "cudnn" };
    bool same = true;
    int before;

    for (int choice = 0; choice < 3; choice++) {
        struct numerics plan;
        struct fused_attention *attention;
        size_t ours[2], planned[2];

        require(open_cuda(choices[choice]));
        require(numerics_open(
            &plan,
            &(struct numerics_config){ .threads = 1, .row = &numerics_cuda_plan_ops, .device = &device },
            &err));
        before = standin.plans();
        for (int i = 0; i < 6; i++) {
            struct fused_attention_desc desc = op_attention(small, FSDP_BF16, small.heads * small.head_dim);

            desc.shape.seq += (size_t)(i / 3);
            if (choice < 2 && i == 5)
                desc.dtype = FSDP_F32; /* which cuDNN is not asked for */
            require(cuda.ops->attention_create(&cuda, &desc, &attention, &ours[0], &ours[1], &err));
            cuda.ops->attention_destroy(attention);
            require(plan.ops->attention_create(&plan, &desc, &attention, &planned[0], &planned[1], &err));
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
    static const struct {
        const char *name, *words; /* of the error; NULL: it runs */
        int n, wide;              /* engines that refuse, and those that want too much */
    } refusals[] = {
        { "engines that refuse, or want too much, are passed over", NULL, 2, 2 }, /* of five, and one more */
        { "the other heuristic is asked", NULL, 5, 0 },
        { "no engine is an error where cuDNN was asked for",
          "FSDP_CUDA_ATTENTION=cudnn: forward: cudnnBackendFinalize: CUDNN_STATUS_NOT_SUPPORTED: this engine "
          "refuses",
          9, 0 },
        { "engines beyond those asked for are let be", "this engine refuses", 20, 0 },
    };
    struct attention_problem p = make_problem(small, false);
    char words[300];
    int before;

    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        bool good;

        standin.refuse(refusals[i].n, refusals[i].wide);
        require(open_cuda("cudnn"));
        good = run_attention(&p, 0) == (refusals[i].words == NULL ? FSDP_OK : FSDP_ERR_UNSUPPORTED) &&
               (refusals[i].words == NULL ? against_reference(&p) <= allowed
                                          : strstr(err.message, refusals[i].words) != NULL);
        check(refusals[i].name, good, err.message);
        fsdp_err_clear(&err);
        numerics_close(&cuda);
    }

    standin.refuse(0, 9);
    before = standin.runs();
    require(open_cuda("auto"));
    require(run_attention(&p, 0));
    numerics_describe(&cuda, words, sizeof words);
    check("and ours where it was not", against_reference(&p) <= allowed && standin.runs() == before, "wrong");
    check("which is told", strstr(words, "attention ours (forward: an engine wants") != NULL, words);
    standin.refuse(0, 0);
    p.desc.scale *= 2;
    require(run_attention(&p, 0));
    numerics_describe(&cuda, words, sizeof words);
    check("and that some is cuDNN's, where it is",
          strstr(words, "attention cuDNN 91900, some ours (") != NULL, words);
    numerics_close(&cuda);
    standin.refuse(0, 0);
    check("nothing is left of any", standin.live() == 0, "something is");
    drop_attention(&p);
}

static void check_refusals(void)
{
    const struct fused_attention_desc good = op_attention(small, FSDP_BF16, 48);
    struct fused_attention_desc bad[6] = { good, good, good, good, good, good };
    static const char *const words[] = { "only bfloat16", "its dropout", "heads are",
                                         "heads are",     "strides are", "no multiple of 128" };

    bad[0].dtype = FSDP_F32;
    bad[1].drops = true;
    bad[2].shape.head_dim = 12;
    bad[3].shape.head_dim = 136;
    bad[3].q_stride = bad[3].k_stride = bad[3].v_stride = bad[3].out_stride = 3 * 136;
    bad[4].k_stride = 52;
    bad[5].shape.causal = false;
    require(open_cuda("cudnn"));
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
          open_cuda("theirs") == FSDP_ERR_CONFIG && strstr(err.message, "theirs") != NULL, err.message);
}

/*
 * Every call fails once. Where cuDNN was asked for, the error names the call. Otherwise a run fails so at the
 * latest, and what came before is ours. Nothing is left either way. Every turn has another scale, and so
 * plans of its own.
 */
static void walk(const char *choice)
{
    const bool strict = strcmp(choice, "cudnn") == 0;
    struct attention_problem p = make_problem((struct attention_desc){ 1, 4, 1, 8, true }, false);
    int n, n_errors = 0, n_whole = 0, n_wrong = 0, n_left = 0;
    char name[80], words[160];

    require(open_cuda(choice));
    for (n = 1; n < MAX_WALK; n++) {
        const int before = standin.live(), plans = standin.plans();
        enum fsdp_status status;

        p.desc.scale += 1e-4f;
        standin.fail(n);
        fsdp_err_clear(&err);
        status = run_attention(&p, 0);
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
    drop_attention(&p);
}

static void check_no_handle(void)
{

    standin.fail(1);
    check("no handle, where it was asked for",
          open_cuda("cudnn") == FSDP_ERR_UNSUPPORTED && strstr(err.message, "cudnnCreate") != NULL,
          err.message);
    standin.fail(1);
    require(open_cuda("auto"));
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
    open_device();
    find_standin();
    check_numbers();
    check_no_lse();
    check_plans();
    check_engines();
    check_refusals();
    check_no_handle();
    walk("cudnn");
    walk("auto");
    close_device();
    return n_failed > 0;
}

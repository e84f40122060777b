/*
 * A library with cuDNN's graph API, as far as attention uses it, for the emulated device. Descriptors are
 * kept as they were filled in. A graph that is run computes what its operations say, one after the other, on
 * the memory that the caller names, in its stream's queue. So a wrong edge, stride, direction of the mask or
 * scale gives wrong numbers. What cuDNN's own engines take is another question:
 * tests/support/oracles/cudnn_graphs.c asks the library itself.
 *
 * CUDNN_STANDIN_LOG   a line for each plan and each run is appended to this file
 * CUDNN_STANDIN_OLD   its version is 9.15
 */
#include "tests/emulation/cuda/cudnn_standin.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/cuda/cudnn_api.h"
#include "tests/emulation/cuda/cudnn_program.h"
#include "tests/emulation/cuda/runtime.h"

#define EXPORT __attribute__((visibility("default")))
/* The plug-in finds cuDNN's functions by name: no header declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { MAX_ATTRIBUTES = 10, N_ENGINES = 5, N_ENGINES_MANY = 20 };
enum { BAD = 2000, UNFINISHED = 2004, REFUSED = 3000, PLANTED = 4000 };

struct cudnn_handle {
    struct CUstream_st *stream;
};

struct attribute {
    enum cudnn_attribute name;
    enum cudnn_kind kind;
    int64_t n;
    void *elems;
};

struct descriptor {
    enum cudnn_object object;
    bool is_final;
    int n_attributes, number; /* number: of an engine */
    struct attribute attributes[MAX_ATTRIBUTES];
    struct program *program; /* of a plan */
};

static int n_live, n_runs, n_plans, n_calls, fail_at, n_refuse, n_greedy;
static char last_words[128];

static bool fails(void)
{
    return ++n_calls == fail_at;
}

static int refuse(int status, const char *words)
{
    snprintf(last_words, sizeof last_words, "%s", words);
    return status;
}

#define PLANT()                                                                                              \
    do {                                                                                                     \
        if (fails())                                                                                         \
            return refuse(PLANTED, "planted");                                                               \
    } while (0)

static size_t size_of_kind(enum cudnn_kind kind)
{
    const bool is_byte = kind == CUDNN_KIND_BOOL || kind == CUDNN_KIND_CHAR;
    const bool is_enum = kind == CUDNN_KIND_DATA || kind == CUDNN_KIND_HEURISTIC ||
                         kind == CUDNN_KIND_POINTWISE || kind == CUDNN_KIND_REDUCTION;

    return is_byte ? 1 : is_enum ? sizeof(int) : sizeof(void *);
}

/* Programs: a graph with its descriptors resolved */

static const struct attribute *find(const struct descriptor *descriptor, enum cudnn_attribute name)
{
    for (int i = 0; i < descriptor->n_attributes; i++)
        if (descriptor->attributes[i].name == name)
            return &descriptor->attributes[i];
    return NULL;
}

static int64_t int_of(const struct descriptor *descriptor, enum cudnn_attribute name)
{
    const struct attribute *attribute = find(descriptor, name);

    if (attribute == NULL)
        return -1;
    if (attribute->kind == CUDNN_KIND_I64)
        return *(const int64_t *)attribute->elems;
    if (attribute->kind == CUDNN_KIND_BOOL)
        return *(const char *)attribute->elems;
    return *(const int *)attribute->elems;
}

static struct descriptor *child_of(const struct descriptor *descriptor, enum cudnn_attribute name)
{
    const struct attribute *attribute = find(descriptor, name);

    return attribute == NULL ? NULL : *(struct descriptor *const *)attribute->elems;
}

/* The tensor's place in the program; -1: none was named; -2: no room, or two tensors of one uid. */
static int place_of(struct program *program, const struct descriptor *op, enum cudnn_attribute name)
{
    const struct descriptor *from = child_of(op, name);
    struct tensor tensor = { .n_elems = 1 };

    if (from == NULL)
        return -1;
    tensor.uid = int_of(from, CUDNN_ATTR_UID);
    tensor.data = (int)int_of(from, CUDNN_ATTR_DATA);
    tensor.within = int_of(from, CUDNN_ATTR_VIRTUAL) == 1;
    tensor.by_value = int_of(from, CUDNN_ATTR_BY_VALUE) == 1;
    memcpy(tensor.dims, find(from, CUDNN_ATTR_DIMENSIONS)->elems, sizeof tensor.dims);
    memcpy(tensor.strides, find(from, CUDNN_ATTR_STRIDES)->elems, sizeof tensor.strides);
    for (int d = 0; d < PROGRAM_DIMS; d++)
        tensor.n_elems += (size_t)((tensor.dims[d] - 1) * tensor.strides[d]);
    for (int i = 0; i < program->n_tensors; i++) {
        if (program->tensors[i].uid != tensor.uid)
            continue;
        return memcmp(program->tensors[i].dims, tensor.dims, sizeof tensor.dims) == 0 &&
                       memcmp(program->tensors[i].strides, tensor.strides, sizeof tensor.strides) == 0
                   ? i
                   : -2;
    }
    if (program->n_tensors == PROGRAM_MAX_TENSORS)
        return -2;
    program->tensors[program->n_tensors] = tensor;
    return program->n_tensors++;
}

static bool read_op(struct program *program, const struct descriptor *from)
{
    struct op op = { .what = from->object, .x = -1, .b = -1, .t = -1, .y = -1 };

    switch (from->object) {
    case CUDNN_OP_POINTWISE:
        op.mode = (int)int_of(child_of(from, CUDNN_ATTR_POINTWISE_DESC), CUDNN_ATTR_MODE);
        op.axis = (int)int_of(child_of(from, CUDNN_ATTR_POINTWISE_DESC), CUDNN_ATTR_AXIS);
        op.x = place_of(program, from, CUDNN_ATTR_POINTWISE_X);
        op.b = place_of(program, from, CUDNN_ATTR_POINTWISE_B);
        op.t = place_of(program, from, CUDNN_ATTR_POINTWISE_T);
        op.y = place_of(program, from, CUDNN_ATTR_POINTWISE_Y);
        break;
    case CUDNN_OP_MATMUL:
        op.x = place_of(program, from, CUDNN_ATTR_MATMUL_A);
        op.b = place_of(program, from, CUDNN_ATTR_MATMUL_B);
        op.y = place_of(program, from, CUDNN_ATTR_MATMUL_C);
        break;
    case CUDNN_OP_REDUCTION:
        op.mode = (int)int_of(child_of(from, CUDNN_ATTR_REDUCTION_DESC), CUDNN_ATTR_REDUCTION_MODE);
        op.x = place_of(program, from, CUDNN_ATTR_REDUCTION_X);
        op.y = place_of(program, from, CUDNN_ATTR_REDUCTION_Y);
        break;
    case CUDNN_OP_RESHAPE:
        op.x = place_of(program, from, CUDNN_ATTR_RESHAPE_X);
        op.y = place_of(program, from, CUDNN_ATTR_RESHAPE_Y);
        break;
    default:
        return false;
    }
    if (op.x < 0 || op.y < 0 || op.b == -2 || op.t == -2 || program->n_ops == PROGRAM_MAX_OPS)
        return false;
    /* As cuDNN's engines do with what a product leaves in memory in float32: blocks add their parts to it. */
    if (op.what == CUDNN_OP_MATMUL && !program->tensors[op.y].within &&
        program->tensors[op.y].data == CUDNN_F32)
        program->tensors[op.y].adds = true;
    program->ops[program->n_ops++] = op;
    return true;
}

static struct program *read_graph(const struct descriptor *graph)
{
    const struct attribute *ops = find(graph, CUDNN_ATTR_GRAPH_OPS);
    struct program *program = calloc(1, sizeof *program);

    for (int64_t i = 0; i < ops->n; i++) {
        if (!read_op(program, ((struct descriptor *const *)ops->elems)[i])) {
            free(program);
            return NULL;
        }
    }
    return program;
}

/* Running it */

static bool run_program(void *closure)
{
    struct program *program = *(struct program **)closure;

    program_compute(program);
    free(program);
    n_runs++;
    return true;
}

static void say(const char *what, const struct program *program)
{
    const char *log = getenv("CUDNN_STANDIN_LOG");
    FILE *file = log == NULL ? NULL : fopen(log, "a");

    if (file == NULL)
        return;
    fprintf(file, "%s of %d operations on %d tensors\n", what, program->n_ops, program->n_tensors);
    (void)fclose(file);
}

/* The API */

EXPORT void cudnn_standin_fail(int n)
{
    fail_at = n;
    n_calls = 0;
}

EXPORT int cudnn_standin_calls(void)
{
    return n_calls;
}

EXPORT int cudnn_standin_live(void)
{
    return n_live;
}

EXPORT int cudnn_standin_runs(void)
{
    return n_runs;
}

EXPORT int cudnn_standin_plans(void)
{
    return n_plans;
}

EXPORT void cudnn_standin_refuse(int n, int m)
{
    n_refuse = n;
    n_greedy = m;
}

EXPORT size_t cudnnGetVersion(void)
{
    return getenv("CUDNN_STANDIN_OLD") != NULL ? 91500 : 91900;
}

EXPORT const char *cudnnGetErrorString(int status)
{
    return status == REFUSED    ? "CUDNN_STATUS_NOT_SUPPORTED"
           : status == CUDNN_OK ? "CUDNN_STATUS_SUCCESS"
                                : "CUDNN_STATUS_BAD_PARAM";
}

EXPORT void cudnnGetLastErrorString(char *words, size_t size_bytes)
{
    snprintf(words, size_bytes, "%s", last_words);
    last_words[0] = '\0';
}

EXPORT int cudnnCreate(struct cudnn_handle **out)
{
    PLANT();
    *out = calloc(1, sizeof **out);
    n_live++;
    return CUDNN_OK;
}

EXPORT int cudnnDestroy(struct cudnn_handle *handle)
{
    free(handle);
    n_live--;
    return CUDNN_OK;
}

EXPORT int cudnnSetStream(struct cudnn_handle *handle, struct CUstream_st *stream)
{
    PLANT();
    handle->stream = stream;
    return CUDNN_OK;
}

EXPORT int cudnnBackendCreateDescriptor(enum cudnn_object object, cudnn_descriptor *out)
{
    struct descriptor *made;

    PLANT();
    made = calloc(1, sizeof *made);
    made->object = object;
    n_live++;
    *out = made;
    return CUDNN_OK;
}

EXPORT int cudnnBackendDestroyDescriptor(cudnn_descriptor descriptor)
{
    struct descriptor *d = descriptor;

    for (int i = 0; i < d->n_attributes; i++)
        free(d->attributes[i].elems);
    free(d->program);
    free(d);
    n_live--;
    return CUDNN_OK;
}

EXPORT int cudnnBackendSetAttribute(cudnn_descriptor descriptor, enum cudnn_attribute name,
                                    enum cudnn_kind kind, int64_t n, const void *elems)
{
    struct descriptor *d = descriptor;
    struct attribute *attribute;

    PLANT();
    if (d->is_final || d->n_attributes == MAX_ATTRIBUTES || n < 1 || find(d, name) != NULL)
        return refuse(BAD, "an attribute of a finalized descriptor, or one that was set");
    if (kind == CUDNN_KIND_DESCRIPTOR)
        for (int64_t i = 0; i < n; i++)
            if (!((struct descriptor *const *)elems)[i]->is_final)
                return refuse(UNFINISHED, "a descriptor that is not finalized");
    attribute = &d->attributes[d->n_attributes++];
    *attribute = (struct attribute){
        .name = name, .kind = kind, .n = n, .elems = malloc((size_t)n * size_of_kind(kind))
    };
    memcpy(attribute->elems, elems, (size_t)n * size_of_kind(kind));
    return CUDNN_OK;
}

/* By object: what must have been set. */
static bool is_whole(const struct descriptor *d)
{
    static const struct {
        enum cudnn_object object;
        enum cudnn_attribute names[7];
    } needs[] = {
        { CUDNN_POINTWISE, { CUDNN_ATTR_PRECISION } },
        { CUDNN_HEURISTIC, { CUDNN_ATTR_HEURISTIC_GRAPH, CUDNN_ATTR_HEURISTIC_MODE } },
        { CUDNN_PLAN, { CUDNN_ATTR_PLAN_HANDLE, CUDNN_ATTR_PLAN_CONFIG } },
        { CUDNN_OP_POINTWISE, { CUDNN_ATTR_POINTWISE_DESC, CUDNN_ATTR_POINTWISE_X, CUDNN_ATTR_POINTWISE_Y } },
        { CUDNN_OP_GRAPH, { CUDNN_ATTR_GRAPH_HANDLE, CUDNN_ATTR_GRAPH_OPS } },
        { CUDNN_VARIANT_PACK, { CUDNN_ATTR_PACK_UIDS, CUDNN_ATTR_PACK_POINTERS, CUDNN_ATTR_PACK_WORKSPACE } },
        { CUDNN_TENSOR,
          { CUDNN_ATTR_ALIGNMENT, CUDNN_ATTR_DATA, CUDNN_ATTR_DIMENSIONS, CUDNN_ATTR_STRIDES, CUDNN_ATTR_UID,
            CUDNN_ATTR_VIRTUAL, CUDNN_ATTR_BY_VALUE } },
        { CUDNN_MATMUL, { CUDNN_ATTR_MATMUL_PRECISION } },
        { CUDNN_OP_MATMUL,
          { CUDNN_ATTR_MATMUL_A, CUDNN_ATTR_MATMUL_B, CUDNN_ATTR_MATMUL_C, CUDNN_ATTR_MATMUL_DESC } },
        { CUDNN_REDUCTION, { CUDNN_ATTR_REDUCTION_MODE, CUDNN_ATTR_REDUCTION_PRECISION } },
        { CUDNN_OP_REDUCTION, { CUDNN_ATTR_REDUCTION_X, CUDNN_ATTR_REDUCTION_Y, CUDNN_ATTR_REDUCTION_DESC } },
        { CUDNN_OP_RESHAPE, { CUDNN_ATTR_RESHAPE_X, CUDNN_ATTR_RESHAPE_Y } },
    };

    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        for (size_t n = 0; needs[i].object == d->object && n < 7 && needs[i].names[n] != 0; n++)
            if (find(d, needs[i].names[n]) == NULL)
                return false;
    return true;
}

static int finalize_plan(struct descriptor *d)
{
    const struct descriptor *config = child_of(d, CUDNN_ATTR_PLAN_CONFIG);

    if (config->number < n_refuse)
        return refuse(REFUSED, "this engine refuses");
    d->number = config->number;
    d->program = read_graph(child_of(config, CUDNN_ATTR_CONFIG_ENGINE));
    if (d->program == NULL)
        return refuse(BAD, "a graph that cannot be read");
    n_plans++;
    say("plan", d->program);
    return CUDNN_OK;
}

EXPORT int cudnnBackendFinalize(cudnn_descriptor descriptor)
{
    struct descriptor *d = descriptor;
    int status = CUDNN_OK;

    PLANT();
    if (!is_whole(d))
        return refuse(BAD, "an attribute is missing");
    if (d->object == CUDNN_PLAN)
        status = finalize_plan(d);
    d->is_final = status == CUDNN_OK;
    return status;
}

/* An engine configuration keeps its graph where a real one keeps its engine. */
static int give_configs(const struct descriptor *heuristic, int64_t n_wanted, int64_t *n, void *elems)
{
    const struct attribute *graph = find(heuristic, CUDNN_ATTR_HEURISTIC_GRAPH);
    const bool fallback = int_of(heuristic, CUDNN_ATTR_HEURISTIC_MODE) == CUDNN_HEURISTIC_FALLBACK;

    /* What it has; what it gives may be fewer. */
    *n = fallback ? 1 : n_refuse + n_greedy < N_ENGINES_MANY ? N_ENGINES : N_ENGINES_MANY;
    for (int i = 0; i < *n && i < n_wanted; i++) {
        struct descriptor *config = ((struct descriptor **)elems)[i];
        struct attribute *engine = &config->attributes[config->n_attributes++];

        *engine = *graph;
        engine->name = CUDNN_ATTR_CONFIG_ENGINE;
        engine->elems = malloc(sizeof(void *));
        memcpy(engine->elems, graph->elems, sizeof(void *));
        config->number = fallback ? N_ENGINES : i;
        config->is_final = true;
    }
    return CUDNN_OK;
}

EXPORT int cudnnBackendGetAttribute(const cudnn_descriptor descriptor, enum cudnn_attribute name,
                                    enum cudnn_kind kind, int64_t n_wanted, int64_t *n, void *elems)
{
    const struct descriptor *d = descriptor;

    (void)kind;
    PLANT();
    *n = 1;
    if (!d->is_final)
        return refuse(UNFINISHED, "a descriptor that is not finalized");
    if (name == CUDNN_ATTR_HEURISTIC_RESULTS)
        return give_configs(d, n_wanted, n, elems);
    if (name == CUDNN_ATTR_PLAN_WORKSPACE)
        *(int64_t *)elems = d->number < n_refuse + n_greedy ? (int64_t)1 << 50 : 256;
    else if (name == CUDNN_ATTR_CONFIG_ENGINE)
        (*(struct descriptor **)elems)->number = d->number, (*(struct descriptor **)elems)->is_final = true;
    else if (name == CUDNN_ATTR_ENGINE_INDEX)
        *(int64_t *)elems = d->number;
    else
        return refuse(BAD, "an attribute that is not here");
    return CUDNN_OK;
}

/* False: a tensor that is in memory was not named. */
static bool bind_memory(struct program *program, const struct descriptor *pack)
{
    const struct attribute *uids = find(pack, CUDNN_ATTR_PACK_UIDS),
                           *pointers = find(pack, CUDNN_ATTR_PACK_POINTERS);

    for (int i = 0; i < program->n_tensors; i++) {
        struct tensor *tensor = &program->tensors[i];

        for (int64_t u = 0; u < uids->n; u++)
            if (((const int64_t *)uids->elems)[u] == tensor->uid)
                tensor->memory = ((void *const *)pointers->elems)[u];
        if (!tensor->within && tensor->memory == NULL)
            return false;
    }
    return true;
}

EXPORT int cudnnBackendExecute(struct cudnn_handle *handle, cudnn_descriptor plan, cudnn_descriptor pack)
{
    const struct descriptor *d = plan, *bound = pack;
    struct program *program;

    PLANT();
    if (!d->is_final || !bound->is_final)
        return refuse(UNFINISHED, "a descriptor that is not finalized");
    program = malloc(sizeof *program);
    *program = *d->program;
    if (!bind_memory(program, bound)) {
        free(program);
        return refuse(BAD, "a tensor without memory");
    }
    for (int i = 0; i < program->n_tensors; i++) {
        struct tensor *tensor = &program->tensors[i];

        if (tensor->by_value) {
            tensor->values = malloc(sizeof(float));
            tensor->values[0] = *(const float *)tensor->memory;
        }
    }
    say("run", program);
    return emulated_queue((cudaStream_t)handle->stream, run_program, &program, sizeof program) == cudaSuccess
               ? CUDNN_OK
               : refuse(BAD, "the queue takes nothing");
}

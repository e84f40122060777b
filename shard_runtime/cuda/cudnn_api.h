/*
 * What is used of cuDNN's graph API (9.16 and later), by prototypes of our own: it is opened by name at run time, so that the plug-in
 * builds where its header is not, and starts where its library is not. Where the header is, the two are held against each other
 * (cudnn_check.c).
 */
#ifndef CUDA_CUDNN_API_H
#define CUDA_CUDNN_API_H

#include <stddef.h>
#include <stdint.h>

struct CUstream_st;
struct cudnn_handle;

typedef void *cudnn_descriptor;

/* Earlier ones need a mask of padding where positions are no multiple of 128, says NVIDIA's front end, which adds one there; and
 * some of them have other faults. */
enum { CUDNN_OK = 0, CUDNN_FIRST_VERSION = 91600 };

/* Statuses that are no refusal: the last, and all behind it. */
enum { CUDNN_NO_HOST_MEMORY = 4003, CUDNN_NO_DEVICE_MEMORY = 4004, CUDNN_FAILED_EXECUTION = 5000 };

enum cudnn_data { CUDNN_F32 = 0, CUDNN_I32 = 4, CUDNN_BF16 = 9, CUDNN_BOOL = 11 };

/* How an attribute's elements are to be read. */
enum cudnn_kind {
    CUDNN_KIND_HANDLE = 0,
    CUDNN_KIND_DATA = 1,
    CUDNN_KIND_BOOL = 2,
    CUDNN_KIND_I64 = 3,
    CUDNN_KIND_POINTER = 6,
    CUDNN_KIND_HEURISTIC = 8,
    CUDNN_KIND_POINTWISE = 14,
    CUDNN_KIND_DESCRIPTOR = 15,
    CUDNN_KIND_REDUCTION = 18,
    CUDNN_KIND_CHAR = 24,
};

enum cudnn_object {
    CUDNN_POINTWISE = 0,
    CUDNN_ENGINE = 2,
    CUDNN_ENGINE_CONFIG = 3,
    CUDNN_HEURISTIC = 4,
    CUDNN_PLAN = 5,
    CUDNN_OP_POINTWISE = 13,
    CUDNN_OP_GRAPH = 15,
    CUDNN_VARIANT_PACK = 16,
    CUDNN_TENSOR = 17,
    CUDNN_MATMUL = 18,
    CUDNN_OP_MATMUL = 19,
    CUDNN_REDUCTION = 21,
    CUDNN_OP_REDUCTION = 22,
    CUDNN_OP_RESHAPE = 31,
    CUDNN_DEVICE = 38,
};

enum cudnn_attribute {
    CUDNN_ATTR_MODE = 0, /* of a pointwise */
    CUDNN_ATTR_PRECISION = 1,
    CUDNN_ATTR_AXIS = 9,
    CUDNN_ATTR_HEURISTIC_MODE = 200,
    CUDNN_ATTR_HEURISTIC_GRAPH = 201,
    CUDNN_ATTR_HEURISTIC_RESULTS = 202,
    CUDNN_ATTR_HEURISTIC_DEVICE = 204,
    CUDNN_ATTR_CONFIG_ENGINE = 300,
    CUDNN_ATTR_PLAN_HANDLE = 400,
    CUDNN_ATTR_PLAN_CONFIG = 401,
    CUDNN_ATTR_PLAN_WORKSPACE = 402,
    CUDNN_ATTR_PLAN_DEVICE = 407,
    CUDNN_ATTR_POINTWISE_DESC = 750,
    CUDNN_ATTR_POINTWISE_X = 751,
    CUDNN_ATTR_POINTWISE_B = 752,
    CUDNN_ATTR_POINTWISE_Y = 753,
    CUDNN_ATTR_POINTWISE_T = 758,
    CUDNN_ATTR_GRAPH_HANDLE = 800,
    CUDNN_ATTR_GRAPH_OPS = 801,
    CUDNN_ATTR_ALIGNMENT = 900,
    CUDNN_ATTR_DATA = 901,
    CUDNN_ATTR_DIMENSIONS = 902,
    CUDNN_ATTR_STRIDES = 903,
    CUDNN_ATTR_UID = 906,
    CUDNN_ATTR_VIRTUAL = 907,
    CUDNN_ATTR_BY_VALUE = 908,
    CUDNN_ATTR_PACK_UIDS = 1000,
    CUDNN_ATTR_PACK_POINTERS = 1001,
    CUDNN_ATTR_PACK_WORKSPACE = 1003,
    CUDNN_ATTR_ENGINE_INDEX = 1301,
    CUDNN_ATTR_MATMUL_PRECISION = 1500,
    CUDNN_ATTR_MATMUL_A = 1520,
    CUDNN_ATTR_MATMUL_B = 1521,
    CUDNN_ATTR_MATMUL_C = 1522,
    CUDNN_ATTR_MATMUL_DESC = 1523,
    CUDNN_ATTR_REDUCTION_MODE = 1600,
    CUDNN_ATTR_REDUCTION_PRECISION = 1601,
    CUDNN_ATTR_REDUCTION_X = 1610,
    CUDNN_ATTR_REDUCTION_Y = 1611,
    CUDNN_ATTR_REDUCTION_DESC = 1612,
    CUDNN_ATTR_RESHAPE_X = 2200,
    CUDNN_ATTR_RESHAPE_Y = 2201,
    CUDNN_ATTR_DEVICE_JSON = 2702,
};

/* Modes of a pointwise, of a reduction, of a heuristic. */
enum cudnn_pointwise {
    CUDNN_ADD = 0,
    CUDNN_MUL = 1,
    CUDNN_DIV = 6,
    CUDNN_SUB = 9,
    CUDNN_EXP = 13,
    CUDNN_LOG = 15,
    CUDNN_IDENTITY = 21,
    CUDNN_GREATER_EQUAL = 303,
    CUDNN_INDEX = 501,
    CUDNN_SELECT = 601, /* y = t ? x : b */
};
enum cudnn_reduction { CUDNN_SUM = 0, CUDNN_LARGEST = 3 };
enum { CUDNN_HEURISTIC_FALLBACK = 2, CUDNN_HEURISTIC_A = 3 };

struct cudnn_api {
    size_t (*GetVersion)(void);
    const char *(*GetErrorString)(int status);
    void (*GetLastErrorString)(char *words, size_t size_bytes);
    int (*Create)(struct cudnn_handle **out);
    int (*Destroy)(struct cudnn_handle *handle);
    int (*SetStream)(struct cudnn_handle *handle, struct CUstream_st *stream);
    int (*BackendCreateDescriptor)(enum cudnn_object object, cudnn_descriptor *out);
    int (*BackendDestroyDescriptor)(cudnn_descriptor descriptor);
    int (*BackendSetAttribute)(cudnn_descriptor descriptor, enum cudnn_attribute name, enum cudnn_kind kind,
                               int64_t n_elems, const void *elems);
    int (*BackendGetAttribute)(const cudnn_descriptor descriptor, enum cudnn_attribute name,
                               enum cudnn_kind kind, int64_t n_wanted, int64_t *n_elems, void *elems);
    int (*BackendFinalize)(cudnn_descriptor descriptor);
    int (*BackendExecute)(struct cudnn_handle *handle, cudnn_descriptor plan, cudnn_descriptor pack);
};

/* Their names, each with "cudnn" before it in the library. */
#define CUDNN_FUNCTIONS(X)                                                                                   \
    X(GetVersion)                                                                                            \
    X(GetErrorString)                                                                                        \
    X(GetLastErrorString)                                                                                    \
    X(Create)                                                                                                \
    X(Destroy)                                                                                               \
    X(SetStream)                                                                                             \
    X(BackendCreateDescriptor)                                                                               \
    X(BackendDestroyDescriptor)                                                                              \
    X(BackendSetAttribute)                                                                                   \
    X(BackendGetAttribute)                                                                                   \
    X(BackendFinalize)                                                                                       \
    X(BackendExecute)

#endif

/*
 * The part of cuDNN's graph API (9.16 and later) that is used, by prototypes of our own. The library is
 * opened by name at run time. So the plug-in builds without cuDNN's header, and starts without its library.
 * If the header is there, cudnn_check.c compares both.
 */
#ifndef CUDA_CUDNN_API_H
#define CUDA_CUDNN_API_H

#include <stddef.h>
#include <stdint.h>

#include "shard_runtime/cuda/must_check.h"

struct CUstream_st;
struct cudnn_handle;

typedef void *cudnn_descriptor;

/*
 * Earlier versions need a mask for padding if the number of positions is no multiple of 128; NVIDIA's front
 * end adds one there. Some of them have other faults.
 */
enum { CUDNN_FIRST_VERSION = 91600 };

/*
 * The library's numbers: our name, the number, and the name in its header, with which cudnn_check.c compares
 * it.
 */
#define CUDNN_NUMBER(ours, number, theirs) ours = number,

/*
 * The library's statuses. The last three are failures, not refusals, and so is every status from the last one
 * on.
 */
#define CUDNN_STATUSES(X)                                                                                    \
    X(CUDNN_OK, 0, CUDNN_STATUS_SUCCESS)                                                                     \
    X(CUDNN_NO_HOST_MEMORY, 4003, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED)                        \
    X(CUDNN_NO_DEVICE_MEMORY, 4004, CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED)                    \
    X(CUDNN_FAILED_EXECUTION, 5000, CUDNN_STATUS_EXECUTION_FAILED)
enum { CUDNN_STATUSES(CUDNN_NUMBER) };

#define CUDNN_DATA_TYPES(X)                                                                                  \
    X(CUDNN_F32, 0, CUDNN_DATA_FLOAT)                                                                        \
    X(CUDNN_I32, 4, CUDNN_DATA_INT32)                                                                        \
    X(CUDNN_BF16, 9, CUDNN_DATA_BFLOAT16)                                                                    \
    X(CUDNN_BOOL, 11, CUDNN_DATA_BOOLEAN)
enum cudnn_data { CUDNN_DATA_TYPES(CUDNN_NUMBER) };

/* The type of an attribute's elements. */
#define CUDNN_KINDS(X)                                                                                       \
    X(CUDNN_KIND_HANDLE, 0, CUDNN_TYPE_HANDLE)                                                               \
    X(CUDNN_KIND_DATA, 1, CUDNN_TYPE_DATA_TYPE)                                                              \
    X(CUDNN_KIND_BOOL, 2, CUDNN_TYPE_BOOLEAN)                                                                \
    X(CUDNN_KIND_I64, 3, CUDNN_TYPE_INT64)                                                                   \
    X(CUDNN_KIND_POINTER, 6, CUDNN_TYPE_VOID_PTR)                                                            \
    X(CUDNN_KIND_HEURISTIC, 8, CUDNN_TYPE_HEUR_MODE)                                                         \
    X(CUDNN_KIND_POINTWISE, 14, CUDNN_TYPE_POINTWISE_MODE)                                                   \
    X(CUDNN_KIND_DESCRIPTOR, 15, CUDNN_TYPE_BACKEND_DESCRIPTOR)                                              \
    X(CUDNN_KIND_REDUCTION, 18, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE)                                          \
    X(CUDNN_KIND_CHAR, 24, CUDNN_TYPE_CHAR)
enum cudnn_kind { CUDNN_KINDS(CUDNN_NUMBER) };

#define CUDNN_OBJECTS(X)                                                                                     \
    X(CUDNN_POINTWISE, 0, CUDNN_BACKEND_POINTWISE_DESCRIPTOR)                                                \
    X(CUDNN_ENGINE, 2, CUDNN_BACKEND_ENGINE_DESCRIPTOR)                                                      \
    X(CUDNN_ENGINE_CONFIG, 3, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)                                            \
    X(CUDNN_HEURISTIC, 4, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR)                                               \
    X(CUDNN_PLAN, 5, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)                                                \
    X(CUDNN_OP_POINTWISE, 13, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR)                                  \
    X(CUDNN_OP_GRAPH, 15, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)                                           \
    X(CUDNN_VARIANT_PACK, 16, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR)                                         \
    X(CUDNN_TENSOR, 17, CUDNN_BACKEND_TENSOR_DESCRIPTOR)                                                     \
    X(CUDNN_MATMUL, 18, CUDNN_BACKEND_MATMUL_DESCRIPTOR)                                                     \
    X(CUDNN_OP_MATMUL, 19, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR)                                        \
    X(CUDNN_REDUCTION, 21, CUDNN_BACKEND_REDUCTION_DESCRIPTOR)                                               \
    X(CUDNN_OP_REDUCTION, 22, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR)                                  \
    X(CUDNN_OP_RESHAPE, 31, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
enum cudnn_object { CUDNN_OBJECTS(CUDNN_NUMBER) CUDNN_DEVICE = 38 };

#define CUDNN_ATTRIBUTES(X)                                                                                  \
    X(CUDNN_ATTR_MODE, 0, CUDNN_ATTR_POINTWISE_MODE)                                                         \
    X(CUDNN_ATTR_PRECISION, 1, CUDNN_ATTR_POINTWISE_MATH_PREC)                                               \
    X(CUDNN_ATTR_AXIS, 9, CUDNN_ATTR_POINTWISE_AXIS)                                                         \
    X(CUDNN_ATTR_HEURISTIC_MODE, 200, CUDNN_ATTR_ENGINEHEUR_MODE)                                            \
    X(CUDNN_ATTR_HEURISTIC_GRAPH, 201, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH)                                \
    X(CUDNN_ATTR_HEURISTIC_RESULTS, 202, CUDNN_ATTR_ENGINEHEUR_RESULTS)                                      \
    X(CUDNN_ATTR_CONFIG_ENGINE, 300, CUDNN_ATTR_ENGINECFG_ENGINE)                                            \
    X(CUDNN_ATTR_PLAN_HANDLE, 400, 400)                                                                      \
    X(CUDNN_ATTR_PLAN_CONFIG, 401, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)                                  \
    X(CUDNN_ATTR_PLAN_WORKSPACE, 402, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE)                              \
    X(CUDNN_ATTR_POINTWISE_DESC, 750, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR)                          \
    X(CUDNN_ATTR_POINTWISE_X, 751, CUDNN_ATTR_OPERATION_POINTWISE_XDESC)                                     \
    X(CUDNN_ATTR_POINTWISE_B, 752, CUDNN_ATTR_OPERATION_POINTWISE_BDESC)                                     \
    X(CUDNN_ATTR_POINTWISE_Y, 753, CUDNN_ATTR_OPERATION_POINTWISE_YDESC)                                     \
    X(CUDNN_ATTR_POINTWISE_T, 758, CUDNN_ATTR_OPERATION_POINTWISE_TDESC)                                     \
    X(CUDNN_ATTR_GRAPH_HANDLE, 800, 800)                                                                     \
    X(CUDNN_ATTR_GRAPH_OPS, 801, CUDNN_ATTR_OPERATIONGRAPH_OPS)                                              \
    X(CUDNN_ATTR_ALIGNMENT, 900, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT)                                           \
    X(CUDNN_ATTR_DATA, 901, CUDNN_ATTR_TENSOR_DATA_TYPE)                                                     \
    X(CUDNN_ATTR_DIMENSIONS, 902, CUDNN_ATTR_TENSOR_DIMENSIONS)                                              \
    X(CUDNN_ATTR_STRIDES, 903, CUDNN_ATTR_TENSOR_STRIDES)                                                    \
    X(CUDNN_ATTR_UID, 906, CUDNN_ATTR_TENSOR_UNIQUE_ID)                                                      \
    X(CUDNN_ATTR_VIRTUAL, 907, CUDNN_ATTR_TENSOR_IS_VIRTUAL)                                                 \
    X(CUDNN_ATTR_BY_VALUE, 908, CUDNN_ATTR_TENSOR_IS_BY_VALUE)                                               \
    X(CUDNN_ATTR_PACK_UIDS, 1000, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)                                        \
    X(CUDNN_ATTR_PACK_POINTERS, 1001, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)                                 \
    X(CUDNN_ATTR_PACK_WORKSPACE, 1003, CUDNN_ATTR_VARIANT_PACK_WORKSPACE)                                    \
    X(CUDNN_ATTR_ENGINE_INDEX, 1301, CUDNN_ATTR_ENGINE_GLOBAL_INDEX)                                         \
    X(CUDNN_ATTR_MATMUL_PRECISION, 1500, CUDNN_ATTR_MATMUL_COMP_TYPE)                                        \
    X(CUDNN_ATTR_MATMUL_A, 1520, CUDNN_ATTR_OPERATION_MATMUL_ADESC)                                          \
    X(CUDNN_ATTR_MATMUL_B, 1521, CUDNN_ATTR_OPERATION_MATMUL_BDESC)                                          \
    X(CUDNN_ATTR_MATMUL_C, 1522, CUDNN_ATTR_OPERATION_MATMUL_CDESC)                                          \
    X(CUDNN_ATTR_MATMUL_DESC, 1523, CUDNN_ATTR_OPERATION_MATMUL_DESC)                                        \
    X(CUDNN_ATTR_REDUCTION_MODE, 1600, CUDNN_ATTR_REDUCTION_OPERATOR)                                        \
    X(CUDNN_ATTR_REDUCTION_PRECISION, 1601, CUDNN_ATTR_REDUCTION_COMP_TYPE)                                  \
    X(CUDNN_ATTR_REDUCTION_X, 1610, CUDNN_ATTR_OPERATION_REDUCTION_XDESC)                                    \
    X(CUDNN_ATTR_REDUCTION_Y, 1611, CUDNN_ATTR_OPERATION_REDUCTION_YDESC)                                    \
    X(CUDNN_ATTR_REDUCTION_DESC, 1612, CUDNN_ATTR_OPERATION_REDUCTION_DESC)                                  \
    X(CUDNN_ATTR_RESHAPE_X, 2200, CUDNN_ATTR_OPERATION_RESHAPE_XDESC)                                        \
    X(CUDNN_ATTR_RESHAPE_Y, 2201, CUDNN_ATTR_OPERATION_RESHAPE_YDESC)
enum cudnn_attribute {
    CUDNN_ATTRIBUTES(CUDNN_NUMBER) CUDNN_ATTR_HEURISTIC_DEVICE = 204,
    CUDNN_ATTR_PLAN_DEVICE = 407,
    CUDNN_ATTR_DEVICE_JSON = 2702
};
/* Modes of a pointwise operation (CUDNN_SELECT: y = t ? x : b), of a reduction, and of a heuristic. */
#define CUDNN_POINTWISE_MODES(X)                                                                             \
    X(CUDNN_ADD, 0, CUDNN_POINTWISE_ADD)                                                                     \
    X(CUDNN_MUL, 1, CUDNN_POINTWISE_MUL)                                                                     \
    X(CUDNN_DIV, 6, CUDNN_POINTWISE_DIV)                                                                     \
    X(CUDNN_SUB, 9, CUDNN_POINTWISE_SUB)                                                                     \
    X(CUDNN_EXP, 13, CUDNN_POINTWISE_EXP)                                                                    \
    X(CUDNN_LOG, 15, CUDNN_POINTWISE_LOG)                                                                    \
    X(CUDNN_IDENTITY, 21, CUDNN_POINTWISE_IDENTITY)                                                          \
    X(CUDNN_GREATER_EQUAL, 303, CUDNN_POINTWISE_CMP_GE)                                                      \
    X(CUDNN_INDEX, 501, CUDNN_POINTWISE_GEN_INDEX)                                                           \
    X(CUDNN_SELECT, 601, CUDNN_POINTWISE_BINARY_SELECT)
enum cudnn_pointwise { CUDNN_POINTWISE_MODES(CUDNN_NUMBER) };

#define CUDNN_REDUCTION_MODES(X)                                                                             \
    X(CUDNN_SUM, 0, CUDNN_REDUCE_TENSOR_ADD)                                                                 \
    X(CUDNN_LARGEST, 3, CUDNN_REDUCE_TENSOR_MAX)
enum cudnn_reduction { CUDNN_REDUCTION_MODES(CUDNN_NUMBER) };

#define CUDNN_HEURISTIC_MODES(X)                                                                             \
    X(CUDNN_HEURISTIC_FALLBACK, 2, CUDNN_HEUR_MODE_FALLBACK)                                                 \
    X(CUDNN_HEURISTIC_A, 3, CUDNN_HEUR_MODE_A)
enum { CUDNN_HEURISTIC_MODES(CUDNN_NUMBER) };

/* The functions that are used: result, name and arguments. In the library each name begins with "cudnn". */
#define CUDNN_FUNCTIONS(X)                                                                                   \
    X(size_t, GetVersion, (void))                                                                            \
    X(const char *, GetErrorString, (int status))                                                            \
    X(void, GetLastErrorString, (char *words, size_t size_bytes))                                            \
    X(MUST_CHECK int, Create, (struct cudnn_handle * *out))                                                  \
    X(MUST_CHECK int, Destroy, (struct cudnn_handle * handle))                                               \
    X(MUST_CHECK int, SetStream, (struct cudnn_handle * handle, struct CUstream_st * stream))                \
    X(MUST_CHECK int, BackendCreateDescriptor, (enum cudnn_object object, cudnn_descriptor * out))           \
    X(MUST_CHECK int, BackendDestroyDescriptor, (cudnn_descriptor descriptor))                               \
    X(MUST_CHECK int, BackendSetAttribute,                                                                   \
      (cudnn_descriptor descriptor, enum cudnn_attribute name, enum cudnn_kind kind, int64_t n_elems,        \
       const void *elems))                                                                                   \
    X(MUST_CHECK int, BackendGetAttribute,                                                                   \
      (const cudnn_descriptor descriptor, enum cudnn_attribute name, enum cudnn_kind kind, int64_t n_wanted, \
       int64_t *n_elems, void *elems))                                                                       \
    X(MUST_CHECK int, BackendFinalize, (cudnn_descriptor descriptor))                                        \
    X(MUST_CHECK int, BackendExecute,                                                                        \
      (struct cudnn_handle * handle, cudnn_descriptor plan, cudnn_descriptor pack))

#define CUDNN_MEMBER(result, name, arguments) result(*name) arguments;

struct cudnn_api {
    CUDNN_FUNCTIONS(CUDNN_MEMBER)
};

#endif

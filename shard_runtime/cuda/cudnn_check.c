/* Compares our numbers and prototypes of cuDNN's graph API with its own header, if that is found. */
#include "shard_runtime/cuda/cudnn_api.h"

#include <cuda_runtime_api.h>

#if defined(CUDART_VERSION) && __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>

#define SAME(ours, number, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs);
CUDNN_STATUSES(SAME)
CUDNN_DATA_TYPES(SAME)
CUDNN_KINDS(SAME)
CUDNN_OBJECTS(SAME)
CUDNN_ATTRIBUTES(SAME)
CUDNN_POINTWISE_MODES(SAME)
CUDNN_REDUCTION_MODES(SAME)
CUDNN_HEURISTIC_MODES(SAME)
#if CUDNN_VERSION >= 90800 /* checked, because the header that is found may be older than the library */
SAME(CUDNN_DEVICE, 0, CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR)
SAME(CUDNN_ATTR_HEURISTIC_DEVICE, 0, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP)
SAME(CUDNN_ATTR_PLAN_DEVICE, 0, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP)
SAME(CUDNN_ATTR_DEVICE_JSON, 0, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION)
#endif

/* The prototypes of the header that ours were written after. */
#define IS(function, result, ...)                                                                            \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), result(__VA_ARGS__)),                  \
                   #function " has other arguments")
IS(cudnnGetVersion, size_t, void);
IS(cudnnGetErrorString, const char *, cudnnStatus_t);
IS(cudnnGetLastErrorString, void, char *, size_t);
IS(cudnnCreate, cudnnStatus_t, cudnnHandle_t *);
IS(cudnnDestroy, cudnnStatus_t, cudnnHandle_t);
IS(cudnnSetStream, cudnnStatus_t, cudnnHandle_t, cudaStream_t);
IS(cudnnBackendCreateDescriptor, cudnnStatus_t, cudnnBackendDescriptorType_t, cudnnBackendDescriptor_t *);
IS(cudnnBackendDestroyDescriptor, cudnnStatus_t, cudnnBackendDescriptor_t);
IS(cudnnBackendSetAttribute, cudnnStatus_t, cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
   cudnnBackendAttributeType_t, int64_t, const void *);
IS(cudnnBackendGetAttribute, cudnnStatus_t, cudnnBackendDescriptor_t const, cudnnBackendAttributeName_t,
   cudnnBackendAttributeType_t, int64_t, int64_t *, void *);
IS(cudnnBackendFinalize, cudnnStatus_t, cudnnBackendDescriptor_t);
IS(cudnnBackendExecute, cudnnStatus_t, cudnnHandle_t, cudnnBackendDescriptor_t, cudnnBackendDescriptor_t);
#endif

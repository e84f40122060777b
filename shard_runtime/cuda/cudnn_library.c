#include "shard_runtime/cuda/cudnn_library.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Static, because a library is loaded once for the process and never closed. */
static struct cudnn_api cudnn;
static size_t cudnn_version;

enum fsdp_status cudnn_open_library(const struct cudnn_api **out, struct fsdp_err *err)
{
    const char *wanted = getenv("FSDP_CUDNN_LIBRARY");
    const char *name = wanted != NULL && wanted[0] != '\0' ? wanted : "libcudnn.so.9";
    struct cudnn_api found = { 0 };
    void *library;
    size_t version;

    *out = &cudnn;
    if (cudnn_version != 0)
        return FSDP_OK;
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "cuDNN: %s", dlerror());
#define FIND(result, function, arguments)                                                                    \
    *(void **)(&found.function) = dlsym(library, "cudnn" #function);                                         \
    if (found.function == NULL)                                                                              \
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "cuDNN: %s has no cudnn" #function, name);
    CUDNN_FUNCTIONS(FIND)
#undef FIND
    version = found.GetVersion();
    if (version < CUDNN_FIRST_VERSION)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "cuDNN: %s is version %zu: at least %d is needed", name,
                         version, CUDNN_FIRST_VERSION);
    cudnn = found;
    cudnn_version = version;
    return FSDP_OK;
}

/*
 * Opens NCCL by name: FSDP_NCCL_LIBRARY, else libnccl.so.2, so that a site chooses its build. The NCCL_*
 * variables belong to NCCL; nothing here reads or sets one. (NCCL_MULTI_RANK_GPU_ENABLE is read where
 * collectives are chosen.)
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/cuda/nccl_impl.h"

/* Static, because a library is loaded once for the process and never closed. */
struct nccl_api nccl;
static int nccl_version;

enum fsdp_status nccl_open_library(const struct cuda_device *device, struct fsdp_err *err)
{
    const char *wanted = getenv("FSDP_NCCL_LIBRARY");
    const char *name = wanted != NULL && wanted[0] != '\0' ? wanted : "libnccl.so.2";
    struct nccl_api found = { 0 };
    enum nccl_result result;
    void *library;
    int version = 0;

    if (nccl_version != 0)
        return FSDP_OK;
    library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "collectives nccl: %s", dlerror());
#define FIND(type, function, arguments)                                                                      \
    *(void **)(&found.function) = dlsym(library, "nccl" #function);                                          \
    if (found.function == NULL)                                                                              \
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "collectives nccl: %s has no nccl" #function, name);
    NCCL_FUNCTIONS(FIND)
#undef FIND
#define FIND(type, function, arguments) *(void **)(&found.function) = dlsym(library, "nccl" #function);
    NCCL_OPTIONAL_FUNCTIONS(FIND)
#undef FIND
    result = found.GetVersion(&version);
    nccl = found; /* set before the check, because the words for a failure are among the functions */
    if (result != NCCL_SUCCESS)
        return nccl_call_failed(device, result, "ncclGetVersion", __FILE__, __LINE__, err);
    if (version < 21800)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "collectives nccl: %s is version %d: at least 2.18 is needed", name, version);
    nccl_version = version;
    return FSDP_OK;
}

void nccl_describe(char *buffer, size_t size)
{
    snprintf(buffer, size, "NCCL %d.%d.%d", nccl_version / 10000, nccl_version / 100 % 100,
             nccl_version % 100);
}

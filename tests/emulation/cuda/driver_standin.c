/*
 * A CUDA driver (libcuda.so.1) without a device, in which modules can be put all the same: every one is taken
 * and nothing ever runs. cuDNN compiles engines for a GPU that it was only told about, and needs a driver to
 * hand the result to.
 */
#include <stddef.h>

/* cuDNN finds these by name: no header declares them. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

enum { SUCCESS = 0, NO_DEVICE = 100 };

static char something;

/* What the library looks for and, without a device, has no use for. */
#define REFUSED(X)                                                                                           \
    X(cuCtxGetCurrent)                                                                                       \
    X(cuCtxGetLimit)                                                                                         \
    X(cuCtxPopCurrent)                                                                                       \
    X(cuCtxPushCurrent)                                                                                      \
    X(cuDeviceGet)                                                                                           \
    X(cuInit)                                                                                                \
    X(cuKernelGetAttribute)                                                                                  \
    X(cuKernelSetAttribute)                                                                                  \
    X(cuLaunchCooperativeKernel)                                                                             \
    X(cuLaunchKernel)                                                                                        \
    X(cuLaunchKernelEx)                                                                                      \
    X(cuLibraryLoadFromFile)                                                                                 \
    X(cuLinkAddData)                                                                                         \
    X(cuLinkComplete)                                                                                        \
    X(cuLinkCreate)                                                                                          \
    X(cuLinkDestroy)                                                                                         \
    X(cuOccupancyMaxPotentialClusterSize)                                                                    \
    X(cuStreamGetCtx)

#define REFUSE(function)                                                                                     \
    int function(void)                                                                                       \
    {                                                                                                        \
        return NO_DEVICE;                                                                                    \
    }
REFUSED(REFUSE)

int cuLibraryUnload(void)
{
    return SUCCESS;
}

int cuDeviceGetCount(int *count)
{
    *count = 0;
    return NO_DEVICE;
}

int cuDriverGetVersion(int *version)
{
    *version = 13000;
    return SUCCESS;
}

int cuGetErrorString(int error, const char **words)
{
    *words = error == SUCCESS ? "no error" : "no device";
    return SUCCESS;
}

int cuGetErrorName(int error, const char **words)
{
    return cuGetErrorString(error, words);
}

/* The arguments after these are of no use here. */
int cuLibraryLoadData(void **library, const void *code)
{
    *library = &something;
    return code != NULL ? SUCCESS : NO_DEVICE;
}

int cuLibraryGetKernel(void **kernel)
{
    *kernel = &something;
    return SUCCESS;
}

int cuKernelGetFunction(void **function)
{
    *function = &something;
    return SUCCESS;
}

/*
 * A CUDA driver (libcuda.so.1) without a device, in which modules can be put all the same: every one is taken and nothing ever runs.
 * cuDNN compiles engines for a GPU that it was only told about, and needs a driver to hand the result to.
 */
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

enum { SUCCESS = 0, NO_DEVICE = 100 };

static char something;

/* What the library looks for and, without a device, has no use for. */
#define REFUSED(X)                                                                                           \
    X(cuCtxGetCurrent)                                                                                       \
    X(cuCtxGetLimit)                                                                                         \
    X(cuCtxPopCurrent)                                                                                       \
    X(cuCtxPushCurrent)                                                                                      \
    X(cuDeviceGet)                                                                                           \
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
    EXPORT int function(void);                                                                               \
    int function(void)                                                                                       \
    {                                                                                                        \
        return NO_DEVICE;                                                                                    \
    }
REFUSED(REFUSE)

EXPORT int cuInit(unsigned flags);
EXPORT int cuDeviceGetCount(int *count);
EXPORT int cuDriverGetVersion(int *version);
EXPORT int cuGetErrorString(int error, const char **words);
EXPORT int cuGetErrorName(int error, const char **words);
EXPORT int cuLibraryLoadData(void **library, const void *code, void *options, void **option_values,
                             unsigned n_options, void *more, void **more_values, unsigned n_more);
EXPORT int cuLibraryUnload(void *library);
EXPORT int cuLibraryGetKernel(void **kernel, void *library, const char *name);
EXPORT int cuKernelGetFunction(void **function, void *kernel);

int cuInit(unsigned flags)
{
    (void)flags;
    return NO_DEVICE;
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

int cuLibraryLoadData(void **library, const void *code, void *options, void **option_values,
                      unsigned n_options, void *more, void **more_values, unsigned n_more)
{
    (void)options, (void)option_values, (void)n_options, (void)more, (void)more_values, (void)n_more;
    *library = &something;
    return code != NULL ? SUCCESS : NO_DEVICE;
}

int cuLibraryUnload(void *library)
{
    (void)library;
    return SUCCESS;
}

int cuLibraryGetKernel(void **kernel, void *library, const char *name)
{
    (void)library, (void)name;
    *kernel = &something;
    return SUCCESS;
}

int cuKernelGetFunction(void **function, void *kernel)
{
    (void)kernel;
    *function = &something;
    return SUCCESS;
}

#include "agent/arbiter/curl_library.h"

#include <dlfcn.h>

#include "shard_runtime/core/library.h"

static const char file[] = "libcurl.so.4"; /* the same since 2006 */

static const struct library_function functions[] = {
#define FUNCTION(name) { #name, offsetof(struct curl_library, name) },
    CURL_LIBRARY_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

enum fsdp_status curl_library_open(const struct curl_library **library, struct fsdp_err *err)
{
    static struct curl_library opened;
    static void *handle;
    const char *missing;

    *library = NULL;
    if (handle == NULL)
        handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "etcd needs libcurl (Debian: libcurl4): %.160s",
                         dlerror());
    missing = library_look_up(handle, &opened, functions, sizeof functions / sizeof *functions);
    if (missing != NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s has no %s", file, missing);
    if (opened.curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s cannot be used: its start failed", file);
    *library = &opened;
    return FSDP_OK;
}

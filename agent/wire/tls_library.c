#include "agent/wire/tls_library.h"

#include <dlfcn.h>

#include "shard_runtime/core/library.h"

#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)

static const char file[] = "libssl.so." TEXT(OPENSSL_SHLIB_VERSION);

static const struct library_function functions[] = {
#define FUNCTION(name) { #name, offsetof(struct tls_library, name) },
    TLS_LIBRARY_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

enum fsdp_status tls_library_open(const struct tls_library **library, struct fsdp_err *err)
{
    static struct tls_library opened;
    static void *handle;
    const char *missing;

    *library = NULL;
    if (handle == NULL)
        handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "a secret needs OpenSSL (Debian: libssl3): %.160s",
                         dlerror());
    /* The search includes functions of libcrypto, because libssl depends on it. */
    missing = library_look_up(handle, &opened, functions, sizeof functions / sizeof *functions);
    if (missing != NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s has no %s", file, missing);
    *library = &opened;
    return FSDP_OK;
}

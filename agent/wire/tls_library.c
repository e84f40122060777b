#include "agent/wire/tls_library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define TEXT_OF(number) #number
#define TEXT(number)    TEXT_OF(number)

static const char file[] = "libssl.so." TEXT(OPENSSL_SHLIB_VERSION);

static const struct {
    const char *name;
    size_t at;
} functions[] = {
#define FUNCTION(name) { #name, offsetof(struct tls_library, name) },
    TLS_LIBRARY_FUNCTIONS(FUNCTION)
#undef FUNCTION
};

enum fsdp_status tls_library_open(const struct tls_library **library, struct fsdp_err *err)
{
    static struct tls_library opened;
    static void *handle;

    *library = NULL;
    if (handle == NULL)
        handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "a secret needs OpenSSL (Debian: libssl3): %.160s",
                         dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        /* this also finds functions of libcrypto, because libssl depends on it */
        void *const function = dlsym(handle, functions[i].name);

        if (function == NULL)
            return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s has no %s", file, functions[i].name);
        /* ISO C has no cast from an object pointer to a function pointer; dlsym(3) */
        memcpy((char *)&opened + functions[i].at, &function, sizeof function);
    }
    *library = &opened;
    return FSDP_OK;
}

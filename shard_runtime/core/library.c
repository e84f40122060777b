#include "shard_runtime/core/library.h"

#include <dlfcn.h>
#include <string.h>

const char *library_look_up(void *library, void *into, const struct library_function *functions, size_t n)
{
    const char *missing = NULL;

    for (size_t i = 0; i < n; i++) {
        void *const function = dlsym(library, functions[i].name);

        if (function == NULL && missing == NULL)
            missing = functions[i].name;
        /* ISO C has no cast from an object pointer to a function pointer; dlsym(3) */
        memcpy((char *)into + functions[i].at, &function, sizeof function);
    }
    return missing;
}

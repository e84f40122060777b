#include "agent/os/environment.h"

#include <stdlib.h>
#include <string.h>

const char *environment_find(char *const *environment, const char *name)
{
    size_t length = strlen(name);

    for (; *environment != NULL; environment++)
        if (strncmp(*environment, name, length) == 0 && (*environment)[length] == '=')
            return *environment + length + 1;
    return NULL;
}

const char *environment_get(void *arg, const char *name)
{
    (void)arg;
    return getenv(name);
}

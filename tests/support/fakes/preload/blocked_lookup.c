/*
 * To be preloaded: getaddrinfo() of a name in ".never" waits for ever, as where no name server answers. With
 * BLOCKED_LOOKUP_FROM set to a file, only once that file exists; before, it is 127.0.0.1.
 */
#include <dlfcn.h>
#include <netdb.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found)
{
    int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    const size_t n = host == NULL ? 0 : strlen(host);
    const char *from = getenv("BLOCKED_LOOKUP_FROM");

    *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    if (n < 6 || strcmp(host + n - 6, ".never") != 0 ||
        (hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0)) /* digits ask nobody */
        return real(host, service, hints, found);
    while (from == NULL || access(from, F_OK) == 0)
        pause();
    return real("127.0.0.1", service, hints, found);
}

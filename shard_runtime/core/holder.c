#include "shard_runtime/core/holder.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

size_t holder_words(char out[HOLDER_BYTES])
{
    char host[256] = "?", since[32];
    const time_t now = time(NULL);
    struct tm tm;

    if (gethostname(host, sizeof host - 1) < 0)
        snprintf(host, sizeof host, "?");
    gmtime_r(&now, &tm);
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return (size_t)snprintf(out, HOLDER_BYTES, "pid %d on %s since %s\n", (int)getpid(), host, since);
}

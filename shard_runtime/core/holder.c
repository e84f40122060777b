#include "shard_runtime/core/holder.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static void name_host(char host[256])
{
    memset(host, 0, 256);
    if (gethostname(host, 255) < 0)
        snprintf(host, 256, "?");
}

size_t holder_words(char out[HOLDER_BYTES])
{
    char host[256], since[32];
    const time_t now = time(NULL);
    struct tm tm;

    name_host(host);
    gmtime_r(&now, &tm);
    strftime(since, sizeof since, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return (size_t)snprintf(out, HOLDER_BYTES, "pid %d on %s since %s\n", (int)getpid(), host, since);
}

bool holder_may_live(const char *words)
{
    char host[256], theirs[256];
    int pid;

    if (sscanf(words, "pid %d on %255s since ", &pid, theirs) != 2 || pid <= 0)
        return false;
    name_host(host);
    return strcmp(host, theirs) != 0 || kill(pid, 0) == 0 || errno != ESRCH;
}

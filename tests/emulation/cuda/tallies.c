/* How much of what was queued: see emulated_tally(). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime_impl.h"

enum { MAX_TALLIES = 512 };

struct tally {
    char what[64];
    uint64_t count;
};

static struct tally tallies[MAX_TALLIES];
static size_t n_tallies;

/* The name within "(name<arguments>)": its place and length. */
static const char *plain_name(const char *what, int *length)
{
    what += what[0] == '(';
    *length = (int)strcspn(what, "<()");
    return what;
}

static struct tally *tally_of(const char *what)
{
    int length;
    const char *name = plain_name(what, &length);

    for (size_t i = 0; i < n_tallies; i++)
        if (strncmp(tallies[i].what, name, (size_t)length) == 0 && tallies[i].what[length] == '\0')
            return &tallies[i];
    if (n_tallies == MAX_TALLIES || (size_t)length >= sizeof tallies->what)
        emulated_die("too many kernels to count, or a name that is too long");
    snprintf(tallies[n_tallies].what, sizeof tallies->what, "%.*s", length, name);
    return &tallies[n_tallies++];
}

void emulated_tally_add(const char *what, uint64_t n)
{
    tally_of(what)->count += n;
}

void emulated_tally(const char *what)
{
    emulated_tally_add(what, 1);
}

uint64_t emulated_tally_of(const char *what)
{
    return tally_of(what)->count;
}

__attribute__((destructor)) static void write_tallies(void)
{
    const char *path = getenv("FSDP_EMULATED_TALLY");
    FILE *file = path != NULL && path[0] != '\0' && n_tallies > 0 ? fopen(path, "a") : NULL;

    if (file == NULL)
        return;
    for (size_t i = 0; i < n_tallies; i++)
        fprintf(file, "%s %llu\n", tallies[i].what, (unsigned long long)tallies[i].count);
    fclose(file);
}

#include "faults.h"

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_BYTES = 96, MAX_NAMES = 256 };

/* What FSDP_EMULATED_FAULT says. */
struct fault {
    bool wanted;
    char name[NAME_BYTES]; /* "": of any name */
    uint64_t number;
    cudaError_t lost; /* cudaSuccess: it fails once */
    bool kills;       /* in place of failing */
};

struct named {
    char name[NAME_BYTES];
    uint64_t n_calls;
};

static struct {
    bool decided;
    struct fault fault;
    FILE *list;
    uint64_t n_calls;
    struct named named[MAX_NAMES];
    size_t n_named;
    cudaError_t lost;
} calls;

static void bad(const char *text)
{
    fprintf(stderr, "emulated device: FSDP_EMULATED_FAULT=%s is no fault\n", text);
    abort();
}

static void read_fault(const char *text, struct fault *fault)
{
    const char *which = text, *at, *end = text + strcspn(text, "!");
    const char *rank = getenv("RANK"), *restarts = getenv("TORCHELASTIC_RESTART_COUNT");
    char *rest;
    const unsigned long own = strtoul(which, &rest, 10);

    /* A rank stands before the first colon; kernels have one in their names too, behind letters. */
    fault->wanted = restarts == NULL || strtoul(restarts, NULL, 10) == 0;
    if (rest != which && *rest == ':') {
        fault->wanted = fault->wanted && own == (rank != NULL ? strtoul(rank, NULL, 10) : 0);
        which = rest + 1;
    }
    at = memchr(which, '#', (size_t)(end - which));
    if (at != NULL)
        snprintf(fault->name, sizeof fault->name, "%.*s", (int)(at - which), which);
    fault->number = strtoull(at != NULL ? at + 1 : which, &rest, 10);
    if (fault->number == 0 || rest != end)
        bad(text);
    if (strcmp(end, "!illegal") == 0)
        fault->lost = cudaErrorIllegalAddress;
    else if (strcmp(end, "!ecc") == 0)
        fault->lost = cudaErrorECCUncorrectable;
    else if (strcmp(end, "!kill") == 0)
        fault->kills = true;
    else if (*end != '\0')
        bad(text);
}

static void decide(void)
{
    const char *fault = getenv("FSDP_EMULATED_FAULT"), *list = getenv("FSDP_EMULATED_CALLS");
    const char *rank = getenv("RANK");
    char path[4096];

    calls.decided = true;
    if (fault != NULL && fault[0] != '\0')
        read_fault(fault, &calls.fault);
    if (list == NULL || list[0] == '\0')
        return;
    snprintf(path, sizeof path, "%s.%s", list, rank != NULL ? rank : "0");
    calls.list = fopen(path, "ae");
    if (calls.list == NULL)
        abort();
    setvbuf(calls.list, NULL, _IOLBF, 0);
}

__attribute__((destructor)) static void close_list(void)
{
    if (calls.list != NULL)
        fclose(calls.list);
}

static uint64_t count(const char *name)
{
    size_t i = 0;

    while (i < calls.n_named && strcmp(calls.named[i].name, name) != 0)
        i++;
    if (i == calls.n_named) {
        if (i == MAX_NAMES || strlen(name) >= NAME_BYTES)
            abort();
        snprintf(calls.named[calls.n_named++].name, NAME_BYTES, "%s", name);
    }
    return ++calls.named[i].n_calls;
}

cudaError_t emulated_host_call(const char *name)
{
    const struct fault *fault = &calls.fault;
    uint64_t of_name;
    bool fails;

    if (!calls.decided)
        decide();
    of_name = count(name);
    calls.n_calls++;
    fails = fault->wanted &&
            (fault->name[0] == '\0' ? calls.n_calls == fault->number
                                    : of_name == fault->number && strcmp(fault->name, name) == 0);
    if (calls.list != NULL)
        fprintf(calls.list, "%s%s\n", name, fails ? " fails" : "");
    if (!fails)
        return cudaSuccess;
    if (fault->kills)
        raise(SIGKILL);
    calls.lost = fault->lost;
    return fault->lost != cudaSuccess ? fault->lost : cudaErrorUnknown;
}

cudaError_t emulated_call(const char *name)
{
    const cudaError_t told = emulated_host_call(name);

    return calls.lost != cudaSuccess ? calls.lost : told;
}

bool emulated_is_lost(void)
{
    return calls.lost != cudaSuccess;
}

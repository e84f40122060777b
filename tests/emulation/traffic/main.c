/*
 * Prints, for each kernel, the bytes that it moves on the emulated device, and the least that it could move.
 * These are comments of a TAP report, whose tests check the bounds. A kernel that seems to move less than the
 * least fails too: then the counter misses accesses. An argument: only the kernels with that in their names.
 * Exit status: 0 where all is within bounds.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/emulation/traffic/cases.h"
#include "tests/emulation/traffic/traffic.h"

/* Address space, of which only what a case touches is memory: a table of 50257 rows is not. */
static const size_t DEVICE_BYTES = (size_t)4 << 30;

static struct {
    char *memory;
    size_t used;
} device;

void *traffic_memory(size_t size_bytes)
{
    char *memory = device.memory + device.used;

    device.used += (size_bytes + 255) / 256 * 256;
    if (device.used > DEVICE_BYTES) {
        fputs("traffic: a case needs more memory than there is\n", stderr);
        exit(1);
    }
    return memory;
}

int32_t *traffic_tokens(size_t n, int32_t (*fill)(size_t i))
{
    int32_t *tokens = traffic_memory(n * sizeof *tokens);

    for (size_t i = 0; i < n; i++)
        tokens[i] = fill(i);
    return tokens;
}

static bool run_case(const struct traffic_case *c)
{
    struct traffic moved;
    uint64_t least, total;
    char shape[48];
    bool ok;

    least = c->run(c);
    moved = traffic_take();
    total = moved.loaded_bytes + moved.stored_bytes;
    ok = (double)total >= 0.98 * (double)least &&
         (c->most == 0 || (double)total <= c->most * (double)least) && total >= c->each * moved.accesses;
    madvise(device.memory, device.used, MADV_DONTNEED);
    device.used = 0;
    snprintf(shape, sizeof shape, "(%zu, %zu) %s", c->rows, c->cols, fsdp_dtype_name(c->dtype));
    printf("# %-27s %-20s %9.3f %9.3f %9.3f %5.0f %6.2f", c->name, shape, (double)moved.loaded_bytes / 1e6,
           (double)moved.stored_bytes / 1e6, (double)least / 1e6, (double)total / (double)moved.accesses,
           (double)total / (double)least);
    if (c->most > 0)
        printf(" %6.2f", c->most);
    printf("\n%s - %s %s moves %g to %g times the least, %u bytes or more at a time\n", ok ? "ok" : "not ok",
           c->name, shape, 0.98, c->most > 0 ? c->most : INFINITY, c->each);
    return ok;
}

int main(int argc, char **argv)
{
    size_t n_cases, n_failed = 0;
    const struct traffic_case *cases = traffic_cases(&n_cases);

    device.memory =
        mmap(NULL, DEVICE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (device.memory == MAP_FAILED) {
        perror("traffic: mmap");
        return 1;
    }
    traffic_begin(device.memory, DEVICE_BYTES);
    printf("# %-27s %-20s %9s %9s %9s %5s %6s %6s\n", "kernel, MB", "shape", "loaded", "stored", "least",
           "each", "times", "most");
    for (size_t i = 0; i < n_cases; i++)
        if (argc < 2 || strstr(cases[i].name, argv[1]) != NULL)
            n_failed += !run_case(&cases[i]);
    return n_failed > 0;
}

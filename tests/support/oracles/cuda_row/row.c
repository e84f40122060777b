/*
 * Tensors in both memories, and how they are compared. See row.h.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/core/bf16.h"
#include "shard_runtime/core/rng.h"
#include "tests/support/oracles/cuda_row/row.h"

struct device device;
struct device_stream *stream;
struct numerics cuda, ref;
struct numerics *const each_row[2] = { &cuda, &ref };
struct fsdp_err err;
int n_failed;
uint64_t key = 1;

const struct plugin *plugin;

static uint64_t (*tally)(const char *what); /* NULL on a GPU */

void require(enum fsdp_status status)
{
    if (status == FSDP_OK)
        return;
    printf("not ok - cuda numerics: %s\n", err.message);
    exit(1);
}

enum fsdp_status open_row(struct numerics *row)
{
    const struct numerics_config config = { .threads = 1, .row = plugin->numerics, .device = &device };

    return numerics_open(row, &config, &err);
}

void open_device(void)
{
    const struct device_config config = { .name = "cuda", .plugin = &plugin };

    /* A process that hangs and is killed leaves the lines that it printed. */
    (void)setvbuf(stdout, NULL, _IOLBF, BUFSIZ);
    require(device_open(&device, &config, &err));
    require(device.ops->stream_create(&device, &stream, false, &err));
    require(numerics_open(&ref, &(struct numerics_config){ .threads = 1, .name = "ref" }, &err));
}

void close_device(void)
{
    numerics_close(&ref);
    device.ops->stream_destroy(stream);
    device_close(&device);
}

void *to_device(const void *from, size_t size_bytes)
{
    void *memory;

    require(device.ops->alloc(&device, size_bytes, &memory, &err));
    device.ops->copy(stream, memory, from, size_bytes, DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    return memory;
}

struct tensor make(size_t n)
{
    struct tensor t = { .host = malloc(n * sizeof(float) + 1), .n = n };

    rng_fill_normal(key++, 0, t.host, n, 1.0f);
    t.device = to_device(t.host, n * sizeof(float));
    return t;
}

void drop(struct tensor t)
{
    device.ops->free(&device, t.device, t.n * sizeof(float));
    free(t.host);
}

void say(const char *name, double far, double allowed)
{
    const bool good = far <= allowed; /* false for a NaN */

    printf("%s - cuda row: %s%s", good ? "ok" : "not ok", name, good ? "\n" : "");
    if (!good)
        printf(": off by %g, %g allowed\n", far, allowed);
    n_failed += !good;
}

double far_off(const float *ours, const float *theirs, size_t n, double least)
{
    double most = 0, size = least;

    for (size_t i = 0; i < n; i++) {
        const double d = fabs((double)ours[i] - (double)theirs[i]);

        size = fabs((double)theirs[i]) > size ? fabs((double)theirs[i]) : size;
        most = isnan(d) || d > most ? d : most;
    }
    return most / size;
}

float *fetch(struct tensor t, bool narrow)
{
    float *got = malloc(t.n * sizeof *got + 1);

    device.ops->copy(stream, got, t.device, t.n * (narrow ? sizeof(uint16_t) : sizeof(float)),
                     DEVICE_COPY_FROM);
    require(device.ops->synchronize(stream, &err));
    for (size_t i = t.n; narrow && i-- > 0;) /* in place, from the end */
        got[i] = bf16_to_f32(((uint16_t *)got)[i]);
    return got;
}

void compare(const char *name, struct tensor t, double allowed)
{
    float *got = fetch(t, false);

    say(name, far_off(got, t.host, t.n, 1e-30), allowed);
    free(got);
}

void widen_on_device(struct tensor t)
{
    float *wide = fetch(t, true);

    device.ops->copy(stream, t.device, wide, t.n * sizeof *wide, DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    free(wide);
}

void narrow_both(struct tensor t)
{
    uint16_t *narrow = malloc(t.n * sizeof *narrow);

    for (size_t i = 0; i < t.n; i++)
        t.host[i] = bf16_to_f32(narrow[i] = bf16_of_f32(t.host[i]));
    device.ops->copy(stream, t.device, narrow, t.n * sizeof *narrow, DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    free(narrow);
}

uint64_t tally_of(const char *what)
{
    return tally != NULL ? tally(what) : 0;
}

void say_launches(const char *name, const char *kernel, uint64_t before, uint64_t expected)
{
    if (tally != NULL)
        say(name, fabs((double)(tally_of(kernel) - before) - (double)expected), 0);
    else
        printf("skip - cuda row: %s: a GPU does not count launches\n", name);
}

/* Where the device is the emulated one, its library is loaded by now. */
void find_tally(void)
{
    void *runtime = dlopen("libcudart_emulated.so", RTLD_NOW | RTLD_NOLOAD);

    if (runtime != NULL)
        *(void **)&tally = dlsym(runtime, "emulated_tally_of");
}

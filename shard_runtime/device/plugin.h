/*
 * The plug-in with the CUDA back ends, libfsdp_cuda.so. It is opened at run time, so that no other binary
 * needs a CUDA library. It exports one function, which returns a table of the back ends and the version of
 * the headers that they were compiled against.
 *
 * A plug-in is never closed: the CUDA libraries cannot be unloaded safely.
 */
#ifndef DEVICE_PLUGIN_H
#define DEVICE_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#include <fsdp/status.h>

struct device_ops;
struct numerics_ops;
struct device_collectives;

enum { PLUGIN_VERSION = 1 };

struct plugin {
    uint32_t version;    /* PLUGIN_VERSION */
    uint32_t size_bytes; /* of this struct */
    /* Sizes of the tables, which have no versions of their own. */
    uint32_t device_ops_bytes, numerics_ops_bytes, collectives_bytes;
    const struct device_ops *device;
    const struct numerics_ops *numerics;
    const struct device_collectives *collectives;
};

/**
 * The exported function's name and type. It returns NULL if the machine cannot be used; `why` (why_bytes)
 * then has the reason, in one line.
 */
#define PLUGIN_ENTRY "fsdp_cuda_plugin"
typedef const struct plugin *(*plugin_entry_fn)(uint32_t version, char *why, size_t why_bytes);

/**
 * Opens the plug-in; *out stays valid as long as the process.
 *   1. The driver is opened: libcuda.so.1, or what FSDP_CUDA_DRIVER names. This takes 0.1 ms. Without a
 *      driver the plug-in's libraries are never loaded.
 *   2. The plug-in is opened: what FSDP_CUDA_PLUGIN names, or libfsdp_cuda.so. It is looked for in ../lib of
 *      the program's folder, in that folder, in the folder of libfsdp.so, and where the loader searches.
 *   FSDP_ERR_NOT_FOUND    no driver: a machine without a GPU
 *   FSDP_ERR_UNSUPPORTED  a driver, but no plug-in, or one that is of another build or refuses
 */
enum fsdp_status plugin_open(const struct plugin **out, struct fsdp_err *err);

#endif

/*
 * The plug-in with the CUDA back ends, libfsdp_cuda.so, opened at run time: no other binary needs a CUDA library. It is
 * one exported function that returns a table of the back ends, with the version of what they are compiled against.
 *
 * A plug-in is never closed: the libraries it brings do not bear it.
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

/** The exported function's name and type. NULL: this machine cannot be used, `why` (why_bytes) says why, in one line. */
#define PLUGIN_ENTRY "fsdp_cuda_plugin"
typedef const struct plugin *(*plugin_entry_fn)(uint32_t version, char *why, size_t why_bytes);

/**
 * Open the plug-in. First the driver is looked for, which costs a tenth of a millisecond; where there is none the plug-in's
 * libraries are never loaded. The plug-in is FSDP_CUDA_PLUGIN, or libfsdp_cuda.so in ../lib or beside the program, or beside
 * libfsdp.so, or where the loader finds it. FSDP_CUDA_DRIVER names another driver than libcuda.so.1.
 *   FSDP_ERR_NOT_FOUND    no driver: a machine without a GPU
 *   FSDP_ERR_UNSUPPORTED  a driver, but no plug-in, or one that is of another build or refuses
 */
enum fsdp_status plugin_open(const struct plugin **out, struct fsdp_err *err);

#endif

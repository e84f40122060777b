#include "shard_runtime/device/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/require.h"

static const char NAME[] = "libfsdp_cuda.so";

/*
 * Replaces the last component of `path`, and `up` more, by `tail` and the plug-in's name. Returns false if
 * the path is too short or the result too long.
 */
static bool beside(const char *path, int up, const char *tail, char out[PATH_MAX])
{
    char folder[PATH_MAX];
    int n = snprintf(folder, sizeof folder, "%s", path);

    if (n < 0 || n >= PATH_MAX)
        return false;
    for (int i = 0; i <= up; i++) {
        char *slash = strrchr(folder, '/');

        if (slash == NULL)
            return false;
        *slash = '\0';
    }
    n = snprintf(out, PATH_MAX, "%s/%s%s", folder, tail, NAME);
    return n > 0 && n < PATH_MAX;
}

/*
 * Finds where make and `make install` put the plug-in, relative to the program or libfsdp.so. Otherwise gives
 * the bare name, which the loader searches for.
 */
static void find(char out[PATH_MAX])
{
    char program[PATH_MAX];
    const ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
    Dl_info self;

    if (n > 0) {
        program[n] = '\0';
        if (beside(program, 1, "lib/", out) && access(out, R_OK) == 0)
            return;
        if (beside(program, 0, "", out) && access(out, R_OK) == 0)
            return;
    }
    if (dladdr(NAME, &self) != 0 && self.dli_fname != NULL && beside(self.dli_fname, 0, "", out) &&
        access(out, R_OK) == 0)
        return;
    snprintf(out, PATH_MAX, "%s", NAME);
}

static const char *setting(const char *name, const char *fallback)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : fallback;
}

static enum fsdp_status probe_driver(struct fsdp_err *err)
{
    const char *driver = setting("FSDP_CUDA_DRIVER", "libcuda.so.1");

    return dlopen(driver, RTLD_NOW | RTLD_LOCAL) != NULL
               ? FSDP_OK
               : fsdp_fail(err, FSDP_ERR_NOT_FOUND, "no CUDA driver: %s", dlerror());
}

static enum fsdp_status check(const struct plugin *plugin, const char *path, struct fsdp_err *err)
{
    if (plugin->version == PLUGIN_VERSION && plugin->size_bytes == sizeof *plugin)
        return FSDP_OK;
    return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                     "%s is of another build: its table is version %u of %u bytes, not %d of %zu", path,
                     plugin->version, plugin->size_bytes, PLUGIN_VERSION, sizeof *plugin);
}

enum fsdp_status plugin_open(const struct plugin **out, struct fsdp_err *err)
{
    const char *wanted = setting("FSDP_CUDA_PLUGIN", "");
    char path[PATH_MAX], why[256] = "";
    const struct plugin *plugin = NULL;
    enum fsdp_status status = probe_driver(err);
    plugin_entry_fn entry;
    void *library;

    *out = NULL;
    if (status != FSDP_OK)
        return status;
    if (wanted[0] != '\0')
        snprintf(path, sizeof path, "%s", wanted);
    else
        find(path);
    library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "the CUDA plug-in: %s", dlerror());
    /* POSIX defines this conversion of an object pointer to a function pointer. */
    *(void **)(&entry) = dlsym(library, PLUGIN_ENTRY);
    if (entry == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%s is no plug-in: it has no %s", path, PLUGIN_ENTRY);
    plugin = entry(PLUGIN_VERSION, why, sizeof why);
    if (plugin == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "the CUDA plug-in refuses: %s", why);
    OK_OR_RETURN(check(plugin, path, err));
    *out = plugin;
    return FSDP_OK;
}

/*
 * The libraries that are opened at run time. On a machine with an NVIDIA GPU: the driver's, the plug-in, NCCL
 * and cuDNN. For several nodes: OpenSSL. Also the Python that runs programs. Its PyTorch is not imported; the
 * version is read from the metadata.
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "agent/wire/tls_library.h"

enum { PYTHON_WITHIN_MS = 4000, NCCL_LEAST = 21800 };

static const char python_program[] =
    "import sys\n"
    "print(sys.version.split()[0])\n"
    "import importlib.metadata as m\n"
    "try: d = m.distribution('torch')\n"
    "except m.PackageNotFoundError: sys.exit()\n"
    "print(d.version)\n"
    "for line in open(d.locate_file('torch/version.py')):\n"
    "    if line.startswith('cuda'): print(line.split('=')[-1].strip().strip('\\'\"'))\n";

static void *open_library(struct library_fact *fact, const char *name)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);

    snprintf(fact->name, sizeof fact->name, "%.255s", name);
    if (library == NULL)
        snprintf(fact->error, sizeof fact->error, "%.159s", dlerror());
    return library;
}

static const char *named(const struct doctor_host *host, const char *variable, const char *otherwise)
{
    const char *name = doctor_env(host, variable);

    return name != NULL ? name : otherwise;
}

/*
 * The plug-in is in ../lib of the program's folder, or in that folder itself (shard_runtime/device/plugin.h).
 */
static const char *plugin_path(const struct doctor_host *host, char out[PATH_MAX])
{
    static const char *const places[] = { "/../lib", "" };
    const char *slash = strrchr(host->own_path, '/'), *wanted = doctor_env(host, "FSDP_CUDA_PLUGIN");

    for (size_t i = 0; i < 2 && slash != NULL && wanted == NULL; i++) {
        snprintf(out, PATH_MAX, "%.*s%s/libfsdp_cuda.so", (int)(slash - host->own_path), host->own_path,
                 places[i]);
        if (access(out, R_OK) == 0)
            return out;
    }
    return wanted != NULL ? wanted : "libfsdp_cuda.so";
}

/* Opens each library and asks it for its version, by a function that needs no device. */
static void open_all(struct library_facts *libraries, const struct doctor_host *host)
{
    struct library_fact *of = libraries->of;
    int (*by_pointer)(int *);
    size_t (*by_value)(void);
    char path[PATH_MAX];
    void *library;

    library = open_library(&of[LIBRARY_CUDA], named(host, "FSDP_CUDA_DRIVER", "libcuda.so.1"));
    *(void **)&by_pointer = library != NULL ? dlsym(library, "cuDriverGetVersion") : NULL;
    if (by_pointer != NULL)
        by_pointer(&of[LIBRARY_CUDA].version);
    library = open_library(&of[LIBRARY_PLUGIN], plugin_path(host, path));
    *(void **)&by_value = library != NULL ? dlsym(library, "cublasLtGetVersion") : NULL;
    if (by_value != NULL)
        libraries->cublaslt_version = (int)by_value();
    library = open_library(&of[LIBRARY_NCCL], named(host, "FSDP_NCCL_LIBRARY", "libnccl.so.2"));
    *(void **)&by_pointer = library != NULL ? dlsym(library, "ncclGetVersion") : NULL;
    if (by_pointer != NULL)
        by_pointer(&of[LIBRARY_NCCL].version);
    library = open_library(&of[LIBRARY_CUDNN], named(host, "FSDP_CUDNN_LIBRARY", "libcudnn.so.9"));
    *(void **)&by_value = library != NULL ? dlsym(library, "cudnnGetVersion") : NULL;
    if (by_value != NULL)
        of[LIBRARY_CUDNN].version = (int)by_value();
}

void library_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct library_facts *libraries = &facts->libraries;
    const char *const python[] = { "python3", "-c", python_program, NULL };
    const struct tls_library *tls;
    struct fsdp_err err = { 0 };
    char text[4096], version[64];
    int status;

    libraries->wanted =
        gpu_count_pci(host) > 0 || doctor_line(host, text, sizeof text, "/proc/driver/nvidia/version");
    if (libraries->wanted)
        open_all(libraries, host);
    libraries->needs_tls = host->n_nodes > 1;
    if (libraries->needs_tls && tls_library_open(&tls, &err) != FSDP_OK)
        snprintf(libraries->tls_error, sizeof libraries->tls_error, "%.159s", err.message);
    status = host->run(python, PYTHON_WITHIN_MS, text, sizeof text);
    libraries->python_late = status == DOCTOR_RUN_LATE;
    if (status != 0)
        return;
    sscanf(text, "%63s %63s %15s", version, libraries->torch, libraries->torch_cuda);
    snprintf(libraries->python, sizeof libraries->python, "%s", version);
}

static enum doctor_state say_library(const struct library_fact *fact, enum doctor_state missing,
                                     const char *version, char value[DOCTOR_VALUE_BYTES])
{
    return fact->error[0] != '\0' ? doctor_say(missing, value, "%s", fact->error)
                                  : doctor_say(DOCTOR_OK, value, "%s%s", fact->name, version);
}

static enum doctor_state cuda(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct library_fact *fact = &facts->libraries.of[LIBRARY_CUDA];
    char version[32] = "";

    if (!facts->libraries.wanted)
        return DOCTOR_NOTHING;
    if (fact->version > 0)
        snprintf(version, sizeof version, ", for CUDA %d.%d", fact->version / 1000,
                 fact->version % 1000 / 10);
    return say_library(fact, DOCTOR_FAIL, version, value);
}

static enum doctor_state plugin(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct library_facts *libraries = &facts->libraries;
    char version[48] = "";

    if (!libraries->wanted)
        return DOCTOR_NOTHING;
    if (libraries->cublaslt_version > 0)
        snprintf(version, sizeof version, ", cuBLASLt %d.%d.%d", libraries->cublaslt_version / 10000,
                 libraries->cublaslt_version / 100 % 100, libraries->cublaslt_version % 100);
    return say_library(&libraries->of[LIBRARY_PLUGIN], DOCTOR_FAIL, version, value);
}

/* Writes the version of NCCL or cuDNN after the library's name; "" if the version is not known. */
static void write_version(const struct library_fact *fact, char version[32])
{
    version[0] = '\0';
    if (fact->version > 0)
        snprintf(version, 32, " %d.%d.%d", fact->version / 10000, fact->version / 100 % 100,
                 fact->version % 100);
}

static enum doctor_state nccl(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct library_fact *fact = &facts->libraries.of[LIBRARY_NCCL];
    char version[32];

    if (!facts->libraries.wanted)
        return DOCTOR_NOTHING;
    write_version(fact, version);
    if (fact->version > 0 && fact->version < NCCL_LEAST)
        return doctor_say(DOCTOR_FAIL, value, "%s%s is older than 2.18", fact->name, version);
    return say_library(fact, DOCTOR_WARN, version, value);
}

static enum doctor_state cudnn(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct library_fact *fact = &facts->libraries.of[LIBRARY_CUDNN];
    char version[32];

    if (!facts->libraries.wanted)
        return DOCTOR_NOTHING;
    write_version(fact, version);
    return say_library(fact, DOCTOR_WARN, version, value);
}

static enum doctor_state tls(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    if (!facts->libraries.needs_tls)
        return DOCTOR_NOTHING;
    return facts->libraries.tls_error[0] != '\0'
               ? doctor_say(DOCTOR_FAIL, value, "%s", facts->libraries.tls_error)
               : doctor_say(DOCTOR_OK, value, "OpenSSL 3");
}

static enum doctor_state python(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct library_facts *libraries = &facts->libraries;
    const bool for_cpus = strcmp(libraries->torch_cuda, "None") == 0;

    if (libraries->python_late)
        return doctor_say(DOCTOR_WARN, value, "python3 did not start within %.1f s",
                          PYTHON_WITHIN_MS / 1000.0);
    if (libraries->python[0] == '\0')
        return DOCTOR_NOTHING;
    if (libraries->torch[0] == '\0')
        return doctor_say(DOCTOR_OK, value, "Python %s, without PyTorch", libraries->python);
    return doctor_say(for_cpus && libraries->wanted ? DOCTOR_WARN : DOCTOR_OK, value,
                      "Python %s, PyTorch %s for %s%s", libraries->python, libraries->torch,
                      for_cpus ? "CPUs only" : "CUDA ", for_cpus ? "" : libraries->torch_cuda);
}

const struct doctor_check library_checks[] = {
    { "libraries.cuda", cuda, "install the driver's libraries; in a container, run it with --gpus all" },
    { "libraries.plugin", plugin, "build it where nvcc is (make cuda), and keep it in ../lib of fsdprun" },
    { "libraries.nccl", nccl, "install libnccl2, or set FSDP_NCCL_LIBRARY: several GPUs need it" },
    { "libraries.cudnn", cudnn,
      "install libcudnn9-cuda-12, or set FSDP_CUDNN_LIBRARY: attention is slower without it" },
    { "libraries.tls", tls, "install libssl3: nodes meet over TLS" },
    { "libraries.python", python,
      "programs will use this Python: look at PATH, its disk, and which PyTorch it has" },
    { 0 },
};

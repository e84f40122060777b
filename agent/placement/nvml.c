#include "agent/placement/nvml.h"

#include <assert.h>
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/placement/nvml_impl.h"
#include "agent/placement/nvml_process.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/library.h"

enum { ANSWER_WITHIN_MS = 30000, END_WITHIN_MS = 1000 };

/* How the library's documented functions are called */

enum { NVML_MIG_ENABLED = 1 };

enum fsdp_status nvml_open(struct nvml *nvml, const char *name, struct fsdp_err *err)
{
    static const struct library_function needed[] = {
        { "nvmlInit_v2", offsetof(struct nvml, init) },
        { "nvmlErrorString", offsetof(struct nvml, words) },
        { "nvmlDeviceGetCount_v2", offsetof(struct nvml, count) },
        { "nvmlDeviceGetHandleByIndex_v2", offsetof(struct nvml, handle) },
        { "nvmlDeviceGetUUID", offsetof(struct nvml, uuid) },
        { "nvmlDeviceGetPciInfo_v3", offsetof(struct nvml, pci) },
    };
    static const struct library_function of_migs[] = {
        { "nvmlDeviceGetMigMode", offsetof(struct nvml, mig_mode) },
        { "nvmlDeviceGetMaxMigDeviceCount", offsetof(struct nvml, max_migs) },
        { "nvmlDeviceGetMigDeviceHandleByIndex", offsetof(struct nvml, mig) },
    };

    nvml->library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (nvml->library == NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%.160s", dlerror());
    if (library_look_up(nvml->library, nvml, needed, sizeof needed / sizeof *needed) != NULL)
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED, "%.100s is too old", name);
    if (library_look_up(nvml->library, nvml, of_migs, sizeof of_migs / sizeof *of_migs) != NULL)
        nvml->mig_mode = NULL;
    return FSDP_OK;
}

void nvml_kernel_name(const struct nvml_pci_info *info, char out[NVML_PCI_BYTES])
{
    snprintf(out, NVML_PCI_BYTES, "%04x:%02x:%02x.0", info->domain, info->bus & 0xff, info->device & 0xff);
}

static int add_gpus(const struct nvml *nvml, struct nvml_list *list, void **handles)
{
    unsigned count = 0;
    int error = nvml->count(&count);

    for (unsigned i = 0; error == NVML_SUCCESS && i < count && list->n < NVML_MAX; i++) {
        struct nvml_pci_info info = { 0 };
        struct nvml_device *device = &list->devices[list->n];

        /* A GPU that fell off the bus is skipped, as in CUDA. The others keep their order. */
        if (nvml->handle(i, &handles[list->n]) != NVML_SUCCESS ||
            nvml->uuid(handles[list->n], device->uuid, NVML_UUID_BYTES) != NVML_SUCCESS ||
            nvml->pci(handles[list->n], &info) != NVML_SUCCESS)
            continue;
        nvml_kernel_name(&info, device->pci);
        device->parent = -1;
        list->n++;
    }
    return error;
}

static void add_migs(const struct nvml *nvml, struct nvml_list *list, void *const *handles)
{
    const int n_gpus = list->n;

    for (int gpu = 0; gpu < n_gpus && nvml->mig_mode != NULL; gpu++) {
        unsigned mode = 0, pending = 0, most = 0;

        if (nvml->mig_mode(handles[gpu], &mode, &pending) != NVML_SUCCESS || mode != NVML_MIG_ENABLED ||
            nvml->max_migs(handles[gpu], &most) != NVML_SUCCESS)
            continue;
        for (unsigned i = 0; i < most && list->n < NVML_MAX; i++) {
            struct nvml_device *device = &list->devices[list->n];
            void *mig;

            /* An index without an instance is refused, but later ones may have one. */
            if (nvml->mig(handles[gpu], i, &mig) != NVML_SUCCESS ||
                nvml->uuid(mig, device->uuid, NVML_UUID_BYTES) != NVML_SUCCESS)
                continue;
            memcpy(device->pci, list->devices[gpu].pci, NVML_PCI_BYTES);
            device->parent = gpu;
            list->n++;
        }
    }
}

static enum fsdp_status ask_here(const char *library, struct nvml_list *list, struct fsdp_err *err)
{
    struct nvml nvml = { 0 };
    void *handles[NVML_MAX];
    enum fsdp_status status = nvml_open(&nvml, library, err);
    int error;

    if (status != FSDP_OK)
        return status;
    assert(nvml.init != NULL); /* and all other functions that are needed */
    error = nvml.init();
    if (error == NVML_SUCCESS)
        error = add_gpus(&nvml, list, handles);
    if (error != NVML_SUCCESS)
        return fsdp_fail(err, FSDP_ERR_IO, "NVML: %.160s", nvml.words(error));
    add_migs(&nvml, list, handles);
    return FSDP_OK;
}

/* The child process that asks NVML, and the answer that it sends */

struct answer {
    struct fsdp_err err;
    struct nvml_list list;
};

int nvml_ask_here(const char *library)
{
    struct answer *answer = calloc(1, sizeof *answer);
    bool told;

    if (answer == NULL)
        return 1;
    answer->err.status = ask_here(library, &answer->list, &answer->err);
    told = file_write(STDOUT_FILENO, answer, sizeof *answer);
    free(answer);
    return told ? 0 : 1;
}

/* Read `size` bytes. False: the deadline passed, or the other end was closed before. */
static bool read_all(int fd, void *data, size_t size, int64_t deadline_ms)
{
    char *at = data;

    while (size > 0) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        const int64_t left = deadline_ms - clock_now_ms();
        ssize_t n;

        if (left <= 0)
            return false;
        if (poll(&ready, 1, (int)left) <= 0)
            continue; /* a signal interrupted poll(), or the deadline passed: the clock tells which */
        n = read(fd, at, size);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            return false;
        at += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return true;
}

/*
 * Kills and reaps a child. A child that is stuck in the driver does not end even by SIGKILL, and then it is
 * not waited for.
 */
static void end(pid_t pid)
{
    struct pollfd gone = { .fd = (int)syscall(SYS_pidfd_open, pid, 0), .events = POLLIN };

    kill(pid, SIGKILL);
    if (gone.fd >= 0) {
        poll(&gone, 1, END_WITHIN_MS);
        close(gone.fd);
    }
    waitpid(pid, NULL, WNOHANG);
}

enum fsdp_status nvml_ask(const char *library, struct nvml_list *out, struct fsdp_err *err)
{
    struct answer *answer = calloc(1, sizeof *answer);
    enum fsdp_status status;
    bool heard;
    int fd;
    pid_t pid;

    out->n = 0;
    if (answer == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to ask NVML");
    status = nvml_process_start(NVML_ASK, library, &pid, &fd, err);
    if (status != FSDP_OK)
        goto done;
    heard = read_all(fd, answer, sizeof *answer, clock_now_ms() + ANSWER_WITHIN_MS);
    end(pid);
    close(fd);
    if (!heard)
        status =
            fsdp_fail(err, FSDP_ERR_IO, "NVML crashed, or gave no answer in %d s", ANSWER_WITHIN_MS / 1000);
    else if (answer->err.status != FSDP_OK)
        status = fsdp_fail(err, answer->err.status, "%s", answer->err.message);
    else
        *out = answer->list;
done:
    free(answer);
    return status;
}

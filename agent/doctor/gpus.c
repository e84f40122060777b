/*
 * GPUs: those on the PCI bus, those that workers would see, and what NVML and the kernel's log report about
 * them.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "agent/os/small_file.h"
#include "agent/placement/gpu.h"
#include "agent/placement/nvml.h"
#include "agent/placement/nvml_process.h"
#include "shard_runtime/core/clock.h"

enum { SAMPLES_WITHIN_MS = 10000, LOG_BYTES = 8192, MOST_DEVICES = 1024, HOT_C = 87 };

int gpu_count_pci(const struct doctor_host *host)
{
    char(*names)[64] = calloc(MOST_DEVICES, sizeof *names);
    int n, n_gpus = 0;

    n = names != NULL ? small_file_list(host->root, "/sys/bus/pci/devices", names, MOST_DEVICES) : 0;
    for (int i = 0; i < n; i++) {
        char vendor[16], class[16];

        doctor_line(host, vendor, sizeof vendor, "/sys/bus/pci/devices/%s/vendor", names[i]);
        doctor_line(host, class, sizeof class, "/sys/bus/pci/devices/%s/class", names[i]);
        /* 0x0300: a display controller; 0x0302: one without a display, as those of data centres */
        n_gpus += strcmp(vendor, "0x10de") == 0 &&
                  (strncmp(class, "0x0300", 6) == 0 || strncmp(class, "0x0302", 6) == 0);
    }
    free(names);
    return n_gpus;
}

/* "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', ..." */
bool gpu_read_xid(const char *record, int *xid, char pci[GPU_HEALTH_PCI_BYTES])
{
    const char *at = strstr(record, "NVRM: Xid (PCI:");
    char bus[24];

    if (at == NULL || sscanf(at, "NVRM: Xid (PCI:%23[0-9a-fA-F:.]): %d", bus, xid) != 2 || *xid <= 0)
        return false;
    snprintf(pci, GPU_HEALTH_PCI_BYTES, "%s", bus);
    return true;
}

/* Each read() of /dev/kmsg is one record, and it does not wait at the end. */
static void read_log(struct gpu_facts *gpus, const struct doctor_host *host)
{
    char path[SMALL_FILE_PATH_BYTES], *text = malloc(LOG_BYTES);
    ssize_t n;
    int fd;

    snprintf(path, sizeof path, "%s/dev/kmsg", host->root);
    fd = text != NULL ? open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC) : -1;
    gpus->log_readable = fd >= 0;
    while (fd >= 0 && ((n = read(fd, text, LOG_BYTES - 1)) > 0 || (n < 0 && errno == EPIPE))) {
        char *rest = text, *line, pci[GPU_HEALTH_PCI_BYTES];
        int xid;

        /* EPIPE: the kernel overwrote records before they were read; the next read goes on after them */
        text[n > 0 ? n : 0] = '\0';
        while ((line = strsep(&rest, "\n")) != NULL)
            if (gpu_read_xid(line, &xid, pci)) {
                gpus->n_xids++;
                gpus->last_xid = xid;
                memcpy(gpus->xid_pci, pci, sizeof pci);
            }
    }
    if (fd >= 0)
        close(fd);
    free(text);
}

/* Takes one sample of every GPU, by the same process that watches GPUs in a run. */
static void take_samples(struct gpu_facts *gpus, const char *library)
{
    const int64_t deadline_ms = clock_now_ms() + SAMPLES_WITHIN_MS;
    struct gpu_sample sample;
    pid_t pid;
    int fd;

    if (nvml_process_start(NVML_WATCH, library, &pid, &fd, NULL) != FSDP_OK)
        return;
    for (;;) {
        struct pollfd ready = { .fd = fd, .events = POLLIN };
        const int64_t left_ms = deadline_ms - clock_now_ms();

        if (left_ms <= 0 || poll(&ready, 1, (int)left_ms) < 0 ||
            recv(fd, &sample, sizeof sample, MSG_WAITALL) != (ssize_t)sizeof sample)
            break;
        if (sample.xid == 0 && gpus->n_sampled < DOCTOR_GPUS)
            gpus->samples[gpus->n_sampled++] = sample;
        if (sample.xid == 0 && sample.ends_round)
            break;
    }
    close(fd); /* it ends then, or with this process */
}

void gpu_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct gpu_facts *gpus = &facts->gpus;
    struct gpu_host where = {
        .root = host->root, .nvml = host->nvml, .get_env = host->get_env, .arg = host->arg
    };
    struct gpu_list *list = calloc(1, sizeof *list);
    struct nvml_list *all = calloc(1, sizeof *all);
    struct fsdp_err err = { 0 };
    char text[512], *version;

    gpus->n_pci = gpu_count_pci(host);
    gpus->n_listed = -1;
    if (list != NULL) {
        gpu_find(list, GPU_WANT_ANY, &where);
        gpus->n_visible = list->n;
        snprintf(gpus->why, sizeof gpus->why, "%.159s", list->why);
    }
    /* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024" */
    doctor_line(host, text, sizeof text, "/proc/driver/nvidia/version");
    version = strstr(text, "Module  ");
    if (version != NULL)
        sscanf(version + strlen("Module  "), "%63s", gpus->driver);
    else
        snprintf(gpus->driver, sizeof gpus->driver, "%.60s", text);
    if (gpus->driver[0] != '\0' && all != NULL) {
        if (nvml_ask(host->nvml, all, &err) != FSDP_OK) {
            snprintf(gpus->nvml_error, sizeof gpus->nvml_error, "%.159s", err.message);
        } else {
            gpus->n_listed = 0;
            for (int i = 0; i < all->n; i++)
                gpus->n_listed += all->devices[i].parent < 0;
            take_samples(gpus, host->nvml);
        }
    }
    if (gpus->n_pci > 0 || gpus->driver[0] != '\0')
        read_log(gpus, host);
    free(list);
    free(all);
}

static enum doctor_state driver(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct gpu_facts *gpus = &facts->gpus;

    if (gpus->driver[0] == '\0')
        return gpus->n_pci == 0
                   ? DOCTOR_NOTHING
                   : doctor_say(DOCTOR_FAIL, value, "%d NVIDIA GPUs, and no driver is loaded", gpus->n_pci);
    return doctor_say(DOCTOR_OK, value, "NVIDIA %s", gpus->driver);
}

static enum doctor_state found(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct gpu_facts *gpus = &facts->gpus;
    const char *why = gpus->why[0] != '\0' ? ": " : "";

    if (gpus->n_visible == 0 && gpus->n_pci == 0 && gpus->driver[0] == '\0')
        return doctor_say(DOCTOR_OK, value, "none: jobs run on CPUs");
    if (gpus->n_visible == 0)
        return doctor_say(DOCTOR_FAIL, value, "workers see none of %d%s%s", gpus->n_pci, why, gpus->why);
    if (gpus->n_listed >= 0 && gpus->n_listed < gpus->n_pci)
        return doctor_say(DOCTOR_FAIL, value, "the driver lists %d of the %d on the bus", gpus->n_listed,
                          gpus->n_pci);
    return doctor_say(gpus->why[0] != '\0' ? DOCTOR_WARN : DOCTOR_OK, value, "workers see %d%s%s",
                      gpus->n_visible, why, gpus->why);
}

static enum doctor_state nvml(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct gpu_facts *gpus = &facts->gpus;

    if (gpus->driver[0] == '\0')
        return DOCTOR_NOTHING;
    return gpus->nvml_error[0] != '\0'
               ? doctor_say(DOCTOR_FAIL, value, "%s", gpus->nvml_error)
               : doctor_say(DOCTOR_OK, value, "it answers, and lists %d GPUs", gpus->n_listed);
}

static enum doctor_state throttled(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct gpu_facts *gpus = &facts->gpus;
    int hottest = -1;

    for (int i = 0; i < gpus->n_sampled; i++) {
        struct gpu_health *health = calloc(1, sizeof *health);
        char words[GPU_HEALTH_WORDS_BYTES] = "";
        const bool slow =
            health != NULL && gpu_health_take(health, &gpus->samples[i], words) == GPU_THROTTLED;

        free(health);
        if (slow)
            return doctor_say(DOCTOR_WARN, value, "%s", words);
        hottest = gpus->samples[i].temperature_c > hottest ? gpus->samples[i].temperature_c : hottest;
    }
    if (gpus->n_sampled == 0)
        return DOCTOR_NOTHING;
    return doctor_say(hottest >= HOT_C ? DOCTOR_WARN : DOCTOR_OK, value, "the hottest has %d C", hottest);
}

static enum doctor_state ecc(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct gpu_facts *gpus = &facts->gpus;
    bool known = false;

    for (int i = 0; i < gpus->n_sampled; i++) {
        const struct gpu_sample *sample = &gpus->samples[i];

        if (sample->ecc_uncorrected > 0)
            return doctor_say(DOCTOR_FAIL, value,
                              "GPU %d (%s): %" PRId64 " uncorrected ECC errors since the driver was loaded",
                              sample->index, sample->pci, sample->ecc_uncorrected);
        known |= sample->ecc_uncorrected == 0;
    }
    if (gpus->n_sampled == 0)
        return DOCTOR_NOTHING;
    return known ? doctor_say(DOCTOR_OK, value, "no uncorrected errors")
                 : doctor_say(DOCTOR_WARN, value, "off, or not known: wrong bits would not be noticed");
}

static enum doctor_state in_use(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct gpu_facts *gpus = &facts->gpus;
    char size[32];

    for (int i = 0; i < gpus->n_sampled; i++)
        if (gpus->samples[i].memory_used_bytes > INT64_C(2) << 30)
            return doctor_say(DOCTOR_WARN, value, "GPU %d (%s): %s of its memory are in use",
                              gpus->samples[i].index, gpus->samples[i].pci,
                              doctor_size(size, gpus->samples[i].memory_used_bytes));
    return gpus->n_sampled == 0 ? DOCTOR_NOTHING : doctor_say(DOCTOR_OK, value, "no GPU is in use");
}

static enum doctor_state persistence(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct gpu_facts *gpus = &facts->gpus;
    bool known = false;

    for (int i = 0; i < gpus->n_sampled; i++) {
        if (gpus->samples[i].persistence == 0)
            return doctor_say(DOCTOR_WARN, value, "off on GPU %d (%s)", gpus->samples[i].index,
                              gpus->samples[i].pci);
        known |= gpus->samples[i].persistence == 1;
    }
    return known ? doctor_say(DOCTOR_OK, value, "on") : DOCTOR_NOTHING;
}

static enum doctor_state xids(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct gpu_facts *gpus = &facts->gpus;

    if (gpus->n_pci == 0 && gpus->driver[0] == '\0')
        return DOCTOR_NOTHING;
    if (gpus->n_xids > 0)
        return doctor_say(DOCTOR_WARN, value, "%d in the kernel's log, the last %d of GPU %s", gpus->n_xids,
                          gpus->last_xid, gpus->xid_pci);
    return gpus->log_readable ? doctor_say(DOCTOR_OK, value, "none in the kernel's log") : DOCTOR_NOTHING;
}

const struct doctor_check gpu_checks[] = {
    { "gpus.driver", driver,
      "load it (modprobe nvidia); after an update of the kernel it must be built again" },
    { "gpus.found", found,
      "look at CUDA_VISIBLE_DEVICES, at what the container or Slurm grants (--gpus), and at dmesg" },
    { "gpus.nvml", nvml, "driver and library must have one version: after an update, reboot" },
    { "gpus.clocks", throttled, "look at its cooling and power (nvidia-smi -q -d PERFORMANCE)" },
    { "gpus.ecc", ecc, "nvidia-smi -q -d ECC; reset the GPU, and if they come again have it replaced" },
    { "gpus.memory", in_use, "another process has it: nvidia-smi names it" },
    { "gpus.persistence", persistence,
      "run nvidia-persistenced: without it the driver starts again for each process, which takes seconds" },
    { "gpus.xid", xids,
      "look it up in NVIDIA's list of XIDs (dmesg | grep Xid); 48, 63, 79 and 95 mean hardware" },
    { 0 },
};

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "agent/doctor/groups.h"
#include "agent/os/oom.h"
#include "agent/os/small_file.h"

enum { MOST_DEVICES = 64 };

/* "MemTotal:  16384 kB" of /proc/meminfo, in bytes. */
static int64_t of_meminfo(const char *text, const char *key)
{
    const char *at = strstr(text, key);

    return at == NULL ? -1 : strtoll(at + strlen(key), NULL, 10) * 1024;
}

static void look_at_group(struct memory_facts *memory, const struct doctor_host *host)
{
    struct group_limit limit;

    groups_tightest(&limit, host, "memory", "memory.max", "memory.current", "memory.limit_in_bytes",
                    "memory.usage_in_bytes");
    /* Version 1 writes "no limit" as a number near the largest. */
    memory->group_limit_bytes = limit.limit > INT64_MAX / 2 ? -1 : limit.limit;
    memory->group_used_bytes = limit.used;
}

static void look_at_huge_pages(struct memory_facts *memory, const char *meminfo,
                               const struct doctor_host *host)
{
    char text[64], *chosen;
    const int64_t size = of_meminfo(meminfo, "Hugepagesize:");
    const int64_t n = of_meminfo(meminfo, "HugePages_Total:"),
                  n_free = of_meminfo(meminfo, "HugePages_Free:");

    memory->huge_bytes = size > 0 && n > 0 ? n / 1024 * size : 0;
    memory->huge_free_bytes = size > 0 && n_free > 0 ? n_free / 1024 * size : 0;
    doctor_line(host, text, sizeof text, "/sys/kernel/mm/transparent_hugepage/enabled");
    chosen = strchr(text, '[');
    if (chosen != NULL)
        snprintf(memory->transparent_huge_pages, sizeof memory->transparent_huge_pages, "%.*s",
                 (int)strcspn(chosen + 1, "]"), chosen + 1);
}

void memory_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct memory_facts *memory = &facts->memory;
    char meminfo[8192], path[SMALL_FILE_PATH_BYTES], folder[SMALL_FILE_PATH_BYTES],
        log[SMALL_FILE_PATH_BYTES];
    char devices[MOST_DEVICES][64];
    struct oom_watch watch;
    struct rlimit limit;
    struct statvfs shm;
    int fd;

    small_file_read(meminfo, sizeof meminfo, "%s/proc/meminfo", host->root);
    memory->total_bytes = of_meminfo(meminfo, "MemTotal:");
    memory->available_bytes = of_meminfo(meminfo, "MemAvailable:");
    look_at_group(memory, host);
    look_at_huge_pages(memory, meminfo, host);
    memory->overcommit = (int)doctor_number(host, "/proc/sys/vm/overcommit_memory");

    snprintf(path, sizeof path, "%s/dev/shm", host->root);
    memory->shm_size_bytes = memory->shm_free_bytes = -1;
    memory->shm_writable = access(path, W_OK) == 0;
    if (statvfs(path, &shm) == 0) {
        memory->shm_size_bytes = (int64_t)shm.f_blocks * (int64_t)shm.f_frsize;
        memory->shm_free_bytes = (int64_t)shm.f_bavail * (int64_t)shm.f_frsize;
    }
    memory->memlock_bytes = getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_max != RLIM_INFINITY
                                ? (int64_t)limit.rlim_max
                                : -1;
    memory->n_infiniband = small_file_list(host->root, "/sys/class/infiniband", devices, MOST_DEVICES);
    fd = memfd_create("fsdprun-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    memory->can_memfd = fd >= 0;
    if (fd >= 0)
        close(fd);

    snprintf(path, sizeof path, "%s/proc/self/cgroup", host->root);
    snprintf(folder, sizeof folder, "%s/sys/fs/cgroup", host->root);
    snprintf(log, sizeof log, "%s/dev/kmsg", host->root);
    oom_watch_begin(&watch, path, folder, log);
    memory->sees_oom_kills = watch.kmsg >= 0 || watch.counter[0] != '\0';
    oom_watch_end(&watch);
}

static int64_t room(const struct memory_facts *memory, int64_t *whole)
{
    int64_t left = memory->available_bytes;

    *whole = memory->total_bytes;
    if (memory->group_limit_bytes >= 0 && memory->group_limit_bytes < *whole) {
        const int64_t of_group =
            memory->group_limit_bytes - (memory->group_used_bytes > 0 ? memory->group_used_bytes : 0);

        *whole = memory->group_limit_bytes;
        left = of_group < left ? of_group : left;
    }
    return left < 0 ? 0 : left;
}

static enum doctor_state available(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct memory_facts *memory = &facts->memory;
    char left_text[32], whole_text[32];
    int64_t whole, left;

    if (memory->total_bytes < 0 || memory->available_bytes < 0)
        return DOCTOR_NOTHING;
    left = room(memory, &whole);
    return doctor_say(left < whole / 50 || left < INT64_C(256) << 20 ? DOCTOR_FAIL
                      : left < whole / 5 || left < INT64_C(1) << 30  ? DOCTOR_WARN
                                                                     : DOCTOR_OK,
                      value, "%s available of %s%s", doctor_size(left_text, left),
                      doctor_size(whole_text, whole),
                      whole < memory->total_bytes ? ", the limit of the control group" : "");
}

static enum doctor_state shm(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct memory_facts *memory = &facts->memory;
    char size[32], free_text[32];

    if (memory->shm_size_bytes < 0 || !memory->shm_writable)
        return doctor_say(DOCTOR_WARN, value, "/dev/shm %s",
                          memory->shm_size_bytes < 0 ? "is missing" : "may not be written");
    return doctor_say(memory->shm_free_bytes < INT64_C(1) << 30 ? DOCTOR_WARN : DOCTOR_OK, value,
                      "/dev/shm: %s free of %s", doctor_size(free_text, memory->shm_free_bytes),
                      doctor_size(size, memory->shm_size_bytes));
}

static enum doctor_state memfd(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    return facts->memory.can_memfd
               ? doctor_say(DOCTOR_OK, value, "memfd_create works")
               : doctor_say(DOCTOR_FAIL, value, "memfd_create fails: ranks cannot share memory");
}

static enum doctor_state memlock(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct memory_facts *memory = &facts->memory;
    char size[32];

    if (memory->n_infiniband <= 0)
        return DOCTOR_NOTHING;
    if (memory->memlock_bytes < 0)
        return doctor_say(DOCTOR_OK, value, "unlimited, for %d InfiniBand devices", memory->n_infiniband);
    return doctor_say(memory->memlock_bytes < INT64_C(1) << 30 ? DOCTOR_FAIL : DOCTOR_WARN, value,
                      "%s may be locked, and %d InfiniBand devices need more",
                      doctor_size(size, memory->memlock_bytes), memory->n_infiniband);
}

static enum doctor_state huge_pages(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct memory_facts *memory = &facts->memory;
    char size[32];

    if (memory->huge_bytes <= 0)
        return DOCTOR_NOTHING;
    return doctor_say(memory->huge_free_bytes > memory->total_bytes / 20 ? DOCTOR_WARN : DOCTOR_OK, value,
                      "%s reserved for huge pages are free, and no rank uses them",
                      doctor_size(size, memory->huge_free_bytes));
}

static enum doctor_state transparent(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const char *chosen = facts->memory.transparent_huge_pages;

    return chosen[0] == '\0' ? DOCTOR_NOTHING
                             : doctor_say(strcmp(chosen, "never") == 0 ? DOCTOR_WARN : DOCTOR_OK, value,
                                          "transparent huge pages: %s", chosen);
}

static enum doctor_state overcommit(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const int mode = facts->memory.overcommit;

    return mode < 0
               ? DOCTOR_NOTHING
               : doctor_say(mode == 2 ? DOCTOR_WARN : DOCTOR_OK, value, "vm.overcommit_memory = %d", mode);
}

static enum doctor_state oom_kills(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    return facts->memory.sees_oom_kills
               ? doctor_say(DOCTOR_OK, value, "a kill for want of memory would be named")
               : doctor_say(DOCTOR_WARN, value, "a kill for want of memory would only show as SIGKILL");
}

const struct doctor_check memory_checks[] = {
    { "memory.available", available,
      "end what else runs here, raise the limit of the group, or use fewer ranks (fsdprun plan)" },
    { "memory.shm", shm,
      "NCCL and data loaders need it: docker run --shm-size=8g, or mount -o remount,size=50% /dev/shm" },
    { "memory.memfd", memfd, "allow the call in the container's seccomp profile" },
    { "memory.memlock", memlock, "ulimit -l unlimited: LimitMEMLOCK=infinity in the unit, or limits.conf" },
    { "memory.hugepages", huge_pages, "give them back: sysctl vm.nr_hugepages=0" },
    { "memory.transparent", transparent,
      "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled: tensors on CPUs ask for large pages" },
    { "memory.overcommit", overcommit,
      "sysctl vm.overcommit_memory=0: CUDA and snapshots reserve more than they touch" },
    { "memory.oom", oom_kills,
      "let the user read /dev/kmsg (sysctl kernel.dmesg_restrict=0), or use cgroup v2" },
    { 0 },
};

/* Limits of processes, and of control groups, that can end a run that would otherwise go on. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "agent/doctor/groups.h"

static int64_t limit_of(__rlimit_resource_t what, bool soft)
{
    struct rlimit limit;

    if (getrlimit(what, &limit) < 0)
        return -1;
    if (soft)
        return limit.rlim_cur == RLIM_INFINITY ? -1 : (int64_t)limit.rlim_cur;
    return limit.rlim_max == RLIM_INFINITY ? -1 : (int64_t)limit.rlim_max;
}

/* /proc/loadavg: "0.52 0.41 0.30 2/183 4242". The number after the slash is that of the machine's threads. */
static int64_t count_threads(const struct doctor_host *host)
{
    char text[128], *slash;

    doctor_line(host, text, sizeof text, "/proc/loadavg");
    slash = strchr(text, '/');
    return slash == NULL ? -1 : strtoll(slash + 1, NULL, 10);
}

void limit_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct limit_facts *limits = &facts->limits;
    struct group_limit pids;

    limits->nofile = limit_of(RLIMIT_NOFILE, false);
    limits->nofile_soft = limit_of(RLIMIT_NOFILE, true);
    limits->nproc = geteuid() == 0 ? -1 : limit_of(RLIMIT_NPROC, true); /* root is not counted */
    limits->n_threads = count_threads(host);
    limits->threads_max = doctor_number(host, "/proc/sys/kernel/threads-max");
    limits->core_bytes = limit_of(RLIMIT_CORE, true);
    limits->file_bytes = limit_of(RLIMIT_FSIZE, true);
    limits->address_bytes = limit_of(RLIMIT_AS, true);
    doctor_line(host, limits->core_pattern, sizeof limits->core_pattern, "/proc/sys/kernel/core_pattern");
    groups_tightest(&pids, host, "pids", "pids.max", "pids.current", "pids.max", "pids.current");
    limits->pids_max = pids.limit;
    limits->pids_now = pids.used;
}

static const char *text_of_limit(char out[32], int64_t limit)
{
    snprintf(out, 32, limit < 0 ? "unlimited" : "%" PRId64, limit);
    return out;
}

/* `fsdprun` raises its own soft limit of open files. Workers get the limit with which fsdprun was started. */
static enum doctor_state files(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct limit_facts *limits = &facts->limits;
    const enum doctor_state hard = doctor_least(limits->nofile, 4096, 512),
                            soft = doctor_least(limits->nofile_soft, 1024, 128);
    char of_us[32], of_worker[32];

    return doctor_say(hard > soft ? hard : soft, value, "open files: %s for fsdprun, %s for a worker",
                      text_of_limit(of_us, limits->nofile), text_of_limit(of_worker, limits->nofile_soft));
}

static enum doctor_state processes(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct limit_facts *limits = &facts->limits;

    if (limits->nproc < 0)
        return DOCTOR_NOTHING;
    return doctor_say(doctor_least(limits->nproc, 4096, 256), value,
                      "%" PRId64 " threads and processes of this user", limits->nproc);
}

static enum doctor_state pids(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct limit_facts *limits = &facts->limits;
    const int64_t left = limits->pids_max - limits->pids_now;

    if (limits->pids_max < 0)
        return DOCTOR_NOTHING;
    return doctor_say(doctor_least(left < 0 ? 0 : left, 1024, 128), value,
                      "%" PRId64 " of %" PRId64 " threads of the control group are left", left,
                      limits->pids_max);
}

static enum doctor_state threads(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct limit_facts *limits = &facts->limits;
    const int64_t left = limits->threads_max - limits->n_threads;

    if (limits->threads_max < 0 || limits->n_threads < 0)
        return DOCTOR_NOTHING;
    return doctor_say(doctor_least(left < 0 ? 0 : left, 4096, 256), value,
                      "%" PRId64 " of %" PRId64 " threads of this machine are left", left,
                      limits->threads_max);
}

static enum doctor_state file_size(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    char size[32];

    return facts->limits.file_bytes < 0
               ? doctor_say(DOCTOR_OK, value, "no limit")
               : doctor_say(facts->limits.file_bytes < INT64_C(1) << 40 ? DOCTOR_FAIL : DOCTOR_WARN, value,
                            "a file may have %s, and a larger checkpoint ends its rank (SIGXFSZ)",
                            doctor_size(size, facts->limits.file_bytes));
}

static enum doctor_state address_space(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    char size[32];

    return facts->limits.address_bytes < 0
               ? doctor_say(DOCTOR_OK, value, "no limit")
               : doctor_say(facts->limits.address_bytes < INT64_C(4) << 30 ? DOCTOR_FAIL : DOCTOR_WARN, value,
                            "a process may map %s", doctor_size(size, facts->limits.address_bytes));
}

static enum doctor_state core_dumps(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct limit_facts *limits = &facts->limits;
    const bool piped = limits->core_pattern[0] == '|';
    char size[32];

    if (limits->core_bytes == 0)
        return doctor_say(DOCTOR_OK, value, "none are written");
    if (piped)
        return doctor_say(DOCTOR_OK, value, "go to %.60s", limits->core_pattern + 1);
    return doctor_say(DOCTOR_WARN, value, "a crash writes a rank's memory (%s at most) to %.60s%s",
                      limits->core_bytes < 0 ? "all of it" : doctor_size(size, limits->core_bytes),
                      limits->core_pattern[0] == '/' ? "" : "its directory, ", limits->core_pattern);
}

const struct doctor_check limit_checks[] = {
    { "limits.files", files, "ulimit -n 65536: LimitNOFILE in the unit, or /etc/security/limits.conf" },
    { "limits.processes", processes, "ulimit -u 65536: LimitNPROC in the unit, or limits.conf" },
    { "limits.pids", pids, "raise pids.max: TasksMax=infinity in the unit, docker run --pids-limit=-1" },
    { "limits.threads", threads, "end what else runs here, or raise kernel.threads-max" },
    { "limits.filesize", file_size, "ulimit -f unlimited" },
    { "limits.address", address_space,
      "ulimit -v unlimited: CUDA and shared memory map far more than they use" },
    { "limits.core", core_dumps, "ulimit -c 0, or send dumps to systemd-coredump" },
    { 0 },
};

#include <stdlib.h>
#include <string.h>

#include "agent/doctor/checks.h"
#include "agent/os/small_file.h"
#include "agent/placement/cpus.h"
#include "agent/placement/topology.h"

/* Count the NUMA nodes of the allowed CPUs, and those among them whose memory this process may not use. */
static void look_at_nodes(struct cpu_facts *cpus, const struct topology *topology,
                          const struct cpu_mask *allowed, const struct doctor_host *host)
{
    struct cpu_mask nodes = { 0 }, cores = { 0 }, memories;
    char status[8192], *list;
    bool known;

    small_file_read(status, sizeof status, "%s/proc/self/status", host->root);
    list = strstr(status, "Mems_allowed_list:");
    if (list != NULL) {
        list += strlen("Mems_allowed_list:");
        list += strspn(list, "\t ");
        list[strcspn(list, "\n")] = '\0';
    }
    known = list != NULL && cpu_mask_read(&memories, list);
    for (int cpu = cpu_mask_next(allowed, -1); cpu >= 0 && cpu < topology->n_cpus;
         cpu = cpu_mask_next(allowed, cpu)) {
        cpu_mask_add(&nodes, topology->cpus[cpu].node);
        cpu_mask_add(&cores, topology->cpus[cpu].core);
    }
    cpus->n_nodes = cpu_mask_count(&nodes);
    cpus->n_cores = cpu_mask_count(&cores);
    for (int node = cpu_mask_next(&nodes, -1); known && node >= 0; node = cpu_mask_next(&nodes, node))
        cpus->n_nodes_far += !cpu_mask_has(&memories, node);
}

/* Looks for `flag` in the flags of the first CPU: "flags : fpu vme ...", with spaces around each. */
static bool has_flag(const char *flags, const char *flag)
{
    const size_t length = strlen(flag);

    for (const char *at = flags; (at = strstr(at, flag)) != NULL; at += length)
        if (at != flags && at[-1] == ' ' && (at[length] == ' ' || at[length] == '\0'))
            return true;
    return false;
}

static void look_at_model(struct cpu_facts *cpus, const struct doctor_host *host)
{
    char text[8192], *flags, *model;

    small_file_read(text, sizeof text, "%s/proc/cpuinfo", host->root);
    model = strstr(text, "model name");
    flags = strstr(text, "\nflags");
    if (flags != NULL) {
        flags++;
        flags[strcspn(flags, "\n")] = '\0';
        /* shard_runtime/numerics needs the same two (rows.c). */
        cpus->avx2 = has_flag(flags, "avx2") && has_flag(flags, "fma");
        cpus->avx512 = has_flag(flags, "avx512f") && has_flag(flags, "avx512bw") &&
                       has_flag(flags, "avx512vl") && has_flag(flags, "avx512dq");
        cpus->amx = has_flag(flags, "amx_bf16");
    }
    if (model != NULL && (model = strchr(model, ':')) != NULL)
        snprintf(cpus->model, sizeof cpus->model, "%.*s", (int)strcspn(model + 2, "\n"), model + 2);
}

void cpu_probe(struct doctor_facts *facts, const struct doctor_host *host)
{
    struct cpu_facts *cpus = &facts->cpus;
    const char *slurm = doctor_env(host, "SLURM_CPUS_ON_NODE"), *isa = doctor_env(host, "FSDP_ISA");
    struct topology *topology;
    struct cpu_mask allowed;
    char text[64];

    cpus_allowed(&allowed);
    cpus->n_allowed = cpu_mask_count(&allowed);
    cpus->n_quota = cpus_quota(host->root);
    if (topology_read(&topology, host->root, NULL) == FSDP_OK) {
        for (int i = 0; i < topology->n_cpus; i++)
            cpus->n_online += topology->cpus[i].online;
        look_at_nodes(cpus, topology, &allowed, host);
        free(topology);
    }
    look_at_model(cpus, host);
    doctor_line(host, cpus->governor, sizeof cpus->governor,
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
    doctor_line(host, cpus->driver, sizeof cpus->driver,
                "/sys/devices/system/cpu/cpu0/cpufreq/scaling_driver");
    cpus->load = doctor_line(host, text, sizeof text, "/proc/loadavg") ? strtod(text, NULL) : -1.0;
    snprintf(cpus->wanted_isa, sizeof cpus->wanted_isa, "%s", isa != NULL ? isa : "");
    cpus->slurm_cpus = slurm != NULL ? atoi(slurm) : 0;
}

static enum doctor_state allowed_cpus(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct cpu_facts *cpus = &facts->cpus;

    if (cpus->slurm_cpus > cpus->n_allowed)
        return doctor_say(DOCTOR_WARN, value, "%d CPUs may be used, and Slurm gave the job %d",
                          cpus->n_allowed, cpus->slurm_cpus);
    return doctor_say(DOCTOR_OK, value, "%d of %d may be used: %d cores in %d NUMA node%s", cpus->n_allowed,
                      cpus->n_online, cpus->n_cores, cpus->n_nodes, cpus->n_nodes == 1 ? "" : "s");
}

static enum doctor_state quota(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct cpu_facts *cpus = &facts->cpus;

    if (cpus->n_quota == 0)
        return DOCTOR_NOTHING;
    return doctor_say(cpus->n_quota < cpus->n_allowed ? DOCTOR_WARN : DOCTOR_OK, value,
                      "the control group allows the time of %d CPUs, on %d", cpus->n_quota, cpus->n_allowed);
}

static enum doctor_state far_memory(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct cpu_facts *cpus = &facts->cpus;

    if (cpus->n_nodes < 2 && cpus->n_nodes_far == 0)
        return DOCTOR_NOTHING;
    return cpus->n_nodes_far > 0
               ? doctor_say(DOCTOR_WARN, value, "the memory of %d of the %d nodes may not be used",
                            cpus->n_nodes_far, cpus->n_nodes)
               : doctor_say(DOCTOR_OK, value, "the memory of all %d nodes may be used", cpus->n_nodes);
}

/*
 * Follows the trainer's own choice: the best instruction set that the CPU has, or the one that FSDP_ISA
 * names.
 */
static enum doctor_state instructions(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct cpu_facts *cpus = &facts->cpus;
    const char *best = cpus->avx512 ? "avx512" : cpus->avx2 ? "avx2" : "base", *wanted = cpus->wanted_isa;
    const bool lacks =
        (strcmp(wanted, "avx512") == 0 && !cpus->avx512) || (strcmp(wanted, "avx2") == 0 && !cpus->avx2);

    if (cpus->model[0] == '\0')
        return DOCTOR_NOTHING;
    if (wanted[0] != '\0' && strcmp(wanted, best) != 0)
        return doctor_say(lacks ? DOCTOR_FAIL : DOCTOR_WARN, value, "%s: FSDP_ISA=%s, and the CPU has %s",
                          cpus->model, wanted, best);
    return doctor_say(cpus->avx512 || cpus->avx2 ? DOCTOR_OK : DOCTOR_WARN, value, "%s: %s%s", cpus->model,
                      best, cpus->amx ? ", AMX" : "");
}

/* "powersave" of the newer drivers of Intel and AMD is no reason to warn: it raises the clock under load. */
static enum doctor_state governor(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct cpu_facts *cpus = &facts->cpus;
    const bool low = strcmp(cpus->governor, "powersave") == 0 && strcmp(cpus->driver, "intel_pstate") != 0 &&
                     strncmp(cpus->driver, "amd-pstate-epp", 14) != 0;

    if (cpus->governor[0] == '\0')
        return DOCTOR_NOTHING;
    return doctor_say(low ? DOCTOR_WARN : DOCTOR_OK, value, "%s (%s)", cpus->governor, cpus->driver);
}

static enum doctor_state load(const struct doctor_facts *facts, char value[DOCTOR_VALUE_BYTES])
{
    const struct cpu_facts *cpus = &facts->cpus;

    if (cpus->load < 0.0 || cpus->n_online == 0)
        return DOCTOR_NOTHING;
    return doctor_say(cpus->load > (double)cpus->n_online ? DOCTOR_WARN : DOCTOR_OK, value,
                      "load %.1f on %d CPUs", cpus->load, cpus->n_online);
}

const struct doctor_check cpu_checks[] = {
    { "cpus.allowed", allowed_cpus, "srun --cpus-per-task=N: sbatch's value does not reach a step" },
    { "cpus.quota", quota,
      "all ranks stand still when the time of a period is used up: set whole CPUs (cpuset) instead" },
    { "cpus.memory", far_memory, "let the cpuset have the memory of its nodes (cpuset.mems)" },
    { "cpus.instructions", instructions,
      "training on CPUs will be slow: unset FSDP_ISA; of a virtual machine, pass the host's CPU through" },
    { "cpus.governor", governor, "cpupower frequency-set -g performance" },
    { "cpus.load", load, "something else computes here: steps will take longer, and vary" },
    { 0 },
};

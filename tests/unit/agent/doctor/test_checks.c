/*
 * What the checks of the doctor say of machines in trouble. Each check is seen to pass and to complain.
 */
#include "agent/doctor/checks.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>

static struct doctor_facts facts;

enum { MOST_SEEN = 512 };
static struct {
    const char *check;
    enum doctor_state state;
} seen[MOST_SEEN];
static int n_seen;

static const struct doctor_check *find(const char *name)
{
    for (size_t i = 0; i < doctor_n_groups; i++)
        for (const struct doctor_check *check = doctor_groups[i].checks; check->name != NULL; check++)
            if (strcmp(check->name, name) == 0)
                return check;
    cr_assert(false, "no check %s", name);
    return NULL;
}

/* The check judges the facts so, and its value has these words. */
static void says(const char *check, enum doctor_state state, const char *words)
{
    char value[DOCTOR_VALUE_BYTES] = "";
    const enum doctor_state found = find(check)->judge(&facts, value);

    cr_expect_eq(found, state, "%s: \"%s\" of \"%s\"", check, doctor_state_name(found), value);
    cr_expect_not_null(strstr(value, words), "%s: \"%s\" lacks \"%s\"", check, value, words);
    cr_assert_lt(n_seen, MOST_SEEN);
    seen[n_seen].check = check;
    seen[n_seen++].state = state;
}

static void disk_cases(void)
{
    struct disk_facts *disk = &facts.disk;

    *disk = (struct disk_facts){ .path = "/runs",
                                 .type = "nfs4",
                                 .source = "store:/runs",
                                 .options = "rw,hard,vers=4.2",
                                 .free_bytes = INT64_C(1) << 40,
                                 .size_bytes = INT64_C(1) << 41,
                                 .free_inodes = 1000000,
                                 .write_bytes_per_s = 900000000,
                                 .sync_us = 800,
                                 .temporary = "/tmp",
                                 .temporary_free_bytes = INT64_C(5) << 30 };
    says("disk.writable", DOCTOR_OK, "/runs");
    says("disk.space", DOCTOR_OK, "1.0 TiB free of 2.0 TiB");
    says("disk.inodes", DOCTOR_OK, "1000000");
    says("disk.sync", DOCTOR_OK, "900 MB/s");
    says("disk.kept", DOCTOR_OK, "nfs4, a network file system (store:/runs)");
    says("disk.lock", DOCTOR_OK, "flock works");
    says("disk.hard", DOCTOR_OK, "hard");
    says("disk.temporary", DOCTOR_OK, "5.0 GiB free in /tmp");

    disk->free_bytes = INT64_C(5) << 30;
    says("disk.space", DOCTOR_WARN, "5.0 GiB");
    disk->free_bytes = 4096;
    says("disk.space", DOCTOR_FAIL, "4.0 KiB");
    disk->free_inodes = 9999;
    says("disk.inodes", DOCTOR_WARN, "9999");
    disk->free_inodes = 0;
    says("disk.inodes", DOCTOR_FAIL, "0 files");
    disk->free_inodes = -1; /* btrfs */
    says("disk.inodes", DOCTOR_NOTHING, "");
    disk->write_bytes_per_s = 20000000;
    says("disk.sync", DOCTOR_WARN, "20 MB/s");
    disk->write_bytes_per_s = 1000000;
    says("disk.sync", DOCTOR_FAIL, "1 MB/s");
    disk->write_bytes_per_s = 900000000;
    disk->sync_us = 2000000;
    says("disk.sync", DOCTOR_FAIL, "2000.0 ms");
    disk->sync_us = 200000;
    says("disk.sync", DOCTOR_WARN, "200.0 ms");
    disk->write_error = ENOSPC;
    says("disk.sync", DOCTOR_FAIL, "No space left");
    strcpy(disk->options, "rw,soft,nolock");
    says("disk.hard", DOCTOR_WARN, "soft");
    says("disk.lock", DOCTOR_WARN, "nolock");
    strcpy(disk->options, "rw,softreval,local_lock=none"); /* neither is what it begins like */
    says("disk.hard", DOCTOR_OK, "hard");
    says("disk.lock", DOCTOR_OK, "works");
    disk->lock_error = ENOSYS;
    says("disk.lock", DOCTOR_FAIL, "not implemented");
    strcpy(disk->type, "tmpfs");
    says("disk.kept", DOCTOR_WARN, "tmpfs");
    says("disk.hard", DOCTOR_NOTHING, "");
    disk->make_error = EROFS;
    says("disk.writable", DOCTOR_FAIL, "/runs: Read-only");
    says("disk.sync", DOCTOR_NOTHING, "");
    disk->temporary_free_bytes = INT64_C(100) << 20;
    says("disk.temporary", DOCTOR_WARN, "100 MiB");
    disk->temporary_error = EACCES;
    says("disk.temporary", DOCTOR_FAIL, "/tmp: Permission denied");
}

static void memory_cases(void)
{
    struct memory_facts *memory = &facts.memory;

    *memory = (struct memory_facts){ .total_bytes = INT64_C(64) << 30,
                                     .available_bytes = INT64_C(60) << 30,
                                     .group_limit_bytes = -1,
                                     .shm_size_bytes = INT64_C(32) << 30,
                                     .shm_free_bytes = INT64_C(32) << 30,
                                     .shm_writable = true,
                                     .memlock_bytes = -1,
                                     .n_infiniband = 2,
                                     .transparent_huge_pages = "madvise",
                                     .huge_bytes = INT64_C(1) << 30,
                                     .can_memfd = true,
                                     .sees_oom_kills = true };
    says("memory.available", DOCTOR_OK, "60.0 GiB available of 64.0 GiB");
    says("memory.shm", DOCTOR_OK, "32.0 GiB");
    says("memory.memfd", DOCTOR_OK, "works");
    says("memory.memlock", DOCTOR_OK, "unlimited");
    says("memory.hugepages", DOCTOR_OK, "0 B");
    says("memory.transparent", DOCTOR_OK, "madvise");
    says("memory.overcommit", DOCTOR_OK, "0");
    says("memory.oom", DOCTOR_OK, "named");

    memory->available_bytes = INT64_C(10) << 30;
    says("memory.available", DOCTOR_WARN, "10.0 GiB available of 64.0 GiB");
    memory->available_bytes = INT64_C(1) << 30;
    says("memory.available", DOCTOR_FAIL, "1.0 GiB");
    memory->available_bytes = INT64_C(60) << 30; /* ... but not to this group */
    memory->group_limit_bytes = INT64_C(8) << 30;
    memory->group_used_bytes = INT64_C(7) << 30;
    says("memory.available", DOCTOR_WARN, "1.0 GiB available of 8.0 GiB, the limit of the control group");
    memory->group_used_bytes = INT64_C(9) << 30;
    says("memory.available", DOCTOR_FAIL, "0 B");
    memory->shm_free_bytes = memory->shm_size_bytes = INT64_C(64) << 20; /* Docker's */
    says("memory.shm", DOCTOR_WARN, "64.0 MiB free");
    memory->shm_writable = false;
    says("memory.shm", DOCTOR_WARN, "may not be written");
    memory->shm_size_bytes = -1;
    says("memory.shm", DOCTOR_WARN, "missing");
    memory->can_memfd = false;
    says("memory.memfd", DOCTOR_FAIL, "memfd_create");
    memory->memlock_bytes = INT64_C(8) << 20;
    says("memory.memlock", DOCTOR_FAIL, "8.0 MiB");
    memory->memlock_bytes = INT64_C(8) << 30;
    says("memory.memlock", DOCTOR_WARN, "8.0 GiB");
    memory->n_infiniband = 0;
    says("memory.memlock", DOCTOR_NOTHING, "");
    memory->huge_free_bytes = INT64_C(16) << 30;
    says("memory.hugepages", DOCTOR_WARN, "16.0 GiB");
    strcpy(memory->transparent_huge_pages, "never");
    says("memory.transparent", DOCTOR_WARN, "never");
    memory->overcommit = 2;
    says("memory.overcommit", DOCTOR_WARN, "2");
    memory->sees_oom_kills = false;
    says("memory.oom", DOCTOR_WARN, "SIGKILL");
}

static void limit_cases(void)
{
    struct limit_facts *limits = &facts.limits;

    *limits = (struct limit_facts){ .nofile = -1,
                                    .nofile_soft = 1024,
                                    .nproc = 60000,
                                    .n_threads = 400,
                                    .pids_max = 10000,
                                    .pids_now = 10,
                                    .threads_max = 100000,
                                    .file_bytes = -1,
                                    .address_bytes = -1,
                                    .core_pattern = "core" };
    says("limits.files", DOCTOR_OK, "unlimited for fsdprun, 1024 for a worker");
    says("limits.processes", DOCTOR_OK, "60000");
    says("limits.pids", DOCTOR_OK, "9990 of 10000");
    says("limits.threads", DOCTOR_OK, "99600");
    says("limits.filesize", DOCTOR_OK, "no limit");
    says("limits.address", DOCTOR_OK, "no limit");
    says("limits.core", DOCTOR_OK, "none");

    limits->nofile_soft = 256;
    says("limits.files", DOCTOR_WARN, "256");
    limits->nofile = 256;
    says("limits.files", DOCTOR_FAIL, "256");
    limits->nproc = 1000;
    says("limits.processes", DOCTOR_WARN, "1000");
    limits->nproc = 100;
    says("limits.processes", DOCTOR_FAIL, "100");
    limits->pids_max = 512;
    says("limits.pids", DOCTOR_WARN, "502 of 512");
    limits->pids_now = 600; /* it was lowered while they ran */
    says("limits.pids", DOCTOR_FAIL, "-88");
    limits->n_threads = 99000;
    says("limits.threads", DOCTOR_WARN, "1000");
    limits->n_threads = 100001;
    says("limits.threads", DOCTOR_FAIL, "-1");
    limits->file_bytes = INT64_C(1) << 30;
    says("limits.filesize", DOCTOR_FAIL, "1.0 GiB");
    limits->address_bytes = INT64_C(1) << 30;
    says("limits.address", DOCTOR_FAIL, "1.0 GiB");
    limits->address_bytes = INT64_C(1) << 40;
    says("limits.address", DOCTOR_WARN, "1.0 TiB");
    limits->core_bytes = -1;
    says("limits.core", DOCTOR_WARN, "its directory, core");
    strcpy(limits->core_pattern, "|/usr/lib/systemd/systemd-coredump %P");
    says("limits.core", DOCTOR_OK, "systemd-coredump");
}

static void clock_cases(void)
{
    struct clock_facts *clock = &facts.clock;

    *clock = (struct clock_facts){ .known = true,
                                   .synchronised = true,
                                   .error_us = 1500,
                                   .now_s = 1800000000,
                                   .program_s = 1799999999,
                                   .source = "tsc" };
    says("clock.synchronised", DOCTOR_OK, "1.5 ms");
    says("clock.date", DOCTOR_OK, "after");
    says("clock.source", DOCTOR_OK, "tsc");

    clock->error_us = 3000000;
    says("clock.synchronised", DOCTOR_WARN, "3000.0 ms");
    clock->synchronised = false;
    says("clock.synchronised", DOCTOR_WARN, "no daemon");
    clock->known = false; /* a seccomp profile */
    says("clock.synchronised", DOCTOR_NOTHING, "");
    clock->now_s = 0;
    says("clock.date", DOCTOR_FAIL, "20833 days before");
    strcpy(clock->source, "acpi_pm");
    says("clock.source", DOCTOR_WARN, "acpi_pm");
}

static void kernel_cases(void)
{
    struct kernel_facts *kernel = &facts.kernel;

    *kernel =
        (struct kernel_facts){ .release = "6.1.0", .close_range = true, .subreaper = true, .n_jobs = 1 };
    says("kernel.supervision", DOCTOR_OK, "6.1.0");
    says("kernel.close_range", DOCTOR_OK, "works");
    says("kernel.inotify", DOCTOR_OK, "watched");
    says("kernel.registry", DOCTOR_OK, "1 job of this user runs here");

    kernel->subreaper = false;
    says("kernel.supervision", DOCTOR_FAIL, "adopt");
    strcpy(kernel->lacks, "this system lacks pidfd_open");
    says("kernel.supervision", DOCTOR_FAIL, "pidfd_open");
    kernel->close_range = false;
    says("kernel.close_range", DOCTOR_WARN, "inherit");
    kernel->inotify_error = EMFILE;
    says("kernel.inotify", DOCTOR_WARN, "Too many");
    strcpy(kernel->commands_error, "/tmp/fsdprun-1 is a symbolic link");
    says("kernel.registry", DOCTOR_WARN, "symbolic link");
}

static void cpu_cases(void)
{
    struct cpu_facts *cpus = &facts.cpus;

    *cpus = (struct cpu_facts){ .model = "Xeon",
                                .n_online = 64,
                                .n_allowed = 32,
                                .n_quota = 32,
                                .n_cores = 16,
                                .n_nodes = 2,
                                .avx2 = true,
                                .avx512 = true,
                                .amx = true,
                                .governor = "performance",
                                .driver = "acpi-cpufreq",
                                .load = 63.0 };
    says("cpus.allowed", DOCTOR_OK, "32 of 64 may be used: 16 cores in 2 NUMA nodes");
    says("cpus.quota", DOCTOR_OK, "32 CPUs, on 32");
    says("cpus.memory", DOCTOR_OK, "all 2 nodes");
    says("cpus.instructions", DOCTOR_OK, "Xeon: avx512, AMX");
    says("cpus.governor", DOCTOR_OK, "performance");
    says("cpus.load", DOCTOR_OK, "63.0 on 64");

    cpus->slurm_cpus = 64;
    says("cpus.allowed", DOCTOR_WARN, "32 CPUs may be used, and Slurm gave the job 64");
    cpus->n_quota = 4;
    says("cpus.quota", DOCTOR_WARN, "4 CPUs, on 32");
    cpus->n_quota = 0;
    says("cpus.quota", DOCTOR_NOTHING, "");
    cpus->n_nodes_far = 1;
    says("cpus.memory", DOCTOR_WARN, "1 of the 2");
    cpus->avx512 = cpus->amx = false;
    says("cpus.instructions", DOCTOR_OK, "avx2");
    strcpy(cpus->wanted_isa, "base");
    says("cpus.instructions", DOCTOR_WARN, "FSDP_ISA=base, and the CPU has avx2");
    strcpy(cpus->wanted_isa, "avx512");
    says("cpus.instructions", DOCTOR_FAIL, "FSDP_ISA=avx512");
    cpus->wanted_isa[0] = '\0';
    cpus->avx2 = false;
    says("cpus.instructions", DOCTOR_WARN, "base");
    strcpy(cpus->governor, "powersave");
    says("cpus.governor", DOCTOR_WARN, "powersave (acpi-cpufreq)");
    strcpy(cpus->driver, "intel_pstate"); /* whose powersave raises the clock */
    says("cpus.governor", DOCTOR_OK, "powersave");
    cpus->load = 65.0;
    says("cpus.load", DOCTOR_WARN, "65.0");
}

static void gpu_cases(void)
{
    struct gpu_facts *gpus = &facts.gpus;

    *gpus = (struct gpu_facts){ .n_listed = -1 };
    says("gpus.found", DOCTOR_OK, "none");
    says("gpus.driver", DOCTOR_NOTHING, "");
    *gpus = (struct gpu_facts){ .n_pci = 2, .n_listed = -1, .why = "no driver" };
    says("gpus.driver", DOCTOR_FAIL, "2 NVIDIA GPUs, and no driver");
    says("gpus.found", DOCTOR_FAIL, "none of 2: no driver");
    *gpus = (struct gpu_facts){
        .n_pci = 2,
        .n_visible = 2,
        .driver = "550.54",
        .n_listed = 2,
        .n_sampled = 2,
        .samples = { { .index = 0, .temperature_c = 60, .persistence = 1 },
                     { .index = 1, .temperature_c = 70, .persistence = 1, .pci = "0000:5e:00.0" } },
        .log_readable = true
    };
    says("gpus.driver", DOCTOR_OK, "550.54");
    says("gpus.found", DOCTOR_OK, "2");
    says("gpus.nvml", DOCTOR_OK, "2 GPUs");
    says("gpus.clocks", DOCTOR_OK, "70 C");
    says("gpus.ecc", DOCTOR_OK, "no uncorrected");
    says("gpus.memory", DOCTOR_OK, "no GPU");
    says("gpus.persistence", DOCTOR_OK, "on");
    says("gpus.xid", DOCTOR_OK, "none");

    gpus->n_listed = 1;
    says("gpus.found", DOCTOR_FAIL, "1 of the 2");
    gpus->n_listed = 2;
    strcpy(gpus->why, "CUDA_VISIBLE_DEVICES=0,7 ends at 7");
    says("gpus.found", DOCTOR_WARN, "ends at 7");
    gpus->samples[1].temperature_c = 90;
    says("gpus.clocks", DOCTOR_WARN, "90 C");
    gpus->samples[1].throttle_reasons = 0x40;
    says("gpus.clocks", DOCTOR_WARN, "GPU 1 (0000:5e:00.0): slowed down");
    gpus->samples[1].ecc_uncorrected = 3;
    says("gpus.ecc", DOCTOR_FAIL, "3 uncorrected");
    gpus->samples[0].ecc_uncorrected = gpus->samples[1].ecc_uncorrected = -1;
    says("gpus.ecc", DOCTOR_WARN, "not be noticed");
    gpus->samples[1].memory_used_bytes = INT64_C(20) << 30;
    says("gpus.memory", DOCTOR_WARN, "20.0 GiB");
    gpus->samples[1].persistence = 0;
    says("gpus.persistence", DOCTOR_WARN, "0000:5e:00.0");
    gpus->n_xids = 2;
    gpus->last_xid = 79;
    strcpy(gpus->xid_pci, "0000:3b:00");
    says("gpus.xid", DOCTOR_WARN, "the last 79 of GPU 0000:3b:00");
    strcpy(gpus->nvml_error, "NVML: Driver/library version mismatch");
    says("gpus.nvml", DOCTOR_FAIL, "mismatch");
}

static void library_cases(void)
{
    struct library_facts *libraries = &facts.libraries;

    *libraries = (struct library_facts){ .python = "3.11.2", .torch = "2.5.1+cpu", .torch_cuda = "None" };
    says("libraries.cuda", DOCTOR_NOTHING, ""); /* no GPU: none is needed */
    says("libraries.python", DOCTOR_OK, "PyTorch 2.5.1+cpu for CPUs only");
    libraries->wanted = true;
    says("libraries.python", DOCTOR_WARN, "CPUs only");
    libraries->needs_tls = true;
    libraries->of[LIBRARY_CUDA] = (struct library_fact){ .name = "libcuda.so.1", .version = 12040 };
    libraries->of[LIBRARY_PLUGIN] = (struct library_fact){ .name = "libfsdp_cuda.so" };
    libraries->of[LIBRARY_NCCL] = (struct library_fact){ .name = "libnccl.so.2", .version = 22105 };
    libraries->of[LIBRARY_CUDNN] = (struct library_fact){ .name = "libcudnn.so.9", .version = 90100 };
    libraries->cublaslt_version = 120401;
    says("libraries.cuda", DOCTOR_OK, "for CUDA 12.4");
    says("libraries.plugin", DOCTOR_OK, "cuBLASLt 12.4.1");
    says("libraries.nccl", DOCTOR_OK, "2.21.5");
    says("libraries.cudnn", DOCTOR_OK, "9.1.0");
    says("libraries.tls", DOCTOR_OK, "OpenSSL");

    libraries->of[LIBRARY_NCCL].version = 21602;
    says("libraries.nccl", DOCTOR_FAIL, "2.16.2 is older");
    for (int i = 0; i < DOCTOR_LIBRARIES; i++)
        strcpy(libraries->of[i].error, "cannot open shared object file");
    libraries->of[LIBRARY_NCCL].version = 0;
    says("libraries.cuda", DOCTOR_FAIL, "cannot open");
    says("libraries.plugin", DOCTOR_FAIL, "cannot open");
    says("libraries.nccl", DOCTOR_WARN, "cannot open");
    says("libraries.cudnn", DOCTOR_WARN, "cannot open");
    strcpy(libraries->tls_error, "libssl.so.3: cannot open");
    says("libraries.tls", DOCTOR_FAIL, "libssl");
    libraries->python_late = true;
    says("libraries.python", DOCTOR_WARN, "4.0 s");
}

static void install_cases(void)
{
    struct install_facts *install = &facts.install;

    *install = (struct install_facts){ .version = "0.1.0",
                                       .agent = "0.1.0",
                                       .trainer = "0.1.0",
                                       .library = "0.1.0",
                                       .on_path = "/usr/bin/fsdprun",
                                       .on_path_is_this = true,
                                       .slurm_job = "42",
                                       .slurm_step = true,
                                       .slurm_nodes = 2 };
    says("install.trainer", DOCTOR_OK, "fsdp-train 0.1.0");
    says("install.agent", DOCTOR_OK, "fsdp-agent 0.1.0");
    says("install.library", DOCTOR_OK, "0.1.0");
    says("install.path", DOCTOR_OK, "/usr/bin/fsdprun");
    says("slurm.step", DOCTOR_OK, "job 42");
    says("systemd.logout", DOCTOR_NOTHING, "");

    strcpy(install->trainer, "0.0.9");
    says("install.trainer", DOCTOR_FAIL, "0.0.9 beside fsdprun 0.1.0");
    strcpy(install->trainer, "fsdp-train: No such file or directory");
    says("install.trainer", DOCTOR_FAIL, "No such file");
    strcpy(install->agent, "0.2.0");
    says("install.agent", DOCTOR_WARN, "0.2.0");
    strcpy(install->library, "0.2.0");
    says("install.library", DOCTOR_WARN, "0.2.0");
    install->on_path_is_this = false;
    says("install.path", DOCTOR_WARN, "another");
    install->on_path[0] = '\0';
    says("install.path", DOCTOR_WARN, "not on PATH");
    install->slurm_step = false;
    says("slurm.step", DOCTOR_WARN, "no step of srun");
    install->killed_at_logout = true;
    says("systemd.logout", DOCTOR_WARN, "killed");
}

static void network_cases(void)
{
    struct network_facts *network = &facts.network;

    *network = (struct network_facts){ .host = "n0",
                                       .host_address = "10.0.0.1",
                                       .n_nodes = 2,
                                       .endpoint = "n0",
                                       .port = 29400,
                                       .endpoint_is_here = true,
                                       .interface = "eth0",
                                       .interface_mbit = 100000,
                                       .interface_mtu = 9000,
                                       .interface_packets = 1000000,
                                       .n_infiniband = 2,
                                       .n_infiniband_active = 2 };
    says("network.hostname", DOCTOR_OK, "n0 is 10.0.0.1");
    says("network.endpoint", DOCTOR_OK, "this host");
    says("network.port", DOCTOR_OK, "29400 is free");
    says("network.interface", DOCTOR_OK, "100000 Mbit/s, MTU 9000");
    says("network.errors", DOCTOR_OK, "0 errors");
    says("network.infiniband", DOCTOR_OK, "2 ports");

    strcpy(network->host_address, "127.0.1.1"); /* Debian's /etc/hosts */
    network->host_is_loopback = true;
    says("network.hostname", DOCTOR_WARN, "loopback");
    network->n_nodes = 1;
    says("network.hostname", DOCTOR_OK, "127.0.1.1");
    strcpy(network->host_error, "Name or service not known");
    says("network.hostname", DOCTOR_WARN, "n0 does not resolve");
    network->port_error = EADDRINUSE;
    says("network.port", DOCTOR_FAIL, "29400: Address already in use");
    network->endpoint[0] = '\0'; /* the default port, which may never be used */
    says("network.port", DOCTOR_WARN, "in use");
    strcpy(network->endpoint, "n7");
    strcpy(network->endpoint_error, "Name or service not known");
    says("network.endpoint", DOCTOR_FAIL, "n7: Name");
    network->interface_mbit = 100;
    says("network.interface", DOCTOR_WARN, "100 Mbit/s");
    network->interface_errors = 5000;
    says("network.errors", DOCTOR_WARN, "5000 errors");
    network->interface[0] = '\0';
    says("network.interface", DOCTOR_NOTHING, "");
    network->n_nodes = 2;
    says("network.interface", DOCTOR_FAIL, "lo");
    network->n_infiniband_active = 1;
    strcpy(network->infiniband_down, "mlx5_1/1 (1: DOWN)");
    says("network.infiniband", DOCTOR_WARN, "1 of 2 ports are active; not mlx5_1/1 (1: DOWN)");
}

static void (*const cases[])(void) = {
    disk_cases, memory_cases, limit_cases,   clock_cases,   kernel_cases,
    cpu_cases,  gpu_cases,    library_cases, install_cases, network_cases
};

static bool was_seen(const char *check, bool complains)
{
    for (int i = 0; i < n_seen; i++)
        if (strcmp(seen[i].check, check) == 0 && (seen[i].state > DOCTOR_OK) == complains)
            return true;
    return false;
}

/* A check that cannot complain, or has no advice, is not worth its line. */
Test(doctor_checks, each_passes_on_a_good_machine_and_complains_of_a_bad_one)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cases[i]();

    for (size_t i = 0; i < doctor_n_groups; i++)
        for (const struct doctor_check *check = doctor_groups[i].checks; check->name != NULL; check++) {
            cr_expect(was_seen(check->name, false), "%s was never seen to pass", check->name);
            cr_expect(was_seen(check->name, true), "%s was never seen to complain", check->name);
            cr_expect(check->advice != NULL && strlen(check->advice) < DOCTOR_ADVICE_BYTES, "%s",
                      check->name);
            cr_expect(strlen(check->name) < DOCTOR_NAME_BYTES);
        }
}

Test(doctor_checks, an_xid_is_read_from_the_kernels_log_and_nothing_else_is)
{
    char pci[GPU_HEALTH_PCI_BYTES];
    int xid;

    cr_expect(gpu_read_xid("4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen", &xid, pci));
    cr_expect_eq(xid, 79);
    cr_expect_str_eq(pci, "0000:3b:00");
    cr_expect_not(gpu_read_xid("4,1,2,-;NVRM: loading NVIDIA UNIX x86_64 Kernel Module", &xid, pci));
    cr_expect_not(gpu_read_xid("NVRM: Xid (PCI:0000:3b:00): ", &xid, pci));
    cr_expect_not(gpu_read_xid("NVRM: Xid (PCI:): 79", &xid, pci));
}

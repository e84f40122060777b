/*
 * The probes, on machines of files, and the processes that they run in.
 */
#include "agent/doctor/doctor.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/doctor/checks.h"
#include "shard_runtime/core/clock.h"
#include "tests/unit/agent/placement/fake_root.h"

static char root[FAKE_ROOT_BYTES];
static struct doctor_host host;
static struct doctor_report report;
static const char *visible, *slurm_cpus;

static const char *get_env(void *arg, const char *name)
{
    return strcmp(name, "CUDA_VISIBLE_DEVICES") == 0 ? visible
           : strcmp(name, "SLURM_CPUS_ON_NODE") == 0 ? slurm_cpus
           : strcmp(name, "TMPDIR") == 0             ? root
                                                     : NULL;
}

static int run_nothing(const char *const argv[], int64_t timeout_ms, char *out, size_t size)
{
    out[0] = '\0';
    return DOCTOR_RUN_NOT_FOUND;
}

static int run_and_die(const char *const argv[], int64_t timeout_ms, char *out, size_t size)
{
    if (strcmp(argv[0], "python3") == 0)
        raise(SIGKILL);
    return run_nothing(argv, timeout_ms, out, size);
}

static void begin(void)
{
    fake_root_make(root);
    host = (struct doctor_host){ .root = root,
                                 .nvml = BUILD_DIR "/test/fake_nvml",
                                 .get_env = get_env,
                                 .own_path = BUILD_DIR "/bin/fsdprun",
                                 .run_dir = root,
                                 .n_nodes = 1,
                                 .run = run_nothing };
}

static void end(void)
{
    doctor_report_fini(&report);
    fake_root_remove(root);
}

TestSuite(doctor, .init = begin, .fini = end, .timeout = 600);

static void examine(void)
{
    doctor_report_fini(&report);
    cr_assert(doctor_examine(&report, &host));
}

/* The row of this check has the state, and these words in its value. */
static void says(const char *check, enum doctor_state state, const char *words)
{
    for (size_t i = 0; i < report.n; i++) {
        if (strcmp(report.rows[i].check, check) != 0)
            continue;
        cr_expect_eq(report.rows[i].state, state, "%s: %s", check, report.rows[i].value);
        cr_expect_not_null(strstr(report.rows[i].value, words), "%s: \"%s\" lacks \"%s\"", check,
                           report.rows[i].value, words);
        return;
    }
    cr_expect(false, "no row %s", check);
}

Test(doctor, a_small_container_is_seen_to_be_one)
{
    fake_root_add(root, "0::/docker/a\n", "/proc/self/cgroup");
    fake_root_add(root,
                  "MemTotal: 67108864 kB\nMemAvailable: 66000000 kB\nHugePages_Total: 1024\n"
                  "HugePages_Free: 1024\nHugepagesize: 1048576 kB\n",
                  "/proc/meminfo");
    fake_root_add(root, "max\n", "/sys/fs/cgroup/docker/a/memory.max");
    fake_root_add(root, "1073741824\n", "/sys/fs/cgroup/docker/memory.max"); /* above our own group */
    fake_root_add(root, "1000000000\n", "/sys/fs/cgroup/docker/memory.current");
    fake_root_add(root, "100\n", "/sys/fs/cgroup/docker/a/pids.max");
    fake_root_add(root, "90\n", "/sys/fs/cgroup/docker/a/pids.current");
    fake_root_add(root, "always madvise [never]\n", "/sys/kernel/mm/transparent_hugepage/enabled");
    fake_root_add(root, "2\n", "/proc/sys/vm/overcommit_memory");
    fake_root_add(root, "jiffies\n", "/sys/devices/system/clocksource/clocksource0/current_clocksource");
    fake_root_add(root, "100.0 1 1 1/900 4242\n", "/proc/loadavg");
    fake_root_add(root, "1000\n", "/proc/sys/kernel/threads-max");
    fake_root_add(root, "0-1\n", "/sys/devices/system/cpu/online");
    fake_root_add(root, "processor : 0\nmodel name : Old CPU\nflags : fpu sse2 avx2x\n", "/proc/cpuinfo");
    slurm_cpus = "4096";

    examine();

    says("memory.available", DOCTOR_FAIL, "of 1.0 GiB, the limit of the control group");
    says("memory.hugepages", DOCTOR_WARN, "1.0 TiB");
    says("memory.transparent", DOCTOR_WARN, "never");
    says("memory.overcommit", DOCTOR_WARN, "2");
    says("memory.oom", DOCTOR_WARN, "SIGKILL");
    says("limits.pids", DOCTOR_FAIL, "10 of 100");
    says("limits.threads", DOCTOR_FAIL, "100 of 1000");
    says("clock.source", DOCTOR_WARN, "jiffies");
    says("cpus.load", DOCTOR_WARN, "100.0 on 2");
    says("cpus.instructions", DOCTOR_WARN, "Old CPU: base");
    says("cpus.allowed", DOCTOR_WARN, "4096");
    says("gpus.found", DOCTOR_OK, "none");
    says("disk.writable", DOCTOR_OK, root);
}

Test(doctor, the_mount_of_the_run_directory_is_found)
{
    char mounts[1024];

    snprintf(mounts, sizeof mounts,
             "1 0 8:1 / / rw - ext4 /dev/a rw\n"
             "2 1 0:2 / %s rw shared:1 - nfs4 store:/x rw,soft,local_lock=all\n"
             "3 1 0:3 / %sx rw - tmpfs other rw\n",
             root, root);
    fake_root_add(root, mounts, "/proc/self/mountinfo");
    host.run_dir = "/tmp/../nowhere/at/all";
    examine();
    says("disk.kept", DOCTOR_OK, "ext4 (/dev/a)");
    host.run_dir = root;
    examine();
    says("disk.kept", DOCTOR_OK, "nfs4, a network file system (store:/x)");
    says("disk.hard", DOCTOR_WARN, "soft");
    says("disk.lock", DOCTOR_WARN, "local_lock=all");
}

static void add_gpu(const char *pci, int minor)
{
    fake_root_add(root, "0x10de\n", "/sys/bus/pci/devices/%s/vendor", pci);
    fake_root_add(root, "0x030200\n", "/sys/bus/pci/devices/%s/class", pci);
    fake_root_add(root, "Device Minor: 0\n", "/proc/driver/nvidia/gpus/%s/information", pci);
    fake_root_add(root, "", "/dev/nvidia%d", minor);
}

Test(doctor, gpus_in_trouble_are_named)
{
    char state[128];

    fake_root_add(root, "0x10de\n", "/sys/bus/pci/devices/0000:3b:00.0/vendor");
    fake_root_add(root, "0x030200\n", "/sys/bus/pci/devices/0000:3b:00.0/class");
    examine();
    says("gpus.driver", DOCTOR_FAIL, "1 NVIDIA GPUs, and no driver");
    says("libraries.cuda", DOCTOR_FAIL, "libcuda.so.1");

    add_gpu("0000:3b:00.0", 0);
    fake_root_add(root, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue\n",
                  "/proc/driver/nvidia/version");
    fake_root_add(root,
                  "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 63, pid=1\n"
                  "4,1,2,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=1\n",
                  "/dev/kmsg");
    fake_root_add(root, "7\n", "/state/ecc");
    fake_root_add(root, "64\n", "/state/throttle");
    fake_root_add(root, "1\n", "/state/not_persistent");
    fake_root_add(root, "10737418240\n", "/state/memory");
    snprintf(state, sizeof state, "%s/state", root);
    setenv("FAKE_NVML_STATE", state, 1);
    setenv("FAKE_NVML", "GPU-aa@3b", 1);
    examine();
    says("gpus.driver", DOCTOR_OK, "NVIDIA 550.54.15");
    says("gpus.found", DOCTOR_OK, "workers see 1");
    says("gpus.nvml", DOCTOR_OK, "1 GPUs");
    says("gpus.ecc", DOCTOR_FAIL, "7 uncorrected");
    says("gpus.clocks", DOCTOR_WARN, "slowed down");
    says("gpus.persistence", DOCTOR_WARN, "0000:3b:00.0");
    says("gpus.memory", DOCTOR_WARN, "10.0 GiB");
    says("gpus.xid", DOCTOR_WARN, "2 in the kernel's log, the last 79");

    setenv("FAKE_NVML", "crash", 1);
    examine();
    says("gpus.nvml", DOCTOR_FAIL, "crashed");
    visible = "-1";
    setenv("FAKE_NVML", "", 1);
    examine();
    says("gpus.found", DOCTOR_FAIL, "workers see none");
    visible = NULL;
}

/* As a file in a file system that does not answer. */
Test(doctor, a_probe_that_is_stuck_or_crashes_fails_its_group_alone)
{
    const int64_t began_ms = clock_now_ms();
    char path[128];

    snprintf(path, sizeof path, "%s/proc", root);
    mkdir(path, 0755);
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    cr_assert_eq(mkfifo(path, 0600), 0);
    host.run = run_and_die;

    examine();

    says("memory", DOCTOR_FAIL, "no answer in 2.0 s");
    says("libraries", DOCTOR_FAIL, "the check crashed: signal 9");
    says("disk.writable", DOCTOR_OK, root);
    says("kernel.supervision", DOCTOR_OK, "Linux");
    cr_expect_geq(clock_now_ms() - began_ms, 2000);
}

#include "agent/placement/gpu.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/agent/placement/fake_root.h"

/* A machine of files below a temporary directory, and an environment. */
static char root[FAKE_ROOT_BYTES];
static const char *variables[8][2];
static int n_variables;
static struct gpu_host host;
static struct gpu_list found;

static const char *get_env(void *arg, const char *name)
{
    for (int i = 0; i < n_variables; i++)
        if (strcmp(variables[i][0], name) == 0)
            return variables[i][1];
    return NULL;
}

static void set(const char *name, const char *value)
{
    variables[n_variables][0] = name;
    variables[n_variables++][1] = value;
}

static void begin(void)
{
    fake_root_make(root);
    set("FSDP_TEST_ROOT", root);
    set("FSDP_TEST_NVML", BUILD_DIR "/test/fake_nvml");
    gpu_host_init(&host, get_env, NULL);
}

static void end(void)
{
    fake_root_remove(root);
}

TestSuite(gpu, .init = begin, .fini = end, .timeout = 600);

/* As the driver writes it. */
static void add_nvidia(const char *pci, int minor, const char *uuid)
{
    char text[512];

    snprintf(text, sizeof text,
             "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t %s\nVideo BIOS: \t 96.00\n"
             "Bus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n",
             uuid, pci, minor);
    fake_root_add(root, text, "/proc/driver/nvidia/gpus/%s/information", pci);
    fake_root_add(root, "", "/dev/nvidia%d", minor);
}

/* So many GPUs are found, and it says `why` (a part of it; NULL: nothing). */
static void finds(enum gpu_want want, int n, const char *why)
{
    gpu_find(&found, want, &host);
    cr_expect_eq(found.n, n, "%d found", found.n);
    if (why == NULL)
        cr_expect_str_empty(found.why);
    else
        cr_expect(strstr(found.why, why) != NULL, "\"%s\" does not say \"%s\"", found.why, why);
}

static void stands_at(int i, const char *pci)
{
    cr_expect_str_eq(found.gpus[i].pci, pci);
}

Test(gpu, nvidia_stands_in_the_order_of_pci_whatever_the_minors)
{
    add_nvidia("0000:9a:00.0", 0, "GPU-00");
    add_nvidia("0000:1b:00.0", 1, "GPU-11");
    add_nvidia("0000:5d:00.0", 2, "GPU-22");
    finds(GPU_WANT_ANY, 3, "");
    finds(GPU_WANT_CUDA, 3, NULL);
    stands_at(0, "0000:1b:00.0");
    stands_at(1, "0000:5d:00.0");
    stands_at(2, "0000:9a:00.0");
    finds(GPU_WANT_XPU, 0, "");
    set("CUDA_VISIBLE_DEVICES", "2,0");
    finds(GPU_WANT_GPU, 2, "");
    stands_at(0, "0000:9a:00.0");
    stands_at(1, "0000:1b:00.0");
}

Test(gpu, names_that_the_driver_shows_need_no_nvml)
{
    host.nvml = "/nowhere/libnvidia-ml.so.1";
    add_nvidia("0000:1b:00.0", 0, "GPU-aa11");
    add_nvidia("0000:5d:00.0", 1, "GPU-bb22");
    set("CUDA_VISIBLE_DEVICES", "GPU-bb");
    finds(GPU_WANT_GPU, 1, "");
    stands_at(0, "0000:5d:00.0");
}

Test(gpu, names_that_the_driver_does_not_know_yet_are_nvmls)
{
    setenv("FAKE_NVML", "GPU-aa11@1b;GPU-bb22@5d", 1);
    add_nvidia("0000:1b:00.0", 0, "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?");
    add_nvidia("0000:5d:00.0", 1, "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?");
    set("CUDA_VISIBLE_DEVICES", "GPU-bb22,GPU-aa11,GPU-cc");
    finds(GPU_WANT_GPU, 2, "ends at \"GPU-cc\"");
    stands_at(0, "0000:5d:00.0");
}

Test(gpu, a_container_that_shows_only_devices)
{
    static const char *const devices[] = { "0", "2", "10", "ctl", "-uvm", "-caps/nvidia-cap1" };

    setenv("FAKE_NVML", "GPU-aa11@1b;GPU-bb22@5d;GPU-cc33@9a", 1);
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        fake_root_add(root, "", "/dev/nvidia%s", devices[i]);
    finds(GPU_WANT_GPU, 3, "");
    stands_at(0, "");
    set("CUDA_VISIBLE_DEVICES", "GPU-cc");
    finds(GPU_WANT_GPU, 1, "");
    stands_at(0, "0000:9a:00.0");
}

Test(gpu, what_may_not_be_opened_is_not_counted)
{
    char path[128];

    add_nvidia("0000:1b:00.0", 0, "GPU-aa11");
    add_nvidia("0000:5d:00.0", 1, "GPU-bb22");
    snprintf(path, sizeof path, "%s/dev/nvidia0", root);
    cr_assert_eq(unlink(path), 0);
    finds(GPU_WANT_GPU, 1, "");
    stands_at(0, "0000:5d:00.0");
    snprintf(path, sizeof path, "%s/dev/nvidia1", root);
    cr_assert_eq(unlink(path), 0);
    finds(GPU_WANT_ANY, 0, "may open none of the 2");
}

Test(gpu, mig_devices_one_for_each_worker_or_the_first_for_all)
{
    setenv("FAKE_NVML", "GPU-aa11@1b+MIG-1+MIG-2+MIG-3;GPU-bb22@5d;GPU-cc33@9a+MIG-4", 1);
    add_nvidia("0000:1b:00.0", 0, "GPU-aa11");
    add_nvidia("0000:5d:00.0", 1, "GPU-bb22");
    add_nvidia("0000:9a:00.0", 2, "GPU-cc33");
    set("CUDA_VISIBLE_DEVICES", "MIG-4,MIG-2,MIG-1");
    finds(GPU_WANT_GPU, 1, "--virtual-local-rank");
    stands_at(0, "0000:9a:00.0");
    host.one_each = true;
    finds(GPU_WANT_GPU, 3, NULL);
    stands_at(1, "0000:1b:00.0");
}

Test(gpu, an_nvml_that_fails_is_said_in_words)
{
    fake_root_add(root, "", "/dev/nvidia0");
    set("CUDA_VISIBLE_DEVICES", "GPU-aa");
    setenv("FAKE_NVML", "refuse", 1);
    finds(GPU_WANT_GPU, 0, "Driver Not Loaded");
    setenv("FAKE_NVML", "crash", 1);
    finds(GPU_WANT_GPU, 0, "crashed");
    host.nvml = "/nowhere/libnvidia-ml.so.1";
    finds(GPU_WANT_GPU, 0, "/nowhere/libnvidia-ml.so.1");
}

static void add_amd(int node, int simds, int minor, unsigned bus)
{
    char text[512];

    snprintf(
        text, sizeof text,
        "cpu_cores_count %d\nsimd_count %d\nlocation_id %u\ndomain 0\ndrm_render_minor %d\nunique_id %u\n",
        simds == 0 ? 64 : 0, simds, bus << 8, minor, 0xa0 + bus);
    fake_root_add(root, text, "/sys/class/kfd/kfd/topology/nodes/%d/properties", node);
    if (simds > 0)
        fake_root_add(root, "", "/dev/dri/renderD%d", minor);
}

Test(gpu, amd_is_cut_by_rocr_and_then_by_hip)
{
    add_amd(0, 0, 0, 0);
    add_amd(1, 0, 0, 0);
    add_amd(2, 440, 128, 0x29);
    add_amd(3, 440, 136, 0x45);
    add_amd(10, 440, 144, 0x83);
    finds(GPU_WANT_GPU, 3, "");
    stands_at(2, "0000:83:00.0");
    set("ROCR_VISIBLE_DEVICES", "2,1");
    set("CUDA_VISIBLE_DEVICES", "1");
    finds(GPU_WANT_ANY, 1, "");
    stands_at(0, "0000:45:00.0");
    set("HIP_VISIBLE_DEVICES", "0,1");
    finds(GPU_WANT_ANY, 2, "");
    stands_at(0, "0000:83:00.0");
    finds(GPU_WANT_CUDA, 0, "no driver of NVIDIA's");
}

Test(gpu, intel_by_its_render_nodes)
{
    fake_root_add(root, "0x8086\n", "/sys/class/drm/renderD128/device/vendor");
    fake_root_add(root, "0x8086\n", "/sys/class/drm/renderD129/device/vendor");
    fake_root_add(root, "0x1a03\n", "/sys/class/drm/renderD130/device/vendor");
    fake_root_add(root, "0x8086\n", "/sys/class/drm/card0/device/vendor");
    finds(GPU_WANT_XPU, 0, "may open none of the 2");
    fake_root_add(root, "", "/dev/dri/renderD128");
    fake_root_add(root, "", "/dev/dri/renderD129");
    finds(GPU_WANT_XPU, 2, "");
    finds(GPU_WANT_ANY, 2, "");
    finds(GPU_WANT_GPU, 0, "");
    set("ZE_AFFINITY_MASK", "1");
    finds(GPU_WANT_XPU, 1, "");
}

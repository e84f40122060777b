#include "agent/placement/gpu.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/unit/agent/placement/fake_root.h"

/* A machine of files below a temporary directory, and an environment. */
struct machine {
    char root[FAKE_ROOT_BYTES];
    const char *variables[8][2];
    int n_variables;
    struct gpu_host host;
    struct gpu_list found;
};

static const char *get_env(void *arg, const char *name)
{
    const struct machine *machine = arg;

    for (int i = 0; i < machine->n_variables; i++)
        if (strcmp(machine->variables[i][0], name) == 0)
            return machine->variables[i][1];
    return NULL;
}

static void set(struct machine *machine, const char *name, const char *value)
{
    machine->variables[machine->n_variables][0] = name;
    machine->variables[machine->n_variables++][1] = value;
}

static void begin(struct machine *machine)
{
    *machine = (struct machine){ 0 };
    fake_root_make(machine->root);
    set(machine, "FSDP_TEST_ROOT", machine->root);
    set(machine, "FSDP_TEST_NVML", BUILD_DIR "/test/fake_nvml");
    gpu_host_init(&machine->host, get_env, machine);
}

/* As the driver writes it. */
static void add_nvidia(const struct machine *machine, const char *pci, int minor, const char *uuid)
{
    char text[512];

    snprintf(text, sizeof text,
             "Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 18\nGPU UUID: \t %s\nVideo BIOS: \t 96.00\n"
             "Bus Type: \t PCIe\nBus Location: \t %s\nDevice Minor: \t %d\nGPU Excluded:\t No\n",
             uuid, pci, minor);
    fake_root_add(machine->root, text, "/proc/driver/nvidia/gpus/%s/information", pci);
    fake_root_add(machine->root, "", "/dev/nvidia%d", minor);
}

static int count(struct machine *machine, enum gpu_want want)
{
    gpu_find(&machine->found, want, &machine->host);
    return machine->found.n;
}

#define says(machine, part)                                                                                  \
    cr_expect(strstr((machine)->found.why, part) != NULL, "\"%s\" does not say \"%s\"",                      \
              (machine)->found.why, part)

Test(gpu, a_machine_without_any_says_where_it_looked)
{
    struct machine machine;

    begin(&machine);
    cr_expect_eq(count(&machine, GPU_WANT_ANY), 0);
    says(&machine, "no driver shows one");
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 0);
    says(&machine, "/proc/driver/nvidia");
    cr_expect_eq(count(&machine, GPU_WANT_XPU), 0);
    says(&machine, "Intel");
    fake_root_remove(machine.root);
}

Test(gpu, nvidia_stands_in_the_order_of_pci_whatever_the_minors)
{
    struct machine machine;

    begin(&machine);
    add_nvidia(&machine, "0000:9a:00.0", 0, "GPU-00");
    add_nvidia(&machine, "0000:1b:00.0", 1, "GPU-11");
    add_nvidia(&machine, "0000:5d:00.0", 2, "GPU-22");
    cr_expect_eq(count(&machine, GPU_WANT_ANY), 3);
    cr_expect_eq(count(&machine, GPU_WANT_CUDA), 3);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:1b:00.0");
    cr_expect_str_eq(machine.found.gpus[1].pci, "0000:5d:00.0");
    cr_expect_str_eq(machine.found.gpus[2].pci, "0000:9a:00.0");
    cr_expect_str_empty(machine.found.why);
    cr_expect_eq(count(&machine, GPU_WANT_XPU), 0);
    set(&machine, "CUDA_VISIBLE_DEVICES", "2,0");
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 2);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:9a:00.0");
    cr_expect_str_eq(machine.found.gpus[1].pci, "0000:1b:00.0");
    fake_root_remove(machine.root);
}

Test(gpu, names_that_the_driver_shows_need_no_nvml)
{
    struct machine machine;

    begin(&machine);
    machine.host.nvml = "/nowhere/libnvidia-ml.so.1";
    add_nvidia(&machine, "0000:1b:00.0", 0, "GPU-aa11");
    add_nvidia(&machine, "0000:5d:00.0", 1, "GPU-bb22");
    set(&machine, "CUDA_VISIBLE_DEVICES", "GPU-bb");
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 1);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:5d:00.0");
    fake_root_remove(machine.root);
}

Test(gpu, names_that_the_driver_does_not_know_yet_are_nvmls)
{
    struct machine machine;

    begin(&machine);
    setenv("FAKE_NVML", "GPU-aa11@1b;GPU-bb22@5d", 1);
    add_nvidia(&machine, "0000:1b:00.0", 0, "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?");
    add_nvidia(&machine, "0000:5d:00.0", 1, "GPU-\?\?\?\?\?\?\?\?-\?\?\?\?");
    set(&machine, "CUDA_VISIBLE_DEVICES", "GPU-bb22,GPU-aa11,GPU-cc");
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 2);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:5d:00.0");
    says(&machine, "ends at \"GPU-cc\"");
    fake_root_remove(machine.root);
}

Test(gpu, a_container_that_shows_only_devices)
{
    struct machine machine;

    begin(&machine);
    setenv("FAKE_NVML", "GPU-aa11@1b;GPU-bb22@5d;GPU-cc33@9a", 1);
    fake_root_add(machine.root, "", "/dev/nvidia0");
    fake_root_add(machine.root, "", "/dev/nvidia2");
    fake_root_add(machine.root, "", "/dev/nvidia10");
    fake_root_add(machine.root, "", "/dev/nvidiactl");
    fake_root_add(machine.root, "", "/dev/nvidia-uvm");
    fake_root_add(machine.root, "", "/dev/nvidia-caps/nvidia-cap1");
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 3);
    cr_expect_str_eq(machine.found.gpus[0].pci, "");
    set(&machine, "CUDA_VISIBLE_DEVICES", "GPU-cc");
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 1);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:9a:00.0");
    fake_root_remove(machine.root);
}

Test(gpu, what_may_not_be_opened_is_not_counted)
{
    struct machine machine;
    char path[128];

    begin(&machine);
    add_nvidia(&machine, "0000:1b:00.0", 0, "GPU-aa11");
    add_nvidia(&machine, "0000:5d:00.0", 1, "GPU-bb22");
    snprintf(path, sizeof path, "%s/dev/nvidia0", machine.root);
    cr_assert_eq(unlink(path), 0);
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 1);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:5d:00.0");
    snprintf(path, sizeof path, "%s/dev/nvidia1", machine.root);
    cr_assert_eq(unlink(path), 0);
    cr_expect_eq(count(&machine, GPU_WANT_ANY), 0);
    says(&machine, "may open none of the 2");
    fake_root_remove(machine.root);
}

Test(gpu, mig_devices_one_for_each_worker_or_the_first_for_all)
{
    struct machine machine;

    begin(&machine);
    setenv("FAKE_NVML", "GPU-aa11@1b+MIG-1+MIG-2+MIG-3;GPU-bb22@5d;GPU-cc33@9a+MIG-4", 1);
    add_nvidia(&machine, "0000:1b:00.0", 0, "GPU-aa11");
    add_nvidia(&machine, "0000:5d:00.0", 1, "GPU-bb22");
    add_nvidia(&machine, "0000:9a:00.0", 2, "GPU-cc33");
    set(&machine, "CUDA_VISIBLE_DEVICES", "MIG-4,MIG-2,MIG-1");
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 1);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:9a:00.0");
    says(&machine, "--virtual-local-rank");
    machine.host.one_each = true;
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 3);
    cr_expect_str_eq(machine.found.gpus[1].pci, "0000:1b:00.0");
    cr_expect_str_empty(machine.found.why);
    fake_root_remove(machine.root);
}

Test(gpu, an_nvml_that_fails_is_said_in_words, .timeout = 600)
{
    struct machine machine;

    begin(&machine);
    fake_root_add(machine.root, "", "/dev/nvidia0");
    set(&machine, "CUDA_VISIBLE_DEVICES", "GPU-aa");
    setenv("FAKE_NVML", "refuse", 1);
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 0);
    says(&machine, "Driver Not Loaded");
    setenv("FAKE_NVML", "crash", 1);
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 0);
    says(&machine, "crashed");
    machine.host.nvml = "/nowhere/libnvidia-ml.so.1";
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 0);
    says(&machine, "/nowhere/libnvidia-ml.so.1");
    fake_root_remove(machine.root);
}

static void add_amd(const struct machine *machine, int node, int simds, int minor, unsigned bus)
{
    char text[512];

    snprintf(
        text, sizeof text,
        "cpu_cores_count %d\nsimd_count %d\nlocation_id %u\ndomain 0\ndrm_render_minor %d\nunique_id %u\n",
        simds == 0 ? 64 : 0, simds, bus << 8, minor, 0xa0 + bus);
    fake_root_add(machine->root, text, "/sys/class/kfd/kfd/topology/nodes/%d/properties", node);
    if (simds > 0)
        fake_root_add(machine->root, "", "/dev/dri/renderD%d", minor);
}

Test(gpu, amd_is_cut_by_rocr_and_then_by_hip)
{
    struct machine machine;

    begin(&machine);
    add_amd(&machine, 0, 0, 0, 0);
    add_amd(&machine, 1, 0, 0, 0);
    add_amd(&machine, 2, 440, 128, 0x29);
    add_amd(&machine, 3, 440, 136, 0x45);
    add_amd(&machine, 10, 440, 144, 0x83);
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 3);
    cr_expect_str_eq(machine.found.gpus[2].pci, "0000:83:00.0");
    set(&machine, "ROCR_VISIBLE_DEVICES", "2,1");
    set(&machine, "CUDA_VISIBLE_DEVICES", "1");
    cr_expect_eq(count(&machine, GPU_WANT_ANY), 1);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:45:00.0");
    set(&machine, "HIP_VISIBLE_DEVICES", "0,1");
    cr_expect_eq(count(&machine, GPU_WANT_ANY), 2);
    cr_expect_str_eq(machine.found.gpus[0].pci, "0000:83:00.0");
    cr_expect_eq(count(&machine, GPU_WANT_CUDA), 0, "CUDA does not run on AMD's");
    says(&machine, "no driver of NVIDIA's");
    fake_root_remove(machine.root);
}

Test(gpu, intel_by_its_render_nodes)
{
    struct machine machine;

    begin(&machine);
    fake_root_add(machine.root, "0x8086\n", "/sys/class/drm/renderD128/device/vendor");
    fake_root_add(machine.root, "0x8086\n", "/sys/class/drm/renderD129/device/vendor");
    fake_root_add(machine.root, "0x1a03\n", "/sys/class/drm/renderD130/device/vendor");
    fake_root_add(machine.root, "0x8086\n", "/sys/class/drm/card0/device/vendor");
    cr_expect_eq(count(&machine, GPU_WANT_XPU), 0);
    says(&machine, "may open none of the 2");
    fake_root_add(machine.root, "", "/dev/dri/renderD128");
    fake_root_add(machine.root, "", "/dev/dri/renderD129");
    cr_expect_eq(count(&machine, GPU_WANT_XPU), 2);
    cr_expect_eq(count(&machine, GPU_WANT_ANY), 2);
    cr_expect_eq(count(&machine, GPU_WANT_GPU), 0);
    set(&machine, "ZE_AFFINITY_MASK", "1");
    cr_expect_eq(count(&machine, GPU_WANT_XPU), 1);
    fake_root_remove(machine.root);
}

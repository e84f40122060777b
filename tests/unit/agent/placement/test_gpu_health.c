#include "agent/placement/gpu_health.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static const struct gpu_sample calm = { .index = 2,
                                        .pci = "0000:3b:00.0",
                                        .utilisation_percent = 50,
                                        .temperature_c = 60,
                                        .memory_used_bytes = 1000,
                                        .memory_total_bytes = 80000,
                                        .ecc_uncorrected = 7 };

static struct gpu_health health;

static void expect(const struct gpu_sample *sample, enum gpu_warning warning, const char *want)
{
    char words[GPU_HEALTH_WORDS_BYTES];

    cr_expect(eq(int, (int)gpu_health_take(&health, sample, words), (int)warning), "%s", want);
    cr_expect(eq(str, words, (char *)want));
}

Test(gpu_health, what_is_wrong_is_said_when_it_begins)
{
    struct gpu_sample now = calm, xid = { .index = 2, .pci = "0000:3b:00.0", .xid = 79 };

    expect(&now, GPU_FINE, ""); /* errors from before the run are not its own */
    now.ecc_uncorrected = 9;
    expect(&now, GPU_ECC, "GPU 2 (0000:3b:00.0): 2 more uncorrected ECC errors");
    expect(&now, GPU_FINE, "");
    now.throttle_reasons = 0x44; /* a power cap alone, 0x4, is how these GPUs run */
    now.temperature_c = 95;
    expect(&now, GPU_THROTTLED, "GPU 2 (0000:3b:00.0): slowed down (reasons 0x44) at 95 C");
    expect(&now, GPU_FINE, "");
    now.throttle_reasons = 0x4;
    expect(&now, GPU_FINE, "");
    now.throttle_reasons = 0x20;
    expect(&now, GPU_THROTTLED, "GPU 2 (0000:3b:00.0): slowed down (reasons 0x20) at 95 C");
    expect(&xid, GPU_XID, "GPU 2 (0000:3b:00.0): XID 79: it has fallen off the bus");
    xid.xid = 1234;
    expect(&xid, GPU_XID, "GPU 2 (0000:3b:00.0): XID 1234");
    cr_expect(health.n == 3 && health.gpus[2].n_samples == 7 && health.gpus[2].n_throttled == 3 &&
              health.gpus[2].n_xids == 2 && health.gpus[2].utilisation_sum == 350);
}

Test(gpu_health, what_a_driver_does_not_know_is_not_judged)
{
    struct gpu_sample now = calm;

    now.ecc_uncorrected = -1;
    now.memory_used_bytes = -1;
    expect(&now, GPU_FINE, "");
    now.ecc_uncorrected = 3;
    expect(&now, GPU_FINE, "");
    cr_expect(not(gpu_health_memory_held(&health, 0)));
    now.index = GPU_HEALTH_MAX;
    expect(&now, GPU_FINE, "");
    now.index = -1;
    expect(&now, GPU_FINE, "");
    cr_expect(eq(int, health.n, 3));
}

Test(gpu_health, memory_is_held_while_more_is_in_use_than_the_least)
{
    static const struct {
        int64_t used_bytes;
        bool held;
    } cases[] = { { 1000, false }, { 1100, false }, { 1101, true }, { 900, false } };
    struct gpu_sample now = calm;

    cr_expect(not(gpu_health_memory_held(&health, 100)));
    for (int i = 0; i < 4; i++) {
        now.memory_used_bytes = cases[i].used_bytes;
        expect(&now, GPU_FINE, "");
        cr_expect(eq(int, gpu_health_memory_held(&health, 100), cases[i].held), "case %d", i);
    }
    cr_expect(health.gpus[2].most_used_bytes == 1101 && health.gpus[2].least_used_bytes == 900);
}

Test(gpu_health, a_worker_is_shown_the_gpu_that_it_named)
{
    static struct fsdp_progress page, other, unnamed, unknown;
    struct gpu_sample now = calm, xid = { .index = 2, .pci = "0000:3b:00.0", .xid = 79 };

    strcpy(page.gpu.id, calm.pci);
    page.gpu.named = 1;
    strcpy(other.gpu.id, "0000:5e:00.0");
    other.gpu.named = 1;
    strcpy(unnamed.gpu.id, calm.pci); /* half of its stores are there */
    memset(unknown.gpu.id, '0', sizeof unknown.gpu.id);
    unknown.gpu.named = 1;
    gpu_health_show(&health, &page);
    cr_expect(page.gpu.n_samples == 0, "nothing is known before the first sample");

    expect(&now, GPU_FINE, "");
    expect(&xid, GPU_XID, "GPU 2 (0000:3b:00.0): XID 79: it has fallen off the bus");
    now.index = 3;
    strcpy(now.pci, "0000:5e:00.0");
    now.ecc_uncorrected = -1;
    now.throttle_reasons = 0x4;
    now.memory_used_bytes = 2000;
    expect(&now, GPU_FINE, "");
    gpu_health_show(&health, &page);
    gpu_health_show(&health, &other);
    gpu_health_show(&health, &unnamed);
    gpu_health_show(&health, &unknown);

    cr_expect(page.gpu.n_samples == 1 && page.gpu.memory_used_bytes == 1000 &&
              page.gpu.memory_total_bytes == 80000 && page.gpu.utilisation_percent == 50 &&
              page.gpu.temperature_c == 60 && page.gpu.ecc_uncorrected == 7 && page.gpu.n_xids == 1 &&
              page.gpu.last_xid == 79 && page.gpu.throttle_reasons == 0);
    cr_expect(other.gpu.n_samples == 1 && other.gpu.memory_used_bytes == 2000 &&
              other.gpu.ecc_uncorrected == -1 && other.gpu.n_xids == 0 && other.gpu.throttle_reasons == 0x4);
    cr_expect(unnamed.gpu.n_samples == 0 && unknown.gpu.n_samples == 0);
}

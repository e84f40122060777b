#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <string.h>

#include "launcher/launch_impl.h"

static struct job job_on(const char *device, const char *collectives)
{
    struct job job;

    memset(&job, 0, sizeof job);
    job.run.device = (char *)(uintptr_t)device;
    job.run.collectives = (char *)(uintptr_t)collectives;
    return job;
}

Test(launch_devices, a_rank_on_cuda_has_a_gpu_to_itself_but_through_the_cpus_collectives)
{
    static const char *const devices[] = { "auto", "cpu", "cuda" }, *const collectives[] = { "auto", "cpu",
                                                                                             "nccl" };
    char words[512];

    for (size_t d = 0; d < 3; d++)
        for (size_t c = 0; c < 3; c++)
            for (int n_workers = 1; n_workers <= 9; n_workers++)
                for (int n_gpus = 0; n_gpus <= 9; n_gpus++) {
                    const struct job job = job_on(devices[d], collectives[c]);
                    const bool short_of = d != 1 && n_workers > n_gpus;
                    const bool said = short_of && (d == 2 || n_gpus > 0);
                    const enum launch_devices want = !short_of              ? LAUNCH_DEVICES_ENOUGH
                                                     : d == 0               ? LAUNCH_DEVICES_UNUSED
                                                     : c == 1 && n_gpus > 0 ? LAUNCH_DEVICES_SHARED
                                                                            : LAUNCH_DEVICES_TOO_FEW;
                    char workers[32], gpus[32];

                    cr_expect(launch_judge_devices(&job, n_workers, n_gpus, "none", words, sizeof words) ==
                                  want,
                              "%s by %s: %d workers, %d GPUs", devices[d], collectives[c], n_workers, n_gpus);
                    cr_expect(eq(int, words[0] != '\0', said));
                    if (!said)
                        continue;
                    snprintf(workers, sizeof workers, "%d worker%s ", n_workers, n_workers == 1 ? "" : "s");
                    snprintf(gpus, sizeof gpus, "and %d GPU%s:", n_gpus, n_gpus == 1 ? "" : "s");
                    cr_expect(strstr(words, workers) != NULL && strstr(words, gpus) != NULL, "%s", words);
                }
}

Test(launch_devices, the_line_names_both_numbers_and_what_to_do)
{
    struct job job = job_on("cuda", "auto");
    char words[512];

    launch_judge_devices(&job, 4, 2, "", words, sizeof words);
    cr_expect(eq(str, words,
                 "run.device: 4 workers on cuda and 2 GPUs: each needs one of its own (fewer workers: "
                 "launch.nproc_per_node, --nproc-per-node; only with run.collectives=cpu can they share)"));
    launch_judge_devices(&job, 1, 0, "no driver shows one", words, sizeof words);
    cr_expect(eq(str, words, "run.device: 1 worker on cuda and 0 GPUs: no driver shows one"));
    job = job_on("cuda", "cpu");
    launch_judge_devices(&job, 4, 1, "", words, sizeof words);
    cr_expect(eq(str, words, "4 workers and 1 GPU: some will have to share"));
    job = job_on("auto", "auto");
    launch_judge_devices(&job, 4, 2, "", words, sizeof words);
    cr_expect(eq(str, words,
                 "4 workers and 2 GPUs: run.device auto takes the cpu (a GPU for each: --nproc-per-node 2)"));
}

static int n_asked;

static int two_devices(void *arg, const char *word, bool one_each, char *why, size_t why_bytes)
{
    (void)arg;
    n_asked++;
    cr_expect(eq(str, (char *)(uintptr_t)word, "cuda"));
    snprintf(why, why_bytes, "-");
    return one_each ? 3 : 2;
}

static const char *not_set(void *arg, const char *name)
{
    (void)arg, (void)name;
    return NULL;
}

static const char *device_is_set(void *arg, const char *name)
{
    (void)arg;
    return strcmp(name, "FSDP_DEVICE") == 0 ? "cuda" : NULL;
}

Test(launch_devices, a_job_on_cuda_is_refused_where_they_are_too_few)
{
    static struct launch launch;
    const struct surroundings around = { .count_devices = two_devices, .get_env = not_set },
                              told = { .count_devices = two_devices, .get_env = device_is_set },
                              blind = { .get_env = not_set };
    struct job cuda = job_on("cuda", "nccl"), cpu = job_on("cpu", "cpu"), shared = job_on("cuda", "cpu"),
               open = job_on("auto", "auto");
    struct fsdp_err err = { 0 };

    launch.config.n_workers = 3;
    cr_assert(eq(int, launch_check_devices(&launch, &cuda, &around, &err), FSDP_EXIT_CONFIG));
    cr_assert(strstr(err.message, "3 workers on cuda and 2 GPUs") != NULL, "%s", err.message);
    cr_assert(eq(int, launch_check_devices(&launch, &cuda, &blind, &err), FSDP_EXIT_CONFIG));
    cr_assert(eq(int, n_asked, 1));
    cr_assert(eq(int, launch_check_devices(&launch, &cpu, &around, &err), 0));
    cr_assert(eq(int, n_asked, 1), "a job on the CPU asks for no driver");
    cr_assert(eq(sz, launch.n_notes, 0));
    cr_assert(eq(int, launch_check_devices(&launch, &shared, &around, &err), 0));
    cr_assert(eq(str, launch.notes[0], "3 workers and 2 GPUs: some will have to share"));
    cr_assert(eq(int, launch_check_devices(&launch, &open, &around, &err), 0));
    cr_assert(strstr(launch.notes[1], "run.device auto takes the cpu") != NULL, "%s", launch.notes[1]);
    cr_assert(eq(int, launch_check_devices(&launch, &open, &told, &err), 0));
    cr_assert(eq(sz, launch.n_notes, 2), "FSDP_DEVICE decides");
    launch.config.virtual_local_rank = true; /* then each may be one of MIG's */
    cr_assert(eq(int, launch_check_devices(&launch, &cuda, &around, &err), 0));
}

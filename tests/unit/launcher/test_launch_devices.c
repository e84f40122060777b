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
    static const struct {
        const char *device, *collectives;
        int n_workers, n_gpus;
        enum launch_devices want;
        const char *words;
    } cases[] = {
        { "cuda", "auto", 4, 2, LAUNCH_DEVICES_TOO_FEW,
          "run.device: 4 workers on cuda and 2 GPUs: each needs one of its own (fewer workers: "
          "launch.nproc_per_node, --nproc-per-node; only with run.collectives=cpu can they share)" },
        { "cuda", "auto", 1, 0, LAUNCH_DEVICES_TOO_FEW,
          "run.device: 1 worker on cuda and 0 GPUs: none here" },
        { "cuda", "cpu", 2, 0, LAUNCH_DEVICES_TOO_FEW,
          "run.device: 2 workers on cuda and 0 GPUs: none here" },
        { "cuda", "cpu", 4, 1, LAUNCH_DEVICES_SHARED, "4 workers and 1 GPU: some will have to share" },
        { "cuda", "cpu", 4, 4, LAUNCH_DEVICES_ENOUGH, "" },
        { "cuda", "nccl", 9, 9, LAUNCH_DEVICES_ENOUGH, "" },
        { "auto", "auto", 4, 2, LAUNCH_DEVICES_UNUSED,
          "4 workers and 2 GPUs: run.device auto takes the cpu (a GPU for each: --nproc-per-node 2)" },
        { "auto", "cpu", 4, 0, LAUNCH_DEVICES_UNUSED, "" },
        { "auto", "nccl", 2, 3, LAUNCH_DEVICES_ENOUGH, "" },
        { "cpu", "nccl", 9, 0, LAUNCH_DEVICES_ENOUGH, "" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct job job = job_on(cases[i].device, cases[i].collectives);
        char words[512];

        cr_expect(launch_judge_devices(&job, cases[i].n_workers, cases[i].n_gpus, "none here", words,
                                       sizeof words) == cases[i].want,
                  "case %zu", i);
        cr_expect(eq(str, words, (char *)cases[i].words), "case %zu", i);
    }
}

static int n_asked;

static int two_devices(void *arg, const char *word, bool one_each, char *why, size_t why_bytes)
{
    n_asked++;
    cr_expect(eq(str, (char *)(uintptr_t)word, "cuda"));
    snprintf(why, why_bytes, "-");
    return one_each ? 3 : 2;
}

/* `arg` is the value of FSDP_DEVICE, the only variable. */
static const char *get_env(void *arg, const char *name)
{
    return strcmp(name, "FSDP_DEVICE") == 0 ? arg : NULL;
}

Test(launch_devices, a_job_on_cuda_is_refused_where_they_are_too_few)
{
    static struct launch launch;
    const struct surroundings around = { .count_devices = two_devices, .get_env = get_env },
                              told = { .count_devices = two_devices, .get_env = get_env, .arg = "cuda" },
                              blind = { .get_env = get_env };
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

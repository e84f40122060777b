/* Checks whether this node has enough GPUs for its workers. */
#include <stdio.h>
#include <string.h>

#include "launcher/launch_impl.h"
#include <fsdp/link.h>

enum { WHY_BYTES = 320 };

enum launch_devices launch_judge_devices(const struct job *job, int n_workers, int n_gpus, const char *why,
                                         char *words, size_t size)
{
    const char *s = n_workers == 1 ? "" : "s";

    words[0] = '\0';
    if (strcmp(job->run.device, "cpu") == 0 || n_workers <= n_gpus)
        return LAUNCH_DEVICES_ENOUGH;
    if (strcmp(job->run.device, "auto") == 0) {
        if (n_gpus > 0)
            snprintf(words, size,
                     "%d workers and %d GPU%s: run.device auto takes the cpu (a GPU for each: "
                     "--nproc-per-node %d)",
                     n_workers, n_gpus, n_gpus == 1 ? "" : "s", n_gpus);
        return LAUNCH_DEVICES_UNUSED;
    }
    if (n_gpus == 0) {
        snprintf(words, size, "run.device: %d worker%s on cuda and 0 GPUs: %s", n_workers, s, why);
        return LAUNCH_DEVICES_TOO_FEW;
    }
    if (strcmp(job->run.collectives, "cpu") == 0) {
        snprintf(words, size, "%d workers and %d GPU%s: some will have to share", n_workers, n_gpus,
                 n_gpus == 1 ? "" : "s");
        return LAUNCH_DEVICES_SHARED;
    }
    snprintf(words, size,
             "run.device: %d worker%s on cuda and %d GPU%s: each needs one of its own (fewer workers: "
             "launch.nproc_per_node, --nproc-per-node; only with run.collectives=cpu can they share)",
             n_workers, s, n_gpus, n_gpus == 1 ? "" : "s");
    return LAUNCH_DEVICES_TOO_FEW;
}

int launch_check_devices(struct launch *launch, const struct job *job, const struct surroundings *around,
                         struct fsdp_err *err)
{
    const struct agent_config *config = &launch->config;
    char why[WHY_BYTES] = "nothing here can count them", words[FSDP_ERR_MESSAGE_BYTES];
    int n = 0;

    if (strcmp(job->run.device, "cpu") == 0)
        return 0; /* such a job uses no GPU, so the driver is not asked */
    if (strcmp(job->run.device, "auto") == 0 && launch_env(around, "FSDP_DEVICE") != NULL)
        return 0; /* each worker reads FSDP_DEVICE and chooses by it */
    if (around->count_devices != NULL)
        n = around->count_devices(around->arg, "cuda", config->virtual_local_rank, why, sizeof why);
    switch (launch_judge_devices(job, config->n_workers, n, why, words, sizeof words)) {
    case LAUNCH_DEVICES_TOO_FEW:
        fsdp_fail(err, FSDP_ERR_CONFIG, "%s", words);
        return FSDP_EXIT_CONFIG;
    case LAUNCH_DEVICES_SHARED:
    case LAUNCH_DEVICES_UNUSED:
        if (words[0] != '\0')
            launch_note(launch, "%s", words);
        return 0;
    case LAUNCH_DEVICES_ENOUGH:
        break;
    }
    return 0;
}

/* Too few devices are no error here: several workers of a program may use one GPU, or none. */
void launch_note_few_devices(struct launch *launch, const struct surroundings *around)
{
    const struct agent_config *config = &launch->config;
    char why[WHY_BYTES];
    int n = 0;

    if (config->n_workers > 1 && around->count_devices != NULL)
        n = around->count_devices(around->arg, "auto", config->virtual_local_rank, why, sizeof why);
    if (n > 0 && config->n_workers > n)
        launch_note(launch, "%d workers and %d GPU%s: some will have to share", config->n_workers, n,
                    n == 1 ? "" : "s");
}

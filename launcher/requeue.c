#include "launcher/requeue.h"

#include <string.h>

#include "launcher/command.h"
#include "launcher/slurm.h"

enum fsdp_status requeue(const char *job, int64_t timeout_ms, struct fsdp_err *err)
{
    const char *const argv[] = { "scontrol", "requeue", job, NULL };
    char words[COMMAND_OUT_BYTES];
    int status;

    if (command_run(argv, NULL, timeout_ms, words, &status, err) != FSDP_OK)
        return FSDP_ERR_IO;
    words[strcspn(words, "\n")] = '\0';
    return status == 0 ? FSDP_OK
                       : fsdp_fail(err, FSDP_ERR_IO, "scontrol requeue %s: %.200s", job,
                                   words[0] == '\0' ? "it failed" : words);
}

bool requeue_is_preempted(const char *job, int64_t timeout_ms)
{
    const char *const argv[] = { "scontrol", "show", "job", job, NULL };
    char words[COMMAND_OUT_BYTES];
    int status;

    return command_run(argv, NULL, timeout_ms, words, &status, NULL) == FSDP_OK && status == 0 &&
           slurm_is_preempted(words);
}

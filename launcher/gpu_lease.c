#include "launcher/gpu_lease.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "agent/daemon/lease.h"
#include "agent/desk/registry.h"
#include "agent/os/environment.h"
#include "agent/placement/gpu.h"
#include "launcher/gpu_wait.h"
#include "launcher/launch_impl.h"

enum { LIST_BYTES = 16384 };

static const char variable[] = "CUDA_VISIBLE_DEVICES";

_Static_assert((int)QUEUE_GPUS >= (int)GPU_NUMBERS, "each GPU has a place in a set");

int gpu_lease_wanted(int asked, const struct job *job, const char *device, int n_workers, int n_visible,
                     bool is_listed)
{
    const char *kind = job == NULL ? "any" : job->run.device;
    int n = n_workers < n_visible ? n_workers : n_visible;

    if (asked >= 0)
        return asked;
    if (strcmp(kind, "auto") == 0 && device != NULL)
        kind = device;
    if (strcmp(kind, "cpu") == 0 || (strcmp(kind, "auto") == 0 && n < n_workers))
        n = 0; /* such a job uses the CPU (launch_judge_devices()) */
    return n > 0 && is_listed ? n_visible : n;
}

/* Returns the start of entry `i` in a comma-separated list, and its length. */
static const char *entry_of(const char *list, int i, int *length)
{
    for (; i > 0; i--)
        list += strcspn(list, ",") + 1;
    *length = (int)strcspn(list, ",");
    return list;
}

/*
 * Sets CUDA_VISIBLE_DEVICES so that the workers see only the GPUs that were granted. If the user had set the
 * variable, the entries that remain keep the user's names for the GPUs. GPU i of this process is entry i of
 * the user's list (agent/placement/gpu_visible.h).
 */
static bool show_only(const struct gpu_list *list, const struct queue_gpus *held)
{
    const char *named = getenv(variable);
    char *text = malloc(LIST_BYTES);
    size_t n = 0;
    bool set;

    if (text == NULL)
        return false;
    text[0] = '\0';
    for (int i = 0; i < list->n && n < LIST_BYTES; i++) {
        const char *comma = n > 0 ? "," : "", *entry;
        int length;

        if (!queue_gpus_have(held, list->gpus[i].number))
            continue;
        if (named == NULL) {
            n += (size_t)snprintf(text + n, LIST_BYTES - n, "%s%d", comma, list->gpus[i].number);
            continue;
        }
        entry = entry_of(named, i, &length);
        n += (size_t)snprintf(text + n, LIST_BYTES - n, "%s%.*s", comma, length, entry);
    }
    /* Our numbers are in PCI order. If the GPUs are of different models, CUDA's default order may differ. */
    set = n < LIST_BYTES && setenv(variable, text, 1) == 0 &&
          (named != NULL || setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 0) == 0);
    free(text);
    return set;
}

/*
 * Sends the request. If it asks for GPUs, waits for the agent's first answer, which comes at once. Returns 0,
 * or the exit status.
 */
static int ask(int channel, const struct lease_need *need, struct lease_answer *answer, struct fsdp_err *err)
{
    ssize_t n = send(channel, need, sizeof *need, MSG_NOSIGNAL);

    if (n == (ssize_t)sizeof *need && need->n_gpus == 0)
        return 0;
    while (n == (ssize_t)sizeof *need && (n = recv(channel, answer, sizeof *answer, 0)) < 0 && errno == EINTR)
        n = (ssize_t)sizeof *need;
    if (n == (ssize_t)sizeof *answer)
        return 0;
    fsdp_fail(err, FSDP_ERR_PEER, "the agent is gone");
    return FSDP_EXIT_LINK;
}

static int await(struct launch *launch, const struct options *options, const struct surroundings *around,
                 struct lease_answer *answer, struct fsdp_err *err)
{
    const struct gpu_wait wait = { .channel = *around->start_fd,
                                   .config = &launch->config,
                                   .detached = options_has(options, OPT_DETACH),
                                   .agent = options->of[OPT_AGENT].text };

    return answer->granted != 0
               ? 0
               : gpu_wait(&wait, answer, &launch->config.entry, &launch->config.entry_fd, err);
}

/* Removes the temporary run directory of a run that does not begin, unless there are files in it. */
static void discard_directory(const struct agent_config *config)
{
    char parent[RUNDIR_PATH_BYTES];
    char *slash;

    if (!config->run_dir_temporary || config->run_dir == NULL || rmdir(config->run_dir) < 0)
        return;
    snprintf(parent, sizeof parent, "%s", config->run_dir);
    slash = strrchr(parent, '/');
    if (slash != NULL) {
        *slash = '\0';
        (void)rmdir(parent);
    }
}

static int refuse(const struct options *options, int n, const struct gpu_list *list, struct fsdp_err *err)
{
    fsdp_fail(err, FSDP_ERR_CONFIG, "%s: %d GPU%s and this node has %d%s%s", options->of[OPT_GPUS].origin, n,
              n == 1 ? "" : "s", list->n, list->why[0] != '\0' ? ": " : "", list->why);
    return FSDP_EXIT_CONFIG;
}

int gpu_lease_take(struct launch *launch, const struct options *options, const struct job *job,
                   const struct surroundings *around, struct fsdp_err *err)
{
    const int asked = (int)options_number(options, OPT_GPUS, -1);
    const char *device = launch_env(around, "FSDP_DEVICE");
    struct lease_need need = { 0 };
    struct lease_answer answer = { 0 };
    struct gpu_list list = { 0 };
    struct gpu_host host;
    int status;

    if (around->start_fd == NULL)
        return 0;
    gpu_host_init(&host, environment_get, NULL);
    host.one_each = launch->config.virtual_local_rank;
    /* If the job cannot use a GPU, the driver is not asked for any. */
    if (gpu_lease_wanted(asked, job, device, launch->config.n_workers, GPU_MAX, false) > 0)
        gpu_find(&list, GPU_WANT_CUDA, &host);
    for (int i = 0; i < list.n; i++)
        queue_gpus_put(&need.usable, list.gpus[i].number);
    need.n_gpus = (uint32_t)gpu_lease_wanted(asked, job, device, launch->config.n_workers, list.n,
                                             getenv(variable) != NULL);
    if ((int)need.n_gpus > list.n) {
        discard_directory(&launch->config);
        return refuse(options, (int)need.n_gpus, &list, err);
    }
    snprintf(need.name, sizeof need.name, "%.*s", (int)sizeof need.name - 1, launch->list_name);
    status = ask(*around->start_fd, &need, &answer, err);
    if (status == 0 && need.n_gpus > 0)
        status = await(launch, options, around, &answer, err);
    if (status == 0 && (need.n_gpus > 0 || asked == 0) && !show_only(&list, &answer.held)) {
        fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for %s", variable);
        status = FSDP_EXIT_IO;
    }
    if (status != 0)
        discard_directory(&launch->config);
    return status;
}

void gpu_lease_end(struct launch *launch)
{
    registry_leave(launch->config.entry);
    launch->config.entry = NULL;
    if (launch->config.entry_fd > 0)
        close(launch->config.entry_fd);
    launch->config.entry_fd = -1;
}

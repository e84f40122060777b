/*
 * Chooses what a context computes on, and what moves its tensors between ranks. All ranks must choose alike:
 * if one used a GPU and another did not, not even their memory plans would agree.
 */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/comm/device_collectives.h"
#include "shard_runtime/core/clock.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/device/plugin.h"
#include "shard_runtime/engine/place.h"

/* Returns the name that was asked for. If it is "auto", an environment variable may replace it. */
static const char *wanted(const char *option, const char *variable)
{
    const char *value = getenv(variable);

    if (option != NULL && strcmp(option, "auto") != 0)
        return option;
    return value != NULL && value[0] != '\0' ? value : "auto";
}

/* Sets *value on every rank: true if it was true on all ranks. */
static enum fsdp_status all_of(struct fsdp_comm *world, bool *value, struct fsdp_err *err)
{
    int64_t not_here = !*value;
    const enum fsdp_status status = fsdp_all_reduce(world, &not_here, 1, FSDP_I64, FSDP_MAX, NULL, err);

    *value = not_here == 0;
    return status;
}

static enum fsdp_status take_cpu(struct fsdp_context *context, const char *why, struct fsdp_err *err)
{
    const struct device_config config = { .name = "cpu", .local_rank = fsdp_context_local_rank(context) };

    device_close(&context->device);
    context->plugin = NULL;
    if (context->refusal.message[0] == '\0')
        fsdp_fail(&context->refusal, FSDP_ERR_UNSUPPORTED, "device auto takes the cpu: %s", why);
    return device_open(&context->device, &config, err);
}

static enum fsdp_status choose_device(struct fsdp_context *context, const char *name, struct fsdp_err *err)
{
    const struct device_config config = { .name = name,
                                          .local_rank = fsdp_context_local_rank(context),
                                          .plugin = &context->plugin,
                                          .refusal = &context->refusal };
    enum fsdp_status status = context_agree(context, device_open(&context->device, &config, err), err);
    bool separate, same = true;

    if (status != FSDP_OK || strcmp(name, "auto") != 0 || context->W == 1)
        return status;
    separate = device_is_separate(&context->device);
    status = all_of(context->comm, &separate, err);
    if (status != FSDP_OK || (!separate && !device_is_separate(&context->device)))
        return status;
    if (!separate)
        return take_cpu(context, "another rank has no GPU", err);
    status = device_comms_are_alone(context->comm, context->link, &context->device, &same, err);
    return status == FSDP_OK && !same ? take_cpu(context, "there are fewer GPUs than ranks", err) : status;
}

/*
 * Has the user told NCCL that ranks may share a GPU? NCCL accepts that from version 2.30 on; an older NCCL
 * refuses by itself.
 */
static bool nccl_may_share(void)
{
    const char *value = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    return value != NULL && strcmp(value, "1") == 0;
}

/*
 * Choose NCCL or staging. NCCL serves one rank for each GPU, unless it is told otherwise; ranks that share a
 * GPU go through host memory.
 */
static enum fsdp_status choose_collectives(struct fsdp_context *context, const char *name,
                                           struct fsdp_err *err)
{
    const bool automatic = strcmp(name, "auto") == 0;
    bool alone = true;

    context->comms = (struct device_comms){ .device = &context->device,
                                            .link = context->link,
                                            .stream = context->streams[PLAN_COMPUTE] };
    if (!automatic && strcmp(name, "cpu") != 0 && strcmp(name, "nccl") != 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "collectives %s: not one of cpu, nccl, auto", name);
    if (!device_is_separate(&context->device))
        return strcmp(name, "nccl") != 0
                   ? FSDP_OK
                   : fsdp_fail(
                         err, FSDP_ERR_UNSUPPORTED,
                         "collectives nccl: they move data between GPUs, and this run computes on the %s",
                         context->device.ops->name);
    if (strcmp(name, "cpu") == 0 || (automatic && context->W == 1))
        return FSDP_OK;
    OK_OR_RETURN(device_comms_are_alone(context->comm, context->link, &context->device, &alone, err));
    if (!alone && !automatic && !nccl_may_share())
        return fsdp_fail(err, FSDP_ERR_UNSUPPORTED,
                         "collectives nccl: two ranks of a host share a GPU, which NCCL refuses: take cpu");
    if (alone || !automatic)
        context->comms.collectives = context->plugin->collectives;
    return FSDP_OK;
}

/* Tell the agent which of the node's GPUs this rank uses. */
static void name_gpu(const struct fsdp_context *context)
{
    struct fsdp_progress_gpu *page = &link_progress(context->link)->gpu;
    char id[DEVICE_ID_BYTES];

    if (!device_is_separate(&context->device))
        return;
    context->device.ops->identify(&context->device, id);
    for (int i = 0; i < FSDP_GPU_ID_BYTES - 1 && id[i] != '\0'; i++)
        page->id[i] = (char)tolower((unsigned char)id[i]);
    atomic_store_explicit(&page->named, 1, memory_order_release);
}

/* Make the world's group move the device's tensors too. */
static enum fsdp_status wrap_world(struct fsdp_context *context, struct fsdp_err *err)
{
    struct fsdp_comm *host = context->comm;

    if (!device_is_separate(&context->device))
        return FSDP_OK;
    context->comm = NULL; /* wrapped, or destroyed */
    context->device.ops->set_watch(&context->device, device_comms_watch, &context->comms);
    return device_comm_wrap(&context->comm, host, &context->comms, err);
}

static enum fsdp_status open_collectives(struct fsdp_context *context, const char *name, struct fsdp_err *err)
{
    const double began_s = clock_now_s();
    enum fsdp_status status = choose_collectives(context, name, err);

    if (status == FSDP_OK)
        status = wrap_world(context, err);
    context->opening.collectives_s = clock_now_s() - began_s;
    return status;
}

enum { MAX_THREADS = 4096 }; /* a larger number is a mistake, and OpenMP would end the process */

static enum fsdp_status check_options(const struct fsdp_context_options *options, struct fsdp_err *err)
{
    if (options->threads < 0 || options->threads > MAX_THREADS)
        return fsdp_fail(err, FSDP_ERR_ARG, "opening a context: %d threads, not 0 to %d", options->threads,
                         MAX_THREADS);
    if ((unsigned)options->matmul_precision > FSDP_MATMUL_HIGH)
        return fsdp_fail(err, FSDP_ERR_ARG, "opening a context: unknown matmul_precision %d",
                         (int)options->matmul_precision);
    return FSDP_OK;
}

enum fsdp_status context_open_device(struct fsdp_context *context, const struct fsdp_context_options *options,
                                     struct fsdp_err *err)
{
    struct numerics_config config = { .threads = context->threads,
                                      .precision = options->matmul_precision,
                                      .name = options->numerics != NULL ? options->numerics : "auto" };
    const double began_s = clock_now_s();
    enum fsdp_status status = choose_device(context, wanted(options->device, "FSDP_DEVICE"), err);

    if (status == FSDP_OK)
        name_gpu(context);
    for (int s = 0; s < PLAN_N_STREAMS && status == FSDP_OK; s++)
        status = context->device.ops->stream_create(&context->device, &context->streams[s],
                                                    s == PLAN_GATHERS || s == PLAN_REDUCES, err);
    if (status == FSDP_OK)
        status = open_collectives(context, wanted(options->collectives, "FSDP_COLLECTIVES"), err);
    if (status == FSDP_OK)
        status = check_options(options, err);
    if (status == FSDP_OK && context->plugin != NULL) {
        config.row = context->plugin->numerics;
        config.device = &context->device;
    }
    if (status == FSDP_OK)
        status = numerics_open(&context->numerics, &config, err);
    if (context->comm != NULL)
        status = context_agree(context, status, err);
    context->opening.device_s = clock_now_s() - began_s - context->opening.collectives_s;
    return status;
}

void context_close_device(struct fsdp_context *context)
{
    place_close_host(context);
    numerics_close(&context->numerics);
    if (context->device.ops != NULL && device_is_separate(&context->device))
        context->device.ops->set_watch(&context->device, NULL, NULL);
    fsdp_comm_destroy(context->comm); /* its groups work on the device */
    context->comm = NULL;
    device_comms_fini(&context->comms);
    for (int s = 0; s < PLAN_N_STREAMS; s++)
        if (context->streams[s] != NULL)
            context->device.ops->stream_destroy(context->streams[s]);
    if (context->device.ops != NULL)
        device_close(&context->device);
}

const char *fsdp_context_device(const struct fsdp_context *context)
{
    return context != NULL ? context->device.ops->name : "";
}

const char *fsdp_context_device_refusal(const struct fsdp_context *context)
{
    return context != NULL ? context->refusal.message : "";
}

uint64_t fsdp_context_device_memory(const struct fsdp_context *context)
{
    size_t now = 0, most = 0;

    if (context != NULL && context->device.ops->usage != NULL)
        context->device.ops->usage(&context->device, &now, &most);
    return most;
}

struct fsdp_opening fsdp_context_opening(const struct fsdp_context *context)
{
    return context != NULL ? context->opening : (struct fsdp_opening){ 0 };
}

double fsdp_context_device_wait_s(const struct fsdp_context *context)
{
    return context != NULL && device_is_separate(&context->device)
               ? (double)context->device.ops->waited_ns(&context->device) / 1e9
               : 0;
}

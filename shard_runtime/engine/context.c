#include "shard_runtime/engine/context.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"

/*
 * How many threads compute: what the agent says, else OMP_NUM_THREADS, else the CPUs that this process may
 * use.
 */
static int choose_threads(const struct fsdp_context_options *options, const struct link *link)
{
    const char *text = getenv("OMP_NUM_THREADS");
    const long wanted = text != NULL ? strtol(text, NULL, 10) : 0;
    cpu_set_t cpus;

    if (options->threads > 0)
        return options->threads;
    if (!link_alone(link))
        return link_hello(link)->threads > 0 ? (int)link_hello(link)->threads : 1;
    if (wanted > 0 && wanted <= CPU_SETSIZE)
        return (int)wanted;
    if (sched_getaffinity(0, sizeof cpus, &cpus) == 0)
        return CPU_COUNT(&cpus);
    return 1;
}

enum fsdp_status context_create_on(struct fsdp_context **out, const struct fsdp_context_options *options,
                                   struct link *link, struct fsdp_comm *comm, struct fsdp_err *err)
{
    struct fsdp_context_options chosen = { 0 };
    struct fsdp_context *context = alloc_array(1, sizeof *context);
    enum fsdp_status status;

    *out = NULL;
    if (options != NULL)
        chosen = *options;
    if (context == NULL) { /* the other ranks notice this failure only when the process ends */
        fsdp_comm_destroy(comm);
        link_close(link);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "opening a context: out of memory");
    }
    context->link = link;
    context->comm = comm;
    context->progress = link_progress(link);
    context->rank = fsdp_comm_rank(comm);
    context->W = fsdp_comm_size(comm);
    if (chosen.configure != NULL) {
        size_t length = 0;
        const char *job = link_job(link, &length);

        chosen.configure(&chosen, job, length, chosen.configure_user);
    }
    context->threads = choose_threads(&chosen, link);
    context_io_init(&context->io, link);
    status = context_open_device(context, &chosen, err);
    if (status != FSDP_OK) {
        fsdp_context_destroy(context);
        return status;
    }
    comm_own(context->comm);
    context_alive(context);
    *out = context;
    return FSDP_OK;
}

enum fsdp_status fsdp_context_create(struct fsdp_context **out, const struct fsdp_context_options *options,
                                     struct fsdp_err *err)
{
    REQUIRE(out, err);

    struct fsdp_comm *comm = NULL;
    struct link *link = NULL;
    enum fsdp_status status;

    *out = NULL;
    status = link_open(&link, err);
    if (status == FSDP_OK) {
        const struct comm_config config = { .name = "world",
                                            .link = link,
                                            .rank = (int)link_hello(link)->rank,
                                            .size = (int)link_hello(link)->world_size };

        status = comm_create(&comm, &config, err);
    }
    if (status != FSDP_OK) {
        fsdp_wrap(err, "joining the world");
        link_close(link);
        return status;
    }
    return context_create_on(out, options, link, comm, err);
}

void fsdp_context_destroy(struct fsdp_context *context)
{
    if (context == NULL)
        return;
    context_close_device(context);
    directory_lock_release(&context->saves_to, context_files(context));
    link_close(context->link);
    free(context);
}

int fsdp_context_rank(const struct fsdp_context *context)
{
    return context != NULL ? context->rank : 0;
}

int fsdp_context_world_size(const struct fsdp_context *context)
{
    return context != NULL ? context->W : 1;
}

int fsdp_context_local_rank(const struct fsdp_context *context)
{
    return context != NULL ? (int)link_hello(context->link)->local_rank : 0;
}

int fsdp_context_local_world_size(const struct fsdp_context *context)
{
    return context != NULL ? (int)link_hello(context->link)->local_world_size : 1;
}

int fsdp_context_generation(const struct fsdp_context *context)
{
    return context != NULL ? (int)link_hello(context->link)->generation : 0;
}

int64_t fsdp_context_resume_step(const struct fsdp_context *context)
{
    return context != NULL ? link_hello(context->link)->resume_step : -1;
}

const char *fsdp_context_run_dir(const struct fsdp_context *context)
{
    return context != NULL ? link_hello(context->link)->run_dir : "";
}

const char *fsdp_context_job(const struct fsdp_context *context, size_t *length)
{
    size_t unused = 0;

    length = length != NULL ? length : &unused;
    *length = 0;
    return context != NULL ? link_job(context->link, length) : NULL;
}

bool fsdp_context_alone(const struct fsdp_context *context)
{
    return context == NULL || link_alone(context->link);
}

int fsdp_context_threads(const struct fsdp_context *context)
{
    return context != NULL ? context->threads : 0;
}

struct fsdp_comm *fsdp_context_comm(const struct fsdp_context *context)
{
    return context != NULL ? context->comm : NULL;
}

const char *fsdp_context_describe(const struct fsdp_context *context, char *buffer, size_t size)
{
    char numerics[200], device[200] = "";

    if (buffer == NULL || size == 0)
        return "";
    buffer[0] = '\0';
    if (context == NULL)
        return buffer;
    numerics_describe(&context->numerics, numerics, sizeof numerics);
    if (context->device.ops->describe != NULL)
        context->device.ops->describe(&context->device, device, sizeof device);
    snprintf(buffer, size, "%s%s%s, %s", context->device.ops->name, device[0] != '\0' ? " " : "", device,
             numerics);
    return buffer;
}

void context_set_checkpoint_extra(struct fsdp_context *context, const char *json_object)
{
    context->checkpoint_extra = json_object;
}

struct link *context_link(const struct fsdp_context *context)
{
    return context->link;
}

/* The progress page */

static void store(_Atomic uint64_t *word, uint64_t value)
{
    atomic_store_explicit(word, value, memory_order_relaxed);
}

static uint64_t bits_of(double value)
{
    uint64_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

void context_alive(const struct fsdp_context *context)
{
    link_alive(context->link);
}

void context_place(const struct fsdp_context *context, int thread, uint32_t place)
{
    atomic_store_explicit(&context->progress->threads[thread].place, place, memory_order_relaxed);
}

void fsdp_context_beat(struct fsdp_context *context, const struct fsdp_beat *beat)
{
    struct fsdp_progress *page = context != NULL ? context->progress : NULL;

    if (page == NULL || beat == NULL)
        return;
    store(&page->step, beat->step);
    store(&page->total_steps, beat->total_steps);
    store(&page->tokens, beat->tokens);
    store(&page->loss_bits, bits_of(beat->loss));
    store(&page->grad_norm_bits, bits_of(beat->grad_norm));
    store(&page->tokens_per_s_bits, bits_of(beat->tokens_per_s));
    store(&page->memory_bytes, beat->memory_bytes);
    context_alive(context);
}

void fsdp_context_phase(struct fsdp_context *context, enum fsdp_phase phase)
{
    if (context == NULL)
        return;
    atomic_store_explicit(&context->progress->phase, (uint32_t)phase, memory_order_relaxed);
    atomic_store_explicit(&context->progress->pass, (uint32_t)phase, memory_order_relaxed);
    context_alive(context);
    if (context->on_phase != NULL)
        context->on_phase(phase, context->on_phase_user);
}

void fsdp_context_on_phase(struct fsdp_context *context, fsdp_phase_fn fn, void *user)
{
    if (context == NULL)
        return;
    context->on_phase = fn;
    context->on_phase_user = user;
}

enum fsdp_status fsdp_context_event(struct fsdp_context *context, const char *json_object,
                                    struct fsdp_err *err)
{
    REQUIRE(context, err);

    return link_event(context->link, json_object, err);
}

bool fsdp_context_poll_notice(struct fsdp_context *context, struct fsdp_link_notice *notice)
{
    return context != NULL && notice != NULL && link_poll_notice(context->link, notice);
}

bool context_leaves_idle_time(unsigned n_nodes, int n_ranks, int threads, int n_cpus)
{
    return n_nodes > 1 || n_cpus > n_ranks * threads;
}

bool context_has_idle_time(const struct fsdp_context *context)
{
    const struct fsdp_link_hello *hello = link_hello(context->link);
    cpu_set_t cpus;
    const int n_cpus = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 0;

    return context_leaves_idle_time(hello->n_nodes, (int)hello->local_world_size, context->threads, n_cpus);
}

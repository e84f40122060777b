#include "shard_runtime/cuda/profile.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"

/* A piece of work between two events, whose times are read later. */
struct mark {
    int row;
    double amount;
    cudaEvent_t begin, end;
    bool ended;
};

enum { NONE = -1 };

struct profile {
    struct profile_table table;
    struct mark *marks; /* marks of this step */
    size_t n_marks, marks_room;
    cudaEvent_t *idle; /* events that can be used again */
    size_t n_idle, idle_room;
    struct device_stream *stream; /* the stream of the open span */
    int span, part;               /* the open marks, or NONE */
    int n_inner;      /* how many spans began while the open one was open; they count as part of it */
    uint64_t n_steps; /* steps that were read so far, with the first one */
    uint64_t limit;   /* steps; 0: until the run ends */
    uint64_t n_lost;
    double peak_gb_s;
};

/* Peak bandwidth: twice the clock, because GPU memory transfers on both edges. */
static double peak_of(const struct cuda_device *state)
{
    int clock_khz = 0, width_bits = 0;

    if (cudaDeviceGetAttribute(&clock_khz, cudaDevAttrMemoryClockRate, state->index) != cudaSuccess ||
        cudaDeviceGetAttribute(&width_bits, cudaDevAttrGlobalMemoryBusWidth, state->index) != cudaSuccess)
        return 0;
    return 2.0 * clock_khz * 1e3 * width_bits / 8 / 1e9;
}

enum fsdp_status profile_open(struct device *device, struct fsdp_err *err)
{
    const char *text = getenv("FSDP_CUDA_PROFILE");
    struct cuda_device *state = cuda_state(device);
    unsigned long wanted;
    char *end;

    if (text == NULL || text[0] == '\0')
        return FSDP_OK;
    wanted = strtoul(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || *end != '\0')
        return fsdp_fail(err, FSDP_ERR_CONFIG, "FSDP_CUDA_PROFILE=%s is no number of steps", text);
    if (wanted == 0)
        return FSDP_OK;
    state->profile = calloc(1, sizeof *state->profile);
    if (state->profile == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "FSDP_CUDA_PROFILE: out of memory");
    state->profile->limit = wanted > 1 ? wanted : 0;
    state->profile->span = state->profile->part = NONE;
    state->profile->peak_gb_s = peak_of(state);
    device->timed = true;
    return FSDP_OK;
}

static void print(const struct cuda_device *state)
{
    char who[CUDA_NAME_BYTES + 64];
    const struct profile_head head = { .who = cuda_who(state, who, sizeof who),
                                       .peak_gb_s = state->profile->peak_gb_s,
                                       .n_lost = state->profile->n_lost };

    profile_table_print(&state->profile->table, &head, stderr);
}

/* Returns an event. NULL, with the failure kept: none could be made. */
static cudaEvent_t take_event(struct cuda_device *state)
{
    struct profile *p = state->profile;
    cudaEvent_t event = NULL;

    if (p->n_idle > 0)
        return p->idle[--p->n_idle];
    CUDA_NOTE(state, cudaEventCreateWithFlags(&event, cudaEventDefault));
    return event;
}

static void give_event(struct cuda_device *state, cudaEvent_t event)
{
    struct profile *p = state->profile;

    if (event == NULL)
        return;
    if (alloc_room(&p->idle, &p->idle_room, p->n_idle, sizeof *p->idle))
        p->idle[p->n_idle++] = event;
    else
        CUDA_NOTE(state, cudaEventDestroy(event));
}

static cudaEvent_t record(struct cuda_device *state)
{
    const cudaEvent_t event = take_event(state);

    if (event != NULL)
        CUDA_NOTE(state, cudaEventRecord(event, state->profile->stream->cuda));
    return event;
}

static int begin(struct cuda_device *state, int row, double amount)
{
    struct profile *p = state->profile;

    if (!alloc_room(&p->marks, &p->marks_room, p->n_marks, sizeof *p->marks)) {
        p->n_lost++;
        return NONE;
    }
    p->marks[p->n_marks] = (struct mark){ .row = row, .amount = amount, .begin = record(state) };
    return (int)p->n_marks++;
}

static void end(struct cuda_device *state, int mark)
{
    if (mark == NONE)
        return;
    state->profile->marks[mark].end = record(state);
    state->profile->marks[mark].ended = true;
}

/*
 * Computes the milliseconds between two events. Returns false if one was not passed yet, or if the device
 * failed.
 */
static bool elapsed(cudaEvent_t from, cudaEvent_t to, double *ms)
{
    float read = 0;

    if (from == NULL || to == NULL || cudaEventElapsedTime(&read, from, to) != cudaSuccess)
        return false;
    *ms = (double)read;
    return true;
}

/* Read all marks of a finished step, which took from its first event to the last on any stream. */
static void read_step(struct cuda_device *state)
{
    struct profile *p = state->profile;
    double step_ms = 0, ms, until_ms;

    if (p->n_marks == 0)
        return;
    if (p->n_steps == 1) /* the first step was a warm-up */
        profile_table_clear(&p->table);
    for (size_t i = 0; i < p->n_marks; i++) {
        const struct mark *mark = &p->marks[i];

        if (!mark->ended)
            continue;
        if (!elapsed(mark->begin, mark->end, &ms) || !elapsed(p->marks[0].begin, mark->end, &until_ms)) {
            p->n_lost++;
            continue;
        }
        profile_table_add(&p->table, mark->row, ms, mark->amount);
        step_ms = until_ms > step_ms ? until_ms : step_ms;
    }
    for (size_t i = 0; i < p->n_marks; i++) {
        give_event(state, p->marks[i].begin);
        give_event(state, p->marks[i].end);
    }
    p->n_marks = 0;
    p->n_steps++;
    p->table.n_steps++;
    p->table.steps_ms += step_ms;
}

static void drop(struct cuda_device *state)
{
    struct profile *p = state->profile;

    for (size_t i = 0; i < p->n_idle; i++)
        CUDA_NOTE(state, cudaEventDestroy(p->idle[i]));
    profile_table_fini(&p->table);
    free(p->marks);
    free(p->idle);
    free(p);
    state->profile = NULL;
}

void profile_close(struct cuda_device *state)
{
    if (state->profile == NULL)
        return;
    read_step(state);
    print(state);
    drop(state);
}

/* Spans and parts */

void profile_begin_step(struct device *device)
{
    struct cuda_device *state = cuda_state(device);

    if (state->profile == NULL)
        return;
    read_step(state);
    if (state->profile->limit == 0 || state->profile->table.n_steps < state->profile->limit)
        return;
    print(state);
    drop(state);
    device->timed = false;
}

void profile_begin_span(struct device_stream *stream, const char *name, uint64_t size_bytes)
{
    struct cuda_device *state = cuda_state(stream->device);
    struct profile *p = state->profile;

    if (p->stream != NULL) {
        p->n_inner++;
        return;
    }
    p->stream = stream;
    p->span = begin(state, profile_table_row(&p->table, PROFILE_NO_ROW, name, PROFILE_BYTES, NULL),
                    (double)size_bytes);
}

void profile_end_span(struct device_stream *stream)
{
    struct cuda_device *state = cuda_state(stream->device);
    struct profile *p = state->profile;

    if (p->n_inner > 0) {
        p->n_inner--;
        return;
    }
    end(state, p->span);
    p->span = NONE;
    p->stream = NULL;
}

bool profile_is_on(const struct cuda_device *state, const struct device_stream *stream)
{
    const struct profile *p = state->profile;

    return p != NULL && p->span != NONE && p->part == NONE && (stream == NULL || stream == p->stream);
}

void profile_begin_part(struct cuda_device *state, const char *name, enum profile_unit unit, double amount,
                        const char *way)
{
    struct profile *p = state->profile;
    char own[PROFILE_NAME_BYTES];
    int length, row;

    name = cuda_call_name(name, &length);
    snprintf(own, sizeof own, "%.*s", length, name);
    row = profile_table_row(&p->table, p->marks[p->span].row, own, unit, way);
    p->part = begin(state, row, amount);
}

void profile_end_part(struct cuda_device *state, bool queued)
{
    struct profile *p = state->profile;

    if (queued)
        end(state, p->part);
    p->part = NONE;
}

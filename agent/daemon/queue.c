#include "agent/daemon/queue.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { N_WORDS = QUEUE_GPUS / 64, HOLDERS_NAMED = 3, NAME_SHOWN = 24 };

static const struct queue_gpus none;

bool queue_gpus_have(const struct queue_gpus *gpus, int i)
{
    return (gpus->words[i / 64] >> i % 64 & 1) != 0;
}

void queue_gpus_put(struct queue_gpus *gpus, int i)
{
    gpus->words[i / 64] |= UINT64_C(1) << i % 64;
}

int queue_gpus_count(const struct queue_gpus *gpus)
{
    int n = 0;

    for (int i = 0; i < N_WORDS; i++)
        n += __builtin_popcountll(gpus->words[i]);
    return n;
}

static void add(struct queue_gpus *to, const struct queue_gpus *gpus)
{
    for (int i = 0; i < N_WORDS; i++)
        to->words[i] |= gpus->words[i];
}

static struct queue_gpus without(const struct queue_gpus *gpus, const struct queue_gpus *others)
{
    struct queue_gpus left;

    for (int i = 0; i < N_WORDS; i++)
        left.words[i] = gpus->words[i] & ~others->words[i];
    return left;
}

static struct queue_gpus both(const struct queue_gpus *a, const struct queue_gpus *b)
{
    struct queue_gpus common;

    for (int i = 0; i < N_WORDS; i++)
        common.words[i] = a->words[i] & b->words[i];
    return common;
}

static void append(struct queue *queue, struct queue_job *job)
{
    job->next = NULL;
    job->previous = queue->last;
    *(queue->last != NULL ? &queue->last->next : &queue->first) = job;
    queue->last = job;
}

static void take_out(struct queue *queue, struct queue_job *job)
{
    *(job->previous != NULL ? &job->previous->next : &queue->first) = job->next;
    *(job->next != NULL ? &job->next->previous : &queue->last) = job->previous;
}

void queue_arrive(struct queue *queue, struct queue_job *job, int id)
{
    assert(job->state == QUEUE_OUT);
    *job = (struct queue_job){ .state = QUEUE_ARRIVED, .id = id };
    append(queue, job);
}

bool queue_need(struct queue *queue, struct queue_job *job, int n_wanted, const struct queue_gpus *usable,
                const char *name)
{
    if ((job->state != QUEUE_ARRIVED && job->state != QUEUE_LATE) || n_wanted < 0 ||
        n_wanted > queue_gpus_count(usable))
        return false;
    if (n_wanted == 0) {
        queue_leave(queue, job);
        return true;
    }
    job->state = QUEUE_WAITS;
    job->n_wanted = n_wanted;
    job->usable = *usable;
    snprintf(job->name, sizeof job->name, "%s", name);
    for (char *c = job->name; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            *c = ' ';
    return true;
}

void queue_late(struct queue *queue, struct queue_job *job)
{
    if (job->state != QUEUE_ARRIVED)
        return;
    take_out(queue, job);
    append(queue, job);
    job->state = QUEUE_LATE;
}

void queue_leave(struct queue *queue, struct queue_job *job)
{
    if (job->state == QUEUE_OUT)
        return;
    take_out(queue, job);
    *job = (struct queue_job){ .state = QUEUE_OUT };
}

/* The first `n` GPUs of a set. */
static struct queue_gpus first_of(const struct queue_gpus *gpus, int n)
{
    struct queue_gpus taken = none;

    for (int i = 0; i < QUEUE_GPUS && n > 0; i++)
        if (queue_gpus_have(gpus, i)) {
            queue_gpus_put(&taken, i);
            n--;
        }
    return taken;
}

struct queue_job *queue_next(struct queue *queue)
{
    struct queue_gpus gone = none; /* held, or kept for an earlier job */

    for (const struct queue_job *job = queue->first; job != NULL; job = job->next)
        add(&gone, &job->held);
    for (struct queue_job *job = queue->first; job != NULL; job = job->next) {
        const struct queue_gpus left = without(&job->usable, &gone);

        if (job->state == QUEUE_ARRIVED)
            return NULL; /* everything is kept for it */
        if (job->state == QUEUE_WAITS && queue_gpus_count(&left) >= job->n_wanted) {
            job->held = first_of(&left, job->n_wanted);
            job->usable = none;
            job->state = QUEUE_HOLDS;
            return job;
        }
        add(&gone, &job->usable);
    }
    return NULL;
}

/* What is written to `out`, until it is full. */
struct words {
    char *out;
    size_t n;
};

__attribute__((format(printf, 2, 3))) static void say(struct words *words, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(words->out + words->n, QUEUE_WORDS_BYTES - words->n, format, args);
    va_end(args);
    words->n += strlen(words->out + words->n);
}

/* As "0-3, 6". */
static void say_gpus(struct words *words, const struct queue_gpus *gpus)
{
    const char *comma = "";

    for (int i = 0; i < QUEUE_GPUS; i++) {
        int end = i;

        if (!queue_gpus_have(gpus, i))
            continue;
        while (end + 1 < QUEUE_GPUS && queue_gpus_have(gpus, end + 1))
            end++;
        if (end - i < 2)
            end = i;
        say(words, "%s%d", comma, i);
        if (end > i)
            say(words, "-%d", end);
        comma = ", ";
        i = end;
    }
}

void queue_words(const struct queue *queue, const struct queue_job *job, char *out)
{
    struct words words = { out, 0 };
    const char *mark = ": ";
    int n_holders = 0, n_ahead = 0;
    bool earlier = true;

    out[0] = '\0';
    say(&words, "waits for %d GPU%s", job->n_wanted, job->n_wanted == 1 ? "" : "s");
    for (const struct queue_job *other = queue->first; other != NULL; other = other->next) {
        const struct queue_gpus held = both(&other->held, &job->usable);
        const struct queue_gpus wanted = both(&other->usable, &job->usable);

        earlier &= other != job;
        n_ahead += earlier && (other->state == QUEUE_ARRIVED || queue_gpus_count(&wanted) > 0);
        if (queue_gpus_count(&held) == 0)
            continue;
        if (n_holders++ < HOLDERS_NAMED) {
            say(&words, "%sjob %.*s (%d) holds ", mark, NAME_SHOWN, other->name, other->id);
            say_gpus(&words, &held);
            mark = ", ";
        }
    }
    if (n_holders > HOLDERS_NAMED)
        say(&words, ", and %d other job%s", n_holders - HOLDERS_NAMED,
            n_holders - HOLDERS_NAMED == 1 ? "" : "s");
    if (n_ahead > 0)
        say(&words, "%s%d job%s ahead", n_holders > 0 ? "; " : mark, n_ahead, n_ahead == 1 ? " is" : "s are");
}

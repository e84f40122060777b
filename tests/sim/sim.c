#include "tests/sim/history.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Random numbers: splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators"). */

static uint64_t seed_of_all, states[SIM_STREAMS];

uint64_t sim_draw(enum sim_stream stream)
{
    uint64_t z = states[stream] += UINT64_C(0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

void sim_seed(uint64_t seed)
{
    seed_of_all = seed;
    for (int i = 0; i < SIM_STREAMS; i++)
        states[i] = seed * UINT64_C(0x2545f4914f6cdd1d) + (uint64_t)i * UINT64_C(0x632be59bd9b4e019);
    for (int i = 0; i < SIM_STREAMS; i++)
        states[i] = sim_draw((enum sim_stream)i);
}

int64_t sim_between(enum sim_stream stream, int64_t low, int64_t high)
{
    return low >= high ? low : low + (int64_t)(sim_draw(stream) % (uint64_t)(high - low + 1));
}

bool sim_one_in(enum sim_stream stream, int n)
{
    return n > 0 && sim_draw(stream) % (uint64_t)n == 0;
}

/* Events, in a binary heap by time and then by number */

struct event {
    int64_t when;
    uint64_t order;
    void (*run)(void *what, uint64_t number);
    void *what;
    uint64_t number;
};

enum { MOST_EVENTS = 3000000 }; /* a usual history has fewer than 100,000 */

int64_t sim_now;
uint64_t sim_n_events;
static struct event *heap;
static size_t n_heap, heap_capacity;
static uint64_t n_ordered;

static bool earlier(const struct event *a, const struct event *b)
{
    return a->when < b->when || (a->when == b->when && a->order < b->order);
}

static void swap(size_t a, size_t b)
{
    const struct event held = heap[a];

    heap[a] = heap[b];
    heap[b] = held;
}

void sim_at(int64_t when, void (*run)(void *what, uint64_t number), void *what, uint64_t number)
{
    size_t i = n_heap++;

    if (n_heap > heap_capacity) {
        heap_capacity = heap_capacity == 0 ? 1024 : heap_capacity * 2;
        heap = realloc(heap, heap_capacity * sizeof *heap);
    }
    heap[i] = (struct event){ when < sim_now ? sim_now : when, n_ordered++, run, what, number };
    for (; i > 0 && earlier(&heap[i], &heap[(i - 1) / 2]); i = (i - 1) / 2)
        swap(i, (i - 1) / 2);
}

static struct event take_first(void)
{
    const struct event first = heap[0];

    heap[0] = heap[--n_heap];
    for (size_t i = 0, least;; i = least) {
        least = i;
        for (size_t child = 2 * i + 1; child <= 2 * i + 2; child++)
            if (child < n_heap && earlier(&heap[child], &heap[least]))
                least = child;
        if (least == i)
            return first;
        swap(i, least);
    }
}

void sim_run(int64_t until, bool (*over)(void))
{
    while (n_heap > 0 && heap[0].when <= until && !over()) {
        const struct event event = take_first();

        sim_now = event.when;
        sim_n_events++;
        event.run(event.what, event.number);
        if (sim_n_events > MOST_EVENTS)
            sim_violated("every history ends", "%llu events", (unsigned long long)sim_n_events);
    }
}

/* What happened */

enum { LINES = 80, LINE_BYTES = 240 };
static char lines[LINES][LINE_BYTES];
static uint64_t n_lines;
bool sim_prints;
uint64_t sim_digest = UINT64_C(0xcbf29ce484222325);

void sim_trace(const char *format, ...)
{
    char *line = lines[n_lines++ % LINES];
    va_list args;
    int n = snprintf(line, LINE_BYTES, "%10.4f ", (double)sim_now / 1e9);

    if (sim_speaker() >= 0)
        n += snprintf(line + n, LINE_BYTES - (size_t)n, "n%d ", sim_speaker());
    va_start(args, format);
    vsnprintf(line + n, LINE_BYTES - (size_t)n, format, args);
    va_end(args);
    for (const char *at = line; *at != '\0'; at++) /* FNV-1a */
        sim_digest = (sim_digest ^ (unsigned char)*at) * UINT64_C(0x100000001b3);
    if (sim_prints)
        printf("%s\n", line);
}

void sim_violated(const char *invariant, const char *format, ...)
{
    va_list args;

    if (!sim_prints)
        for (uint64_t i = n_lines < LINES ? 0 : n_lines - LINES; i < n_lines; i++)
            printf("    %s\n", lines[i % LINES]);
    printf("seed %llu: %s: ", (unsigned long long)seed_of_all, invariant);
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    printf(" (at %.4f s)\n", (double)sim_now / 1e9);
    fflush(stdout);
    _exit(3);
}

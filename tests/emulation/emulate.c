#include "tests/emulation/emulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/emulation/fiber.h"

enum state { READY, AT_BARRIER, AT_WARP, ENDED };

struct site {
    const char *file;
    int line;
};

struct thread {
    struct fiber *fiber;
    struct emulate_place place;
    unsigned index;
    enum state state;
    struct site site; /* where it waits */
};

/* Two sets of slots by turns: a lane that runs ahead writes the set that nobody reads any more. */
struct warp {
    unsigned arrived, turn;
    unsigned n_at_barrier, n_ended;
    const struct thread *first; /* of those that arrived */
    unsigned char slots[2][EMULATE_WARP * EMULATE_SLOT_BYTES];
};

/* One grid at a time: a kernel launches no kernel. */
static struct {
    enum emulate_order order;
    uint64_t seed;
    uint64_t launches, switches;
    struct emulate_traffic traffic;
    const char *kernel;
    void (*body)(const void *argument);
    const void *argument;
    struct thread threads[EMULATE_MAX_THREADS];
    struct warp warps[EMULATE_MAX_THREADS / EMULATE_WARP];
    unsigned n_threads, n_at_barrier, n_ended;
    const struct thread *first_at_barrier;
    struct thread *self;
    void *shared;
} grid;

emulate_queue_fn emulate_queue;
size_t emulate_max_shared_bytes = EMULATE_MAX_SHARED_BYTES;
const struct emulate_place *emulate_place;

void emulate_schedule(enum emulate_order order, uint64_t seed)
{
    grid.order = order;
    grid.seed = seed;
}

uint64_t emulate_launches(void)
{
    return grid.launches;
}

uint64_t emulate_switches(void)
{
    return grid.switches;
}

struct emulate_traffic emulate_moved(void)
{
    return grid.traffic;
}

void emulate_access(size_t read_bytes, size_t written_bytes)
{
    grid.traffic.read_bytes += read_bytes;
    grid.traffic.written_bytes += written_bytes;
}

static _Noreturn void refuse(const struct thread *thread, const char *what, const struct site *here,
                             const struct thread *other)
{
    const struct emulate_size zero = { 0, 0, 0 };
    const struct emulate_size block = thread == NULL ? zero : thread->place.block;

    fprintf(stderr, "emulation: kernel %s block (%u,%u,%u) thread %u: %s", grid.kernel, block.x, block.y,
            block.z, thread == NULL ? 0 : thread->index, what);
    if (here != NULL)
        fprintf(stderr, " at %s:%d", here->file, here->line);
    if (other != NULL)
        fprintf(stderr, ", thread %u %s %s:%d", other->index,
                other->state == AT_BARRIER ? "waits at the barrier at" : "waits for its warp at",
                other->site.file, other->site.line);
    fputc('\n', stderr);
    abort();
}

static bool same_site(const struct site *a, const struct site *b)
{
    return a->line == b->line && strcmp(a->file, b->file) == 0;
}

/* Any thread that waits as `state` says. */
static const struct thread *waiting(unsigned first, unsigned n, enum state state)
{
    for (unsigned i = first; i < first + n; i++)
        if (grid.threads[i].state == state)
            return &grid.threads[i];
    return NULL;
}

static struct warp *warp_of(const struct thread *thread)
{
    return &grid.warps[thread->index / EMULATE_WARP];
}

static void wait_here(struct thread *self, enum state state, struct site site)
{
    self->state = state;
    self->site = site;
    fiber_switch(self->fiber, fiber_main());
}

void *emulate_shared(void)
{
    return grid.shared;
}

bool emulate_copies_at_once(void)
{
    return grid.order == EMULATE_FORWARD || (grid.order == EMULATE_SEEDED && grid.seed % 2 == 1);
}

void emulate_barrier(const char *file, int line)
{
    struct thread *self = grid.self;
    const struct site site = { file, line };

    if (grid.n_at_barrier > 0 && !same_site(&grid.first_at_barrier->site, &site))
        refuse(self, "divergent barrier", &site, grid.first_at_barrier);
    if (warp_of(self)->arrived > 0)
        refuse(self, "divergent barrier", &site, warp_of(self)->first);
    if (grid.n_ended > 0)
        refuse(self, "divergent barrier: another thread has ended without it", &site, NULL);
    if (grid.n_at_barrier == 0)
        grid.first_at_barrier = self;
    if (++grid.n_at_barrier < grid.n_threads) {
        warp_of(self)->n_at_barrier++;
        wait_here(self, AT_BARRIER, site);
        return;
    }
    grid.n_at_barrier = 0;
    for (unsigned i = 0; i < grid.n_threads; i++)
        grid.threads[i].state = READY;
    for (unsigned i = 0; i < grid.n_threads / EMULATE_WARP; i++)
        grid.warps[i].n_at_barrier = 0;
}

const unsigned char *emulate_warp(const void *data, size_t size, const char *file, int line)
{
    struct thread *self = grid.self;
    const unsigned first = self->index / EMULATE_WARP * EMULATE_WARP;
    struct warp *warp = warp_of(self);
    unsigned char *slots = warp->slots[warp->turn % 2];
    const struct site site = { file, line };

    if (size > EMULATE_SLOT_BYTES)
        refuse(self, "shows its warp more than a slot holds", &site, NULL);
    if (warp->arrived > 0 && !same_site(&warp->first->site, &site))
        refuse(self, "divergent shuffle", &site, warp->first);
    if (warp->n_at_barrier > 0)
        refuse(self, "divergent shuffle", &site, waiting(first, EMULATE_WARP, AT_BARRIER));
    if (warp->n_ended > 0)
        refuse(self, "divergent shuffle: another lane has ended without it", &site, NULL);
    memcpy(slots + self->index % EMULATE_WARP * EMULATE_SLOT_BYTES, data, size);
    if (warp->arrived == 0)
        warp->first = self;
    if (++warp->arrived < EMULATE_WARP) {
        wait_here(self, AT_WARP, site);
        return slots;
    }
    warp->arrived = 0;
    warp->turn++;
    for (unsigned i = first; i < first + EMULATE_WARP; i++)
        grid.threads[i].state = READY;
    return slots;
}

/* A fiber serves the thread of its index in every block of every launch. */
static void thread_entry(void *argument)
{
    struct thread *self = argument;

    for (;;) {
        grid.body(grid.argument);
        if (grid.n_at_barrier > 0)
            refuse(self, "divergent barrier: ended without it", NULL, grid.first_at_barrier);
        if (warp_of(self)->arrived > 0)
            refuse(self, "divergent shuffle: ended without it", NULL, warp_of(self)->first);
        self->state = ENDED;
        grid.n_ended++;
        warp_of(self)->n_ended++;
        fiber_switch(self->fiber, fiber_main());
    }
}

static uint64_t next_random(uint64_t *state)
{
    /* splitmix64: Steele, Lea and Flood, OOPSLA 2014 */
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void permute(unsigned *order, unsigned n, uint64_t *random)
{
    for (unsigned i = 0; i < n; i++)
        order[i] = grid.order == EMULATE_REVERSE ? n - 1 - i : i;
    for (unsigned i = n; grid.order == EMULATE_SEEDED && i > 1; i--) {
        const unsigned j = (unsigned)(next_random(random) % i), kept = order[i - 1];

        order[i - 1] = order[j];
        order[j] = kept;
    }
}

/* One thread, until it waits or ends; false where it waits already. */
static bool run_thread(struct thread *thread)
{
    if (thread->state != READY)
        return false;
    grid.self = thread;
    emulate_place = &thread->place;
    grid.switches++;
    fiber_switch(fiber_main(), thread->fiber);
    return true;
}

/* All threads by turns, in another order every time. */
static bool run_threads_seeded(uint64_t *random)
{
    unsigned order[EMULATE_MAX_THREADS];
    bool progress = false;

    permute(order, grid.n_threads, random);
    for (unsigned i = 0; i < grid.n_threads; i++)
        progress |= run_thread(&grid.threads[order[i]]);
    return progress;
}

/*
 * A warp goes on for as long as it can before the next one moves at all: the furthest that warps can be
 * apart.
 */
static bool run_warps_in_order(void)
{
    unsigned warps[EMULATE_MAX_THREADS / EMULATE_WARP], lanes[EMULATE_WARP];
    bool progress = false;

    permute(warps, grid.n_threads / EMULATE_WARP, NULL);
    permute(lanes, EMULATE_WARP, NULL);
    for (unsigned w = 0; w < grid.n_threads / EMULATE_WARP; w++) {
        bool moves = true;

        while (moves) {
            moves = false;
            for (unsigned i = 0; i < EMULATE_WARP; i++)
                moves |= run_thread(&grid.threads[warps[w] * EMULATE_WARP + lanes[i]]);
            progress |= moves;
        }
    }
    return progress;
}

/* Until all threads have ended. Whoever waits when nobody can go on waits for ever. */
static void run_block(uint64_t *random)
{
    while (grid.n_ended < grid.n_threads) {
        const bool progress =
            grid.order == EMULATE_SEEDED ? run_threads_seeded(random) : run_warps_in_order();

        if (!progress) {
            const struct thread *stuck = waiting(0, grid.n_threads, AT_WARP);

            if (stuck == NULL)
                stuck = waiting(0, grid.n_threads, AT_BARRIER);
            refuse(stuck, "waits for ever", &stuck->site, NULL);
        }
    }
}

static void check_launch(struct emulate_size blocks, struct emulate_size block, size_t shared_bytes,
                         size_t argument_bytes)
{
    if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0 || blocks.x > 0x7fffffffu || blocks.y > 65535 ||
        blocks.z > 65535)
        refuse(NULL, "a grid of no size, or of more than a GPU takes", NULL, NULL);
    if (block.x == 0 || block.x % EMULATE_WARP != 0 || block.x > EMULATE_MAX_THREADS || block.y != 1 ||
        block.z != 1)
        refuse(NULL, "a block that is not 32 to 1024 threads in whole warps along x", NULL, NULL);
    if (shared_bytes > emulate_max_shared_bytes)
        refuse(NULL, "more shared memory than a block may have", NULL, NULL);
    if (argument_bytes > EMULATE_MAX_ARGUMENT_BYTES)
        refuse(NULL, "more than 32764 bytes of arguments", NULL, NULL);
}

static void begin_block(unsigned block, struct emulate_size blocks, struct emulate_size block_size,
                        size_t shared_bytes)
{
    const struct emulate_size place = { block % blocks.x, block / blocks.x % blocks.y,
                                        block / blocks.x / blocks.y };

    memset(grid.shared, 0xff, shared_bytes);
    grid.n_ended = grid.n_at_barrier = 0;
    for (unsigned i = 0; i < grid.n_threads; i++) {
        struct thread *thread = &grid.threads[i];

        if (thread->fiber == NULL)
            thread->fiber = fiber_create(thread_entry, thread);
        thread->index = i;
        thread->state = READY;
        thread->place = (struct emulate_place){ { i, 0, 0 }, place, block_size, blocks };
        warp_of(thread)->arrived = warp_of(thread)->n_at_barrier = warp_of(thread)->n_ended = 0;
    }
}

int emulate_launch(const char *kernel, struct emulate_size blocks, struct emulate_size block,
                   size_t shared_bytes, size_t argument_bytes, void (*body)(const void *argument),
                   const void *argument)
{
    const unsigned n_blocks = blocks.x * blocks.y * blocks.z;
    uint64_t random = grid.seed;
    unsigned *order;

    grid.kernel = kernel;
    check_launch(blocks, block, shared_bytes, argument_bytes);
    grid.body = body;
    grid.argument = argument;
    grid.n_threads = block.x;
    grid.launches++;
    order = malloc(n_blocks * sizeof *order);
    grid.shared = NULL; /* not a byte more than asked for: what is beyond, the address sanitizer sees */
    if (order == NULL || posix_memalign(&grid.shared, 16, shared_bytes) != 0)
        refuse(NULL, "no memory on the host", NULL, NULL);
    permute(order, n_blocks, &random);
    for (unsigned i = 0; i < n_blocks; i++) {
        begin_block(order[i], blocks, block, shared_bytes);
        run_block(&random);
    }
    free(grid.shared);
    free(order);
    grid.shared = NULL;
    emulate_place = NULL;
    return 0;
}

/*
 * agent/os/lease.h and the guard: it kills the ranks of a node when the lease is over, also while the agent
 * stands still.
 */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

struct lease_page {
    struct process *process;
    int64_t until_ns; /* by the host's clock */
    uint32_t under, over;
    unsigned char will[LEASE_WILL_BYTES];
    size_t will_bytes;
};

static int64_t clock_of(const struct lease_page *page)
{
    return sim_clock_of(page->process->host);
}

void sim_lease_make(struct process *process)
{
    process->lease.page = calloc(1, sizeof *process->lease.page);
    process->lease.page->process = process;
}

static void on_guard(void *what, uint64_t under)
{
    struct lease_page *page = what;
    const struct host *host = page->process->host;
    int64_t until_ns;

    if (!page->process->alive || page->under != under)
        return;
    if (host->suspended && sim_now < host->stalled_until) {
        sim_at(host->stalled_until + 1000, on_guard, what, under);
        return;
    }
    until_ns = lease_look(&page->process->lease);
    if (until_ns == INT64_MIN)
        sim_world_sweep(page->process);
    sim_at(until_ns == INT64_MIN ? sim_now + 10 * MS : sim_now + until_ns - clock_of(page) + MS, on_guard,
           what, under);
}

void lease_extend(const struct lease *lease, int64_t sent_ns, int64_t lease_ms)
{
    struct lease_page *page = lease->page;

    if (sent_ns <= clock_of(page) && sent_ns + lease_ms * MS > page->until_ns && !lease_is_over(lease))
        page->until_ns = sent_ns + lease_ms * MS;
}

void lease_clear(const struct lease *lease)
{
    lease->page->until_ns = 0;
}

bool lease_runs(const struct lease *lease)
{
    return clock_of(lease->page) < lease->page->until_ns;
}

void lease_begin(const struct lease *lease, int generation)
{
    lease->page->under = (uint32_t)generation + 1;
    sim_at(sim_now, on_guard, lease->page, lease->page->under);
}

void lease_end(const struct lease *lease)
{
    lease->page->under = 0;
}

int64_t lease_look(const struct lease *lease)
{
    struct lease_page *page = lease->page;

    if (page->under == 0)
        return 0;
    if (page->over != page->under && clock_of(page) < page->until_ns)
        return page->until_ns;
    page->over = page->under;
    return INT64_MIN;
}

void lease_bequeath(const struct lease *lease, const void *will, size_t n_bytes)
{
    lease->page->will_bytes = n_bytes;
    if (n_bytes > 0)
        memcpy(lease->page->will, will, n_bytes);
}

bool lease_inherit(const struct lease *lease, void *will, size_t n_bytes)
{
    if (lease->page->will_bytes != n_bytes)
        return false;
    memcpy(will, lease->page->will, n_bytes);
    return true;
}

bool lease_is_over(const struct lease *lease)
{
    return lease_look(lease) == INT64_MIN;
}

int64_t lease_over_ms(const struct lease *lease)
{
    const int64_t over_ns = clock_of(lease->page) - lease->page->until_ns;

    return over_ns > 0 ? over_ns / MS : 0;
}

int64_t sim_lease_over_ns(const struct process *process)
{
    const struct lease_page *page = process->lease.page;

    return page->under == 0 ? NEVER : clock_of(page) - page->until_ns;
}

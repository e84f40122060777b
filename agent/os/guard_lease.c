#include "agent/os/guard_lease.h"

#include <signal.h>
#include <unistd.h>

#include "agent/os/deadlines.h"
#include "agent/os/descendants.h"
#include "shard_runtime/core/clock.h"

enum {
    FAST_PASSES = 100, /* after so many passes, only processes that KILL does not reach can be left */
    FAST_NS = 10000000,
    SLOW_NS = 250000000
};

void guard_lease_look(struct guard_lease *guard)
{
    int64_t until_ns;
    uint64_t n_expired;

    if (guard->lease.page == NULL)
        return;
    (void)!read(guard->lease.timer, &n_expired, sizeof n_expired);
    until_ns = lease_look(&guard->lease);
    if (until_ns != INT64_MIN) {
        guard->n_passes = 0;
        if (until_ns != 0)
            lease_wake_at(&guard->lease, until_ns);
        return;
    }
    guard->n_passes++;
    if (descendants_signal_below(guard->agent, SIGKILL) == 0)
        guard->n_passes = FAST_PASSES;
    lease_wake_at(&guard->lease, clock_boot_ns() + (guard->n_passes < FAST_PASSES ? FAST_NS : SLOW_NS));
}

bool guard_lease_all_stopped(const struct guard_lease *guard)
{
    enum { TRIES = 3 };

    for (int i = 0; guard->lease.page != NULL && i < TRIES; i++) {
        if (descendants_running_below(guard->agent) == 0)
            return true;
        descendants_signal_below(guard->agent, SIGSTOP);
    }
    return guard->lease.page == NULL;
}

int64_t guard_lease_slack_ms(const struct guard_lease *guard, int64_t own_lease_ms)
{
    const int64_t answered_ms = guard->lease.page == NULL ? 0 : lease_answered_ms(&guard->lease),
                  lease_ms = answered_ms == 0 ? own_lease_ms : LEASE_OF_RANKS_MS(answered_ms);

    return GUARD_SLACK_MS + 2 * LEASE_END_MS(lease_ms);
}

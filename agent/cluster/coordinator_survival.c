/*
 * Prints, for each generation, the line that says which losses of nodes the job survives. Whether a member
 * could take the leader's place is known only after it has said so, perhaps after the generation has begun.
 * So the line waits for that, but not for long: some members never can, for example because they do not see
 * the run directory.
 */
#include "agent/cluster/coordinator_impl.h"
#include "agent/members/survival.h"
#include "agent/os/deadlines.h"

/*
 * A member that is not seated reads the record once in a lease, and sends LEASE_BEATS beats in a lease. So
 * within two leases the coordinator knows what it can do.
 */
enum { SURVIVAL_WAIT_LEASES = 2 };

bool coordinator_bears_loss(const struct coordinator *coordinator)
{
    return coordinator_is_elastic(coordinator) ||
           !budget_spent(&coordinator->budget, coordinator_now_ns(coordinator));
}

/* Returns the number of nodes that stay and could take this node's place. */
static int count_heirs(const struct coordinator *coordinator)
{
    int n = 0;

    for (int i = COORDINATOR_SELF + 1; i < coordinator->roster.capacity; i++)
        n += coordinator->nodes[i].can_lead && roster_stays(&coordinator->roster.nodes[i]);
    return n;
}

static void say(struct coordinator *coordinator, int n_heirs)
{
    const struct roster *roster = &coordinator->roster;
    const struct survival survival = { .n_nodes = roster_n_present(roster),
                                       .min_nodes = roster->min_nodes,
                                       .n_heirs = n_heirs,
                                       .waits = coordinator_bears_loss(coordinator),
                                       .host = roster->nodes[COORDINATOR_SELF].who.host };
    char words[SURVIVAL_WORDS_BYTES];

    coordinator->n_heirs = n_heirs;
    console_say(coordinator->services.console, "fsdprun: generation %d: %s", coordinator->generation,
                survival_words(&survival, words));
}

void coordinator_survival_look(struct coordinator *coordinator)
{
    const uint64_t now_ms = coordinator_now_ms(coordinator);
    int n_heirs;

    if (coordinator->survival_ms == 0 || now_ms < coordinator->survival_ms)
        return;
    coordinator->survival_ms = 0;
    if (coordinator->state != CS_UP)
        return;
    n_heirs = count_heirs(coordinator);
    if (n_heirs < roster_n_present(&coordinator->roster) - 1 && now_ms < coordinator->survival_until_ms)
        coordinator->survival_ms = coordinator->survival_until_ms;
    else if (n_heirs != coordinator->n_heirs)
        say(coordinator, n_heirs);
}

void coordinator_survival_begin(struct coordinator *coordinator)
{
    const uint64_t now_ms = coordinator_now_ms(coordinator);
    const uint64_t wait_ms = SURVIVAL_WAIT_LEASES * (uint64_t)coordinator->config->lease_ms;

    if (coordinator->roster.max_nodes == 1 || coordinator->config->quiet)
        return;
    coordinator->n_heirs = -1;
    /* without an arbiter no other node can lead, so there is nothing to wait for */
    coordinator->survival_until_ms = coordinator->services.lead.holds == NULL ? now_ms : now_ms + wait_ms;
    coordinator->survival_ms = now_ms;
    coordinator_survival_look(coordinator);
    coordinator_arm(coordinator);
}

void coordinator_can_lead(struct coordinator *coordinator, int node)
{
    const uint64_t soon_ms =
        coordinator_now_ms(coordinator) + (uint64_t)coordinator->config->lease_ms / LEASE_BEATS;

    coordinator->nodes[node].can_lead = true;
    if (coordinator->state != CS_UP || !coordinator_in_play(coordinator, node) || coordinator->config->quiet)
        return;
    /* more nodes may report in the same beat, and one line is enough for all of them */
    if (coordinator->survival_ms == 0 || soon_ms < coordinator->survival_ms)
        coordinator->survival_ms = soon_ms;
    coordinator_arm(coordinator);
}

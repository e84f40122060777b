/* What must hold after each event, and at the end of a history. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/os/deadlines.h"
#include "agent/wire/session_core.h"
#include "tests/sim/arbiter/store.h"
#include "tests/sim/sim.h"

/*
 * Frames are delivered once and in order. This is an account of its own: it does not use the numbers of the
 * frames. The linker passes the product's calls of these functions through here (--wrap).
 */

enum fsdp_status __real_session_core_send(struct session_core *core, uint16_t type, uint32_t generation,
                                          const void *payload, size_t size_bytes, struct fsdp_err *err);
enum fsdp_status __wrap_session_core_send(struct session_core *core, uint16_t type, uint32_t generation,
                                          const void *payload, size_t size_bytes, struct fsdp_err *err);
enum session_take __real_session_core_take(struct session_core *core, const struct frame *frame,
                                           struct fsdp_err *err);
enum session_take __wrap_session_core_take(struct session_core *core, const struct frame *frame,
                                           struct fsdp_err *err);

struct talk {
    struct talk *next;
    unsigned char identity[SESSION_IDENTITY_BYTES];
    struct talker {
        const struct session_core *end; /* a node that has the endpoint may dial itself */
        uint64_t *sent;                 /* a hash of each frame */
        size_t n_sent, n_taken, capacity;
    } talkers[2];
};

static struct talk *talks;

static struct talk *find_talk(const struct session_core *core)
{
    struct talk *talk = talks;

    while (talk != NULL && memcmp(talk->identity, core->identity, sizeof talk->identity) != 0)
        talk = talk->next;
    if (talk == NULL) {
        talk = calloc(1, sizeof *talk);
        memcpy(talk->identity, core->identity, sizeof talk->identity);
        talk->next = talks;
        talks = talk;
    }
    return talk;
}

static struct talker *find_talker(struct talk *talk, const struct session_core *core, bool own)
{
    struct talker *talkers = talk->talkers;
    int i = talkers[0].end == NULL || talkers[0].end == core ? 0 : 1;

    talkers[i].end = core;
    return &talkers[own ? i : 1 - i];
}

static uint64_t hash_of(uint16_t type, uint32_t generation, const unsigned char *payload, size_t size)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325) ^ ((uint64_t)type << 32 | generation);

    for (size_t i = 0; i < size; i++)
        hash = (hash ^ payload[i]) * UINT64_C(0x100000001b3);
    return hash;
}

enum fsdp_status __wrap_session_core_send(struct session_core *core, uint16_t type, uint32_t generation,
                                          const void *payload, size_t size_bytes, struct fsdp_err *err)
{
    const enum fsdp_status status =
        __real_session_core_send(core, type, generation, payload, size_bytes, err);
    struct talker *talker = find_talker(find_talk(core), core, true);

    if (status != FSDP_OK)
        return status;
    if (talker->n_sent == talker->capacity) {
        talker->capacity = talker->capacity == 0 ? 32 : talker->capacity * 2;
        talker->sent = realloc(talker->sent, talker->capacity * sizeof *talker->sent);
    }
    talker->sent[talker->n_sent++] = hash_of(type, generation, payload, size_bytes);
    return status;
}

enum session_take __wrap_session_core_take(struct session_core *core, const struct frame *frame,
                                           struct fsdp_err *err)
{
    const enum session_take take = __real_session_core_take(core, frame, err);
    struct talker *talker;

    if (take == SESSION_WRONG)
        sim_violated("frames once and in order", "n%d finds a frame wrong: %s", sim_current->host->number,
                     err->message);
    if (take != SESSION_DELIVER && take != SESSION_FAREWELL)
        return take;
    talker = find_talker(find_talk(core), core, false);
    if (talker->n_taken >= talker->n_sent ||
        talker->sent[talker->n_taken] != hash_of(frame->type, frame->generation, frame->payload, frame->size))
        sim_violated(
            "frames once and in order",
            "n%d takes a frame of type %u as number %zu of %zu, and another one was sent in that place",
            sim_current->host->number, frame->type, talker->n_taken + 1, talker->n_sent);
    talker->n_taken++;
    return take;
}

/* One generation */

/*
 * Returns for how long a rank of a generation that is over may still run. Its node may be cut off: then its
 * session ends after a lease, and its ranks have the short grace, and then KILL. A quarter of the lease is
 * for the looks at the session and for clocks of different rates.
 */
static int64_t longest_afterlife(void)
{
    const int64_t grace_ms = sim_plan.grace_ms < LOST_GRACE_MS ? sim_plan.grace_ms : LOST_GRACE_MS;

    return (LEASE_END_MS(sim_plan.lease_ms) * 5 / 4 + grace_ms + 1000) * MS;
}

static void check_ranks(void)
{
    for (int i = 0; i < sim_plan.n_hosts; i++) {
        const struct host *host = &sim_hosts[i];

        for (const struct rank *rank = host->process == NULL ? NULL : host->process->world.ranks;
             rank != NULL; rank = rank->next) {
            const struct formed *formed = rank->formed;
            const int64_t stood_ns = host->stalled_ns - formed->stall_at[i] +
                                     (formed->over_at < host->stalled_until ? 20 * SECOND : 0);

            if (rank->alive && !rank->asleep && formed->over_at != NEVER && sim_now > host->stalled_until &&
                sim_now - formed->over_at > longest_afterlife() + stood_ns)
                sim_violated("one generation",
                             "rank %d of generation %d on n%d runs %.1f s after its generation was over",
                             rank->number, formed->generation, i, (double)(sim_now - formed->over_at) / 1e9);
        }
    }
}

/*
 * No rank runs without a lease, or after its end for longer than a guard takes. Without an arbiter, the node
 * of the coordinator has none.
 */
static void check_leases(void)
{
    for (int i = 0; i < sim_plan.n_hosts; i++) {
        const struct host *host = &sim_hosts[i];
        const struct process *process = host->process;
        int64_t over_ns;

        if (process == NULL || !process->alive || (host->suspended && sim_now < host->stalled_until))
            continue;
        over_ns = sim_lease_over_ns(process);
        for (const struct rank *rank = over_ns < LEASE_KILL_MS * MS ? NULL : process->world.ranks;
             rank != NULL; rank = rank->next)
            if (rank->alive && !rank->asleep && (sim_plan.arbiter || rank->formed->leader != process))
                sim_violated("leases", "rank %d of generation %d runs on n%d %s", rank->number,
                             rank->formed->generation, i,
                             over_ns == NEVER ? "without a lease" : "after the end of its lease");
    }
}

/* A generation that begins is the newest one. */
static void check_is_newest(const struct process *process)
{
    const struct formed *formed = process->world.formed;

    for (const struct formed *later = sim_formed; later != formed && process->host->suspended_ns == 0;
         later = later->next)
        if (sim_plan.arbiter || later->leader == formed->leader)
            sim_violated("old generations",
                         "n%d begins generation %d of n%d, and n%d has formed generation %d",
                         process->host->number, formed->generation, formed->leader->host->number,
                         later->leader->host->number, later->generation);
}

/* Whoever takes part knows which agents never come back: it may lead the next generation. */
static void check_ended(const struct process *process, const struct formed *formed)
{
    const struct run *leader = formed->leader->run;

    for (size_t i = 0; leader != NULL && i < formed->n_ended; i++)
        if (!ended_has(&process->run->ended, leader->ended.identities[i]))
            sim_violated("who has left is known", "n%d starts generation %d and knows %zu of %zu",
                         process->host->number, formed->generation, process->run->ended.n, formed->n_ended);
}

void sim_check_start(struct process *process, const struct world_plan *plan)
{
    struct formed *formed = process->world.formed;

    check_is_newest(process);
    sim_check_store(process, plan);
    check_ended(process, formed);
    if (plan->restart_count > process->known_restarts)
        process->known_restarts = plan->restart_count;
    if (plan->generation != formed->generation)
        sim_violated("old generations", "n%d is told to start generation %d as %d", process->host->number,
                     formed->generation, plan->generation);
    for (const struct rank *rank = process->world.ranks; rank != NULL; rank = rank->next)
        if (rank->alive)
            sim_violated("one generation",
                         "n%d starts generation %d, and rank %d of generation %d runs there",
                         process->host->number, plan->generation, rank->number, rank->formed->generation);
    if (process->world.left != NULL)
        sim_violated("no seat beside a sleeper", "n%d starts generation %d, and rank %d sleeps there",
                     process->host->number, plan->generation, process->world.left->number);
    if (plan->n_nodes < sim_plan.min_nodes || plan->n_nodes > sim_plan.max_nodes)
        sim_violated("one generation", "generation %d is formed of %d nodes", plan->generation,
                     plan->n_nodes);
    for (int i = 0; i < process->config.n_workers; i++) {
        struct process **holder = &formed->ranks_of[plan->first_rank + i];

        if (plan->first_rank + i >= plan->world_size || *holder != NULL)
            sim_violated("one generation", "n%d gets rank %d of %d in generation %d%s", process->host->number,
                         plan->first_rank + i, plan->world_size, plan->generation,
                         *holder != NULL ? ", which another node has" : "");
        *holder = process;
    }
}

/* The coordinator's own account */

/*
 * No fsdprun is present twice, whatever sessions it has given up. Of a host on which fsdprun was started
 * again, the coordinator may still count the one that was killed.
 */
static void check_joined_once(const struct coordinator *coordinator)
{
    int n_present[SIM_HOSTS] = { 0 }, number;

    for (int i = 0; i < coordinator->roster.capacity; i++)
        if (coordinator->roster.nodes[i].present &&
            sscanf(coordinator->roster.nodes[i].address, "10.0.0.%d", &number) == 1 &&
            ++n_present[number - 1] > 1 && sim_hosts[number - 1].n_lives == 1)
            sim_violated("joined once", "n%d is present twice", number - 1);
}

/* Who takes over goes on counting where the START that it saw last has been. */
static void check_restarts(struct process *process, const struct coordinator *coordinator)
{
    const int n_restarts = coordinator->budget.n_restarts;

    if (process->seen != coordinator)
        process->seen_restarts = coordinator->took_over ? process->known_restarts : 0;
    process->seen = coordinator;
    if (n_restarts < process->seen_restarts || n_restarts > sim_plan.max_restarts)
        sim_violated("restarts", "%d restarts are counted after %d, of %d", n_restarts,
                     process->seen_restarts, sim_plan.max_restarts);
    process->seen_restarts = n_restarts;
}

/* No two agents lead at a time. */
static void check_leader(void)
{
    const struct process *leader = NULL;

    for (int i = 0; i < sim_plan.n_hosts; i++) {
        const struct process *process = sim_hosts[i].process;

        if (process == NULL || sim_hosts[i].suspended_ns > 0 || !sim_leads(process))
            continue;
        if (leader != NULL)
            sim_violated("one leader", "n%d and n%d lead", leader->host->number, i);
        leader = process;
    }
}

/*
 * An agent claims no sooner than the pulses of its leader said. If that leader has left, or a guard has swept
 * it, no agent waits.
 */
void sim_check_claim(uint64_t let_in)
{
    const struct leader_record record = store_read();

    for (int i = 0; i < sim_plan.n_hosts && record.state == LEADER_LEADS; i++) {
        const struct process *leader = sim_hosts[i].process;

        if (leader == NULL || leader == sim_current || sim_hosts[i].suspended_ns > 0 || !leader->alive ||
            leader->run == NULL || leader->run->lead.term != record.term || let_in != record.term)
            continue;
        if (sim_now < leader->none_stands_until)
            sim_violated("no claim in contact", "n%d claims %.2f s before n%d expects it",
                         sim_current->host->number, (double)(leader->none_stands_until - sim_now) / 1e9, i);
    }
}

static void check_coordinator(struct process *process)
{
    const struct coordinator *coordinator = sim_coordinator(process);
    char own[SIM_TAG_BYTES];
    int n_up = 0;

    if (coordinator == NULL)
        return;
    check_restarts(process, coordinator);
    check_joined_once(coordinator);
    if (!coordinator_is_up(coordinator))
        return;
    sim_tag(own, process, coordinator->generation);
    for (size_t i = 0; i < coordinator->n_deaths; i++)
        if (coordinator->deaths[i].kind != DEATH_NODE && strcmp(coordinator->deaths[i].words, own) != 0)
            sim_violated("old generations", "generation %d counts a death of another one (%s, and not %s)",
                         coordinator->generation, coordinator->deaths[i].words, own);
    for (int i = 0; i < coordinator->roster.capacity; i++)
        n_up += coordinator_in_play(coordinator, i) && !coordinator->nodes[i].stopped;
    if (n_up != coordinator->n_up)
        sim_violated("counts", "%d nodes are up, and %d are counted", n_up, coordinator->n_up);
}

void sim_check(struct process *process)
{
    check_coordinator(process);
    check_ranks();
    check_leases();
    if (sim_plan.arbiter)
        check_leader();
}

/* The end */

/* A leader that is lost once has a successor, and the job goes on. */
static void check_take_over(const struct process *process)
{
    if (process->status > 0)
        sim_violated("a lost leader has a successor", "n%d ended with %d", process->host->number,
                     process->status);
}

/*
 * A leader stays for a lease, and up to 1.1, for nodes that have not taken the job's end. If a node's loop
 * stands still for longer than that lease, no node is left that could tell it how the job ended.
 */
static bool slept_through_the_end(const struct process *process)
{
    const int64_t until = process->host->stalled_until;
    int64_t first_end = INT64_MAX;

    for (int i = 0; i < sim_plan.n_hosts; i++) {
        const struct process *other = sim_hosts[i].process;

        if (other == NULL || other == process)
            continue;
        if (other->alive || other->status != 0 || other->ended_at > until)
            return false;
        if (other->ended_at < first_end)
            first_end = other->ended_at;
    }
    return process->status == FSDP_EXIT_LINK && first_end != INT64_MAX &&
           until - first_end > sim_plan.lease_ms * 1000000;
}

static void check_gentle(const struct process *process)
{
    if (process->status != 0 && !slept_through_the_end(process))
        sim_violated("short faults end nothing", "n%d ended with %d", process->host->number, process->status);
}

static void check_status(const struct process *process)
{
    static const int stated[] = {
        0, 1, FSDP_EXIT_PEER, FSDP_EXIT_LINK, FSDP_EXIT_NOTICE, 128 + SIGTERM, 128 + SIGINT, 128 + SIGUSR1
    };

    for (size_t i = 0; i < sizeof stated / sizeof *stated; i++)
        if (process->status == stated[i])
            return;
    if (process->status == FSDP_EXIT_CONFIG && sim_plan.has_run_dir)
        return; /* it began a run while another agent still had the run directory */
    sim_violated("stated ends", "n%d ended with %d", process->host->number, process->status);
}

void sim_check_end(void)
{
    const bool gentle = sim_plan.gentle && sim_plan.fails_one_in == 0;

    for (int i = 0; i < sim_plan.n_hosts; i++) {
        const struct host *host = &sim_hosts[i];
        const struct process *process = host->process;

        if (process == NULL)
            continue;
        if (process->alive)
            sim_violated("every history ends", "n%d still runs at the end (world %s, %s)", i,
                         world_state_name(process->world.state),
                         sim_coordinator(process) == NULL
                             ? "a member"
                             : coordinator_state_name(sim_coordinator(process)->state));
        for (const struct rank *rank = process->world.ranks; rank != NULL; rank = rank->next)
            if (rank->alive && !rank->asleep)
                sim_violated("one generation", "rank %d still runs on n%d at the end", rank->number, i);
        if (process->status >= 0)
            check_status(process);
        if (gentle && process->status >= 0)
            check_gentle(process);
        if (sim_plan.takes_over)
            check_take_over(process);
    }
    if (gentle && (sim_formed == NULL || sim_formed->next != NULL))
        sim_violated("short faults end nothing", "%s generation was formed",
                     sim_formed == NULL ? "no" : "more than one");
}

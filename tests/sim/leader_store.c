/*
 * The store of the arbiter, as each host reaches it. A call takes its time, fails, or is answered in vain. It
 * waits while its host does not reach the store, as on NFS, or fails then.
 */
#include <stdlib.h>

#include "agent/arbiter/directory_store.h"
#include "agent/arbiter/etcd_store.h"
#include "tests/sim/arbiter/store.h"
#include "tests/sim/sim.h"

static int64_t lease_ns(void)
{
    return sim_plan.lease_ms * MS;
}

static void take_time(void)
{
    sim_block(sim_one_in(SIM_NET, sim_plan.store_slow_one_in) ? sim_between(SIM_NET, 0, lease_ns())
                                                              : sim_between(SIM_NET, 1, sim_plan.store_ns));
}

/* Returns false if the call does not come to the store. */
static bool reach(void)
{
    const struct host *host = sim_current->host;
    const bool waits = sim_one_in(SIM_NET, 2);

    take_time();
    while (waits && sim_now < host->store_cut_until)
        sim_block(host->store_cut_until - sim_now + MS);
    if (sim_now >= host->store_cut_until)
        return !sim_one_in(SIM_NET, sim_plan.store_fails_one_in);
    sim_block(sim_between(SIM_NET, 1, lease_ns() / 3));
    return false;
}

static enum arbiter_answer fail(struct fsdp_err *err)
{
    fsdp_fail(err, FSDP_ERR_IO, "it does not answer");
    return ARBITER_FAILED;
}

static enum arbiter_answer answer(enum arbiter_answer answer, struct fsdp_err *err)
{
    take_time();
    return sim_one_in(SIM_NET, sim_plan.store_loses_one_in) ? fail(err) : answer;
}

/* A call that has failed takes effect all the same. */

static enum arbiter_answer look_and_write(const struct leader_record *record, struct leader_record *newer)
{
    *newer = store_read();
    return newer->term > record->term ? ARBITER_DEPOSED : store_write(record, newer);
}

static void takes_effect(void *what, uint64_t is_claim)
{
    struct leader_record *record = what, there;

    if (is_claim)
        store_claim(record, &there);
    else
        look_and_write(record, &there);
    free(record);
}

static enum arbiter_answer fail_in_part(const struct leader_record *record, bool is_claim,
                                        struct fsdp_err *err)
{
    struct leader_record *late = malloc(sizeof *late);

    *late = *record;
    if (sim_one_in(SIM_NET, 2))
        free(late);
    else
        sim_at(sim_now + sim_between(SIM_NET, 0, is_claim ? 2 * lease_ns() : lease_ns() * 15 / 100),
               takes_effect, late, is_claim);
    return fail(err);
}

/* The calls */

static enum arbiter_answer on_read(struct arbiter_store *store, struct leader_record *out,
                                   struct fsdp_err *err)
{
    (void)store;
    if (!reach())
        return fail(err);
    *out = store_read();
    return answer(out->term > 0 ? ARBITER_DONE : ARBITER_NONE, err);
}

static enum arbiter_answer on_claim(struct arbiter_store *store, const struct leader_record *claim,
                                    struct leader_record *holder, struct fsdp_err *err)
{
    const uint64_t let_in = sim_current->run == NULL ? 0 : sim_current->run->lead.let_in;
    enum arbiter_answer taken;

    (void)store;
    if (!reach())
        return fail_in_part(claim, true, err);
    sim_check_claim(let_in);
    taken = store_claim(claim, holder);
    sim_trace("claims term %llu: %s", (unsigned long long)claim->term,
              taken == ARBITER_DONE ? "done" : "taken");
    return answer(taken, err);
}

static enum arbiter_answer on_renew(struct arbiter_store *store, const struct leader_record *record,
                                    struct leader_record *newer, struct fsdp_err *err)
{
    enum arbiter_answer written;

    (void)store;
    if (!reach())
        return fail_in_part(record, false, err);
    written = look_and_write(record, newer);
    return answer(written, err);
}

static void on_destroy(struct arbiter_store *store)
{
    (void)store;
}

static struct arbiter_store *the_store(const char *name)
{
    static struct arbiter_store_ops ops = { NULL, on_read, on_claim, on_renew, on_destroy };
    static struct arbiter_store store = { &ops };

    ops.name = name;
    return &store;
}

enum fsdp_status directory_store_create(struct arbiter_store **out, struct fsdp_io *io, const char *run_dir,
                                        struct fsdp_err *err)
{
    (void)io, (void)run_dir, (void)err;
    *out = the_store("directory");
    return FSDP_OK;
}

enum fsdp_status etcd_store_create(struct arbiter_store **out, const struct etcd_endpoints *endpoints,
                                   const char *run_id, int64_t lease_ms, struct fsdp_err *err)
{
    (void)endpoints, (void)run_id, (void)lease_ms, (void)err;
    *out = the_store("etcd");
    return FSDP_OK;
}

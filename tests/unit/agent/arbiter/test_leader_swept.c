/* What a guard writes into the record of its killed leader. */
#include "agent/arbiter/leader_swept.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

enum { RUN = 17 };

static struct leader_record stored;
static enum arbiter_answer reads, renews;
static int n_writes;

static enum arbiter_answer on_read(struct arbiter_store *store, struct leader_record *out,
                                   struct fsdp_err *err)
{
    (void)store, (void)err;
    *out = stored;
    return reads;
}

static enum arbiter_answer on_renew(struct arbiter_store *store, const struct leader_record *record,
                                    struct leader_record *newer, struct fsdp_err *err)
{
    (void)store, (void)err, (void)newer;
    stored = *record;
    n_writes++;
    return renews;
}

static const struct arbiter_store_ops ops = { .name = "test", .read = on_read, .renew = on_renew };
static struct arbiter_store store = { &ops };
static const struct leader_will will = {
    .agent = "the leader", .generation = 6, .n_nodes = 3, .node_rank = 1
};

static void set_up(void)
{
    stored = (struct leader_record){ .run = RUN,
                                     .term = 4,
                                     .sequence = 9,
                                     .identity = "the leader",
                                     .state = LEADER_LEADS,
                                     .goes_on = true,
                                     .progress = { .generation = 5, .step = 70, .n_restarts = 2 } };
    reads = renews = ARBITER_DONE;
    n_writes = 0;
}

TestSuite(leader_swept, .init = set_up);

/* The record may be older than what the agent has begun: its last write was under way. */
Test(leader_swept, the_word_has_what_the_agent_left_and_the_rest_of_its_record)
{
    cr_assert(eq(int, (int)leader_swept_say(&store, RUN, &will, NULL), ARBITER_DONE));

    cr_assert(stored.term == 4 && stored.state == LEADER_SWEPT && !stored.goes_on);
    cr_assert(stored.progress.generation == 6 && stored.progress.n_nodes == 3 &&
              stored.progress.node_rank == 1);
    cr_assert(stored.progress.step == 70 && stored.progress.n_restarts == 2);
}

Test(leader_swept, a_late_write_of_the_agent_does_not_hide_it)
{
    const struct leader_record late = { .term = 4, .sequence = 10 };

    (void)leader_swept_say(&store, RUN, &will, NULL);

    cr_assert(leader_record_is_later(&stored, &late));
    cr_assert(eq(int, (int)(stored.sequence % 2), 0), "in a directory, it has another place than record 9");
}

static void writes_nothing(enum arbiter_answer answer)
{
    cr_assert(eq(int, (int)leader_swept_say(&store, RUN, &will, NULL), (int)answer));
    cr_assert(eq(int, n_writes, 0));
}

Test(leader_swept, nothing_is_written_where_the_agent_does_not_lead)
{
    reads = ARBITER_NONE;
    writes_nothing(ARBITER_DEPOSED);
    reads = ARBITER_FAILED;
    writes_nothing(ARBITER_FAILED);
    reads = ARBITER_DONE;
    stored.identity[0] = 'T';
    writes_nothing(ARBITER_DEPOSED);
    set_up();
    stored.state = LEADER_ENDED;
    writes_nothing(ARBITER_DEPOSED);
    set_up();
    stored.run = RUN + 1;
    writes_nothing(ARBITER_DEPOSED);
}

Test(leader_swept, another_agent_that_claims_meanwhile_is_not_hidden)
{
    renews = ARBITER_DEPOSED;
    cr_assert(eq(int, (int)leader_swept_say(&store, RUN, &will, NULL), ARBITER_DEPOSED));
}

#include "tests/sim/arbiter/store.h"

#include "tests/sim/history.h"

enum { PLACES = 8, MOST_WRITES = 100000 };

struct store_kind store_kind;
static struct leader_record places[PLACES], claims[TERMS], newest_claim;

/* What a read brings, since that time. */
static struct version {
    int64_t since;
    struct leader_record record;
} versions[MOST_WRITES];
static int n_versions;

static void note_version(void)
{
    struct leader_record newest = { .term = 0 };

    for (int i = 0; i < PLACES; i++)
        if (leader_record_is_later(&places[i], &newest))
            newest = places[i];
    if (newest.term == 0 || (!store_kind.hides_claims && leader_record_is_later(&newest_claim, &newest)))
        newest = newest_claim;
    if (n_versions == MOST_WRITES)
        sim_violated("a history has few writes", "%d", n_versions);
    versions[n_versions++] = (struct version){ sim_now, newest };
}

static struct leader_record version_at(int64_t when)
{
    int i = n_versions - 1;

    while (i > 0 && versions[i].since > when)
        i--;
    return i < 0 || versions[i].since > when ? (struct leader_record){ .term = 0 } : versions[i].record;
}

static struct leader_record *place_of(const struct leader_record *record)
{
    return &places[store_kind.one_key ? 0 : record->term % 4 * 2 + record->sequence % 2];
}

struct leader_record store_read(void)
{
    const int64_t lag =
        sim_one_in(SIM_NET, store_kind.lags_one_in) ? sim_between(SIM_NET, 0, store_kind.longest_lag_ns) : 0;

    return version_at(sim_now - lag);
}

enum arbiter_answer store_claim(const struct leader_record *claim, struct leader_record *brought)
{
    struct leader_record *claimed = &claims[claim->term];
    const struct leader_record newest = version_at(sim_now);
    const bool is_free = claimed->term == 0 && !(store_kind.one_key && newest.term >= claim->term);

    if (is_free) {
        *claimed = *claim;
        if (leader_record_is_later(claimed, &newest_claim))
            newest_claim = *claimed;
        if (store_kind.one_key)
            places[0] = *claimed;
        note_version();
    }
    *brought = newest.term >= claim->term ? newest : *claimed;
    return is_free ? ARBITER_DONE : ARBITER_TAKEN;
}

enum arbiter_answer store_write(const struct leader_record *record, struct leader_record *brought)
{
    if (store_kind.one_key && leader_record_is_later(&places[0], record)) {
        *brought = places[0];
        return places[0].term > record->term ? ARBITER_DEPOSED : ARBITER_FAILED;
    }
    *place_of(record) = *record;
    note_version();
    return ARBITER_DONE;
}

void store_fill(const struct leader_record *record)
{
    claims[record->term] = newest_claim = *record;
    *place_of(record) = *record;
    note_version();
    versions[0].since = INT64_MIN; /* no cache is older */
}

const struct leader_record *store_claim_of(uint64_t term)
{
    return &claims[term];
}

#include "agent/arbiter/leader_record.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static const struct leader_record sample = {
    .run = 0x1122334455667788u,
    .term = 7,
    .sequence = 1u << 20,
    .identity = "sixteen letters",
    .host = "fd00::17",
    .port = 29400,
    .lease_ms = 3000,
    .state = LEADER_ENDED,
    .exit_status = -9,
    .goes_on = false,
    .unlocked = true,
    .progress = { .generation = -1,
                  .n_nodes = 3,
                  .node_rank = -1,
                  .n_restarts = 3,
                  .n_restarts_left = UINT32_MAX,
                  .restarts_s = { 1, [LEADER_RESTARTS - 1] = UINT32_MAX },
                  .published_s = UINT32_MAX - 1,
                  .step = INT64_C(1) << 40,
                  .failure = { .step = -1, .kind = 5, .code = -3, .phase = -1, .n = 65535 },
                  .diverged = { INT64_C(1) << 40, 3, 8, -1, "host-of-the-rank" },
                  .leader = UINT64_MAX,
                  .suspects = { { UINT64_MAX, INT32_MAX, UINT16_MAX, UINT8_MAX, true },
                                [LEADER_SUSPECTS - 1] = { 5, -1, 1, 2, false } } }
};
static unsigned char bytes[LEADER_RECORD_BYTES];
static struct leader_record out;

Test(leader_record, what_was_encoded_is_decoded)
{
    leader_record_encode(&sample, bytes);

    cr_assert(leader_record_decode(&out, bytes, sizeof bytes));

    cr_assert(memcmp(&out.progress, &sample.progress, sizeof out.progress) == 0);
    cr_assert(out.run == sample.run && out.term == sample.term && out.sequence == sample.sequence);
    cr_assert(memcmp(out.identity, sample.identity, sizeof out.identity) == 0);
    cr_assert(eq(str, out.host, (char *)sample.host));
    cr_assert(out.port == 29400 && out.lease_ms == 3000 && out.state == LEADER_ENDED &&
              out.exit_status == -9 && out.unlocked && !out.goes_on);
}

Test(leader_record, a_change_of_any_byte_is_seen)
{
    leader_record_encode(&sample, bytes);

    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 0x10;
        cr_assert(not(leader_record_decode(&out, bytes, sizeof bytes)), "byte %zu", i);
        bytes[i] ^= 0x10;
    }
    cr_assert(leader_record_decode(&out, bytes, sizeof bytes));
}

Test(leader_record, a_part_of_one_is_none)
{
    leader_record_encode(&sample, bytes);

    for (size_t n = 0; n < sizeof bytes; n++)
        cr_assert(not(leader_record_decode(&out, bytes, n)), "%zu bytes", n);
    memset(bytes, 0, sizeof bytes);
    cr_assert(not(leader_record_decode(&out, bytes, sizeof bytes)), "a file with holes");
}

Test(leader_record, what_no_leader_writes_is_refused)
{
    struct leader_record wrong[] = { sample, sample, sample, sample, sample,
                                     sample, sample, sample, sample, sample };

    wrong[0].term = 0;
    wrong[1].lease_ms = 0;
    wrong[2].lease_ms = INT64_MAX;
    wrong[3].port = 65536;
    wrong[4].port = -1;
    wrong[5].state = (enum leader_state)5;
    wrong[6].term = UINT64_MAX; /* none follows it */
    wrong[7].host[0] = '\0';
    wrong[8].host[1] = '\033';
    wrong[9].progress.diverged.host[1] = '\n';

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        leader_record_encode(&wrong[i], bytes);
        cr_assert(not(leader_record_decode(&out, bytes, sizeof bytes)), "wrong[%zu]", i);
    }
}

Test(leader_record, the_term_counts_before_the_sequence)
{
    const struct leader_record old = { .term = 2, .sequence = 9 }, same = { .term = 2, .sequence = 9 },
                               next = { .term = 2, .sequence = 10 }, claim = { .term = 3, .sequence = 0 };

    cr_assert(leader_record_is_later(&next, &old) && leader_record_is_later(&claim, &next));
    cr_assert(not(leader_record_is_later(&same, &old)));
    cr_assert(not(leader_record_is_later(&next, &claim)));
}

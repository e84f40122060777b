#include "agent/rendezvous/pulse_datagram.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdint.h>
#include <string.h>

#include "agent/wire/tls.h"

static const struct pulse sample = {
    .session = "sixteen letters", .sent_ns = INT64_C(1) << 50, .answered_ns = 7, .lease_ms = 3500
};
static unsigned char key[TLS_KEY_BYTES] = "the key of one job", bytes[PULSE_BYTES];
static struct pulse out;

static void derive(void)
{
    cr_assert(eq(int, pulse_derive_key(key, key, NULL), FSDP_OK));
}

static bool is_same(const struct pulse *one, const struct pulse *other)
{
    return one->is_answer == other->is_answer && one->sent_ns == other->sent_ns &&
           one->answered_ns == other->answered_ns && one->lease_ms == other->lease_ms &&
           memcmp(one->session, other->session, sizeof one->session) == 0;
}

TestSuite(pulse_datagram, .init = derive);

Test(pulse_datagram, what_was_written_is_read)
{
    struct pulse answer = sample;

    answer.is_answer = true;
    cr_assert(pulse_encode(bytes, &sample, key) && pulse_decode(&out, bytes, sizeof bytes, key));
    cr_assert(is_same(&out, &sample));
    cr_assert(pulse_encode(bytes, &answer, NULL) && pulse_decode(&out, bytes, sizeof bytes, NULL));
    cr_assert(is_same(&out, &answer));
}

Test(pulse_datagram, a_change_of_any_byte_is_seen)
{
    (void)pulse_encode(bytes, &sample, key);
    for (size_t i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 0x10;
        cr_assert(not(pulse_decode(&out, bytes, sizeof bytes, key)), "byte %zu", i);
        bytes[i] ^= 0x10;
    }
    cr_assert(pulse_decode(&out, bytes, sizeof bytes, key));
}

Test(pulse_datagram, one_without_the_key_is_none)
{
    unsigned char other[TLS_KEY_BYTES] = "the key of another job";

    (void)pulse_encode(bytes, &sample, NULL);
    cr_assert(not(pulse_decode(&out, bytes, sizeof bytes, key)));
    (void)pulse_derive_key(other, other, NULL);
    (void)pulse_encode(bytes, &sample, other);
    cr_assert(not(pulse_decode(&out, bytes, sizeof bytes, key)));
}

/* Without a key anyone may send anything. */
Test(pulse_datagram, what_no_agent_writes_is_refused)
{
    struct pulse wrong[] = { sample, sample, sample, sample };

    wrong[0].sent_ns = 0;
    wrong[1].sent_ns = -1;
    wrong[2].lease_ms = INT64_MAX;
    wrong[3].answered_ns = -1;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        (void)pulse_encode(bytes, &wrong[i], NULL);
        cr_assert(not(pulse_decode(&out, bytes, sizeof bytes, NULL)), "wrong[%zu]", i);
    }
    (void)pulse_encode(bytes, &sample, NULL);
    for (size_t n = 0; n < sizeof bytes; n++)
        cr_assert(not(pulse_decode(&out, bytes, n, NULL)), "%zu bytes", n);
    cr_assert(not(pulse_decode(&out, bytes, sizeof bytes + 1, NULL)));
}

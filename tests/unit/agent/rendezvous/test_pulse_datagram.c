#include "agent/rendezvous/pulse_datagram.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdint.h>
#include <string.h>

#include "agent/wire/tls.h"

static const struct pulse sample = {
    .session = "sixteen letters", .sent_ns = INT64_C(1) << 50, .answered_ns = 7, .lease_ms = 3500
};
static unsigned char bytes[PULSE_BYTES];
static struct tls_mac_key *key;
static struct pulse out;

static struct tls_mac_key *key_of(const char *words)
{
    unsigned char job_key[TLS_KEY_BYTES] = { 0 };
    struct tls_mac_key *made;

    memcpy(job_key, words, strlen(words));
    made = pulse_key_create(job_key);
    cr_assert(made != NULL);
    return made;
}

static void set_up(void)
{
    key = key_of("the key of one job");
}

static void tear_down(void)
{
    tls_mac_key_destroy(key);
}

static bool is_same(const struct pulse *one, const struct pulse *other)
{
    return one->is_answer == other->is_answer && one->sent_ns == other->sent_ns &&
           one->answered_ns == other->answered_ns && one->lease_ms == other->lease_ms &&
           memcmp(one->session, other->session, sizeof one->session) == 0;
}

TestSuite(pulse_datagram, .init = set_up, .fini = tear_down);

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

/* The key goes on from one MAC to the next, also after one that was wrong. */
Test(pulse_datagram, the_same_pulse_has_the_same_mac_whatever_was_made_before_it)
{
    unsigned char again[PULSE_BYTES];

    (void)pulse_encode(bytes, &sample, key);
    bytes[0] ^= 1;
    (void)pulse_decode(&out, bytes, sizeof bytes, key);
    bytes[0] ^= 1;
    (void)pulse_encode(again, &sample, key);
    cr_assert(memcmp(bytes, again, sizeof again) == 0);
}

Test(pulse_datagram, one_without_the_key_is_none)
{
    struct tls_mac_key *other = key_of("the key of another job");

    (void)pulse_encode(bytes, &sample, NULL);
    cr_assert(not(pulse_decode(&out, bytes, sizeof bytes, key)));
    (void)pulse_encode(bytes, &sample, other);
    cr_assert(not(pulse_decode(&out, bytes, sizeof bytes, key)));
    tls_mac_key_destroy(other);
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

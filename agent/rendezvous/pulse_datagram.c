#include "agent/rendezvous/pulse_datagram.h"

#include <string.h>

#include "agent/wire/little_endian.h"

enum {
    AT_MAGIC = 0,
    AT_KIND = 7,
    AT_SESSION = 8,
    AT_SENT = 24,
    AT_ANSWERED = 32,
    AT_LEASE = 40,
    AT_MAC = 48,
    QUESTION = 1,
    ANSWER = 2
};
_Static_assert(AT_MAC + TLS_MAC_BYTES == PULSE_BYTES, "the MAC is last");
static const char magic[] = "fsdpuls";

struct tls_mac_key *pulse_key_create(const unsigned char *job_key)
{
    unsigned char bytes[TLS_KEY_BYTES];
    struct tls_mac_key *key = NULL;

    if (tls_derive_other(bytes, job_key, "pulses", NULL) == FSDP_OK)
        key = tls_mac_key_create(bytes);
    explicit_bzero(bytes, sizeof bytes);
    return key;
}

bool pulse_encode(unsigned char out[PULSE_BYTES], const struct pulse *pulse, struct tls_mac_key *key)
{
    memset(out, 0, PULSE_BYTES);
    memcpy(out + AT_MAGIC, magic, sizeof magic - 1);
    out[AT_KIND] = pulse->is_answer ? ANSWER : QUESTION;
    memcpy(out + AT_SESSION, pulse->session, SESSION_IDENTITY_BYTES);
    put_le(out + AT_SENT, (uint64_t)pulse->sent_ns, 8);
    put_le(out + AT_ANSWERED, (uint64_t)pulse->answered_ns, 8);
    put_le(out + AT_LEASE, (uint64_t)pulse->lease_ms, 8);
    return key == NULL || tls_mac(out + AT_MAC, key, out, AT_MAC);
}

bool pulse_decode(struct pulse *out, const void *bytes, size_t n_bytes, struct tls_mac_key *key)
{
    const unsigned char *in = bytes;
    unsigned char mac[TLS_MAC_BYTES];

    if (n_bytes != PULSE_BYTES || memcmp(in + AT_MAGIC, magic, sizeof magic - 1) != 0 ||
        (in[AT_KIND] != QUESTION && in[AT_KIND] != ANSWER))
        return false;
    if (key != NULL && (!tls_mac(mac, key, in, AT_MAC) || !tls_mac_is(mac, in + AT_MAC)))
        return false;
    *out = (struct pulse){ .is_answer = in[AT_KIND] == ANSWER,
                           .sent_ns = (int64_t)get_le(in + AT_SENT, 8),
                           .answered_ns = (int64_t)get_le(in + AT_ANSWERED, 8),
                           .lease_ms = (int64_t)get_le(in + AT_LEASE, 8) };
    memcpy(out->session, in + AT_SESSION, sizeof out->session);
    return out->sent_ns > 0 && out->answered_ns >= 0 && out->lease_ms >= 0 &&
           out->lease_ms < INT64_C(1000000) * 1000;
}

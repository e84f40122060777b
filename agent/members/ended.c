#include "agent/members/ended.h"

#include <stdlib.h>
#include <string.h>

bool ended_has(const struct ended *ended, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    for (size_t i = 0; i < ended->n; i++)
        if (memcmp(ended->identities[i], identity, PROTO_IDENTITY_BYTES) == 0)
            return true;
    return false;
}

void ended_add(struct ended *ended, const unsigned char identity[PROTO_IDENTITY_BYTES])
{
    unsigned char(*identities)[PROTO_IDENTITY_BYTES] = ended->identities;

    if (ended_has(ended, identity))
        return;
    if (ended->n == PROTO_ENDED_MAX) {
        memmove(identities[0], identities[1], (PROTO_ENDED_MAX - 1) * sizeof *identities);
        ended->n--;
    } else {
        identities = realloc(identities, (ended->n + 1) * sizeof *identities);
        if (identities == NULL)
            return;
        ended->identities = identities;
    }
    memcpy(identities[ended->n++], identity, PROTO_IDENTITY_BYTES);
    ended->n_added++;
}

struct proto_ended ended_since(const struct ended *ended, uint64_t n_told)
{
    const uint64_t n_new = ended->n_added - n_told;
    const size_t n = n_new < ended->n ? (size_t)n_new : ended->n;

    return (struct proto_ended){ n == 0 ? NULL : ended->identities[ended->n - n], n };
}

void ended_take(struct ended *ended, const struct proto_ended *message)
{
    for (size_t i = 0; i < message->n; i++)
        ended_add(ended, message->identities + i * PROTO_IDENTITY_BYTES);
}

void ended_fini(struct ended *ended)
{
    free(ended->identities);
    *ended = (struct ended){ 0 };
}

#include "agent/members/proto_impl.h"

#include <stdio.h>
#include <string.h>

/*
 * A guest is three texts, each with its zero: "NODE WORKERS", its address, and the address from which it
 * connects.
 */

size_t proto_add_guest(char *out, size_t size, size_t used, const struct proto_guest *guest)
{
    const int n = snprintf(out + used, size - used, "%d %d%c%s%c%s", guest->node, guest->n_workers, 0,
                           guest->address, 0, guest->from);

    return n < 0 || (size_t)n >= size - used ? 0 : used + (size_t)n + 1;
}

/* Returns the text at *at, and moves *at past its zero. NULL: there is no zero before `end`. */
static const char *take_text(const char **at, const char *end)
{
    const char *text = *at, *zero = *at < end ? memchr(*at, '\0', (size_t)(end - *at)) : NULL;

    *at = zero == NULL ? end : zero + 1;
    return zero == NULL ? NULL : text;
}

bool proto_next_guest(const struct proto_open *open, const char **at, struct proto_guest *guest)
{
    const char *end = open->guests + open->guests_bytes, *numbers = take_text(at, end);
    int length = 0;

    if (numbers == NULL || numbers[0] < '0' || numbers[0] > '9' ||
        sscanf(numbers, "%7d %7d%n", &guest->node, &guest->n_workers, &length) != 2 ||
        numbers[length] != '\0' || guest->node > PROTO_GUEST_MAX || guest->n_workers < 1)
        return false;
    guest->address = take_text(at, end);
    guest->from = take_text(at, end);
    return guest->from != NULL;
}

bool proto_guests_are_whole(const struct proto_open *open)
{
    const char *at = open->guests, *end = at + open->guests_bytes;
    struct proto_guest guest;

    while (at < end)
        if (!proto_next_guest(open, &at, &guest))
            return false;
    return true;
}

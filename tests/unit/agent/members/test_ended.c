#include "agent/members/ended.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

static struct ended ended, other;

static void forget(void)
{
    ended_fini(&ended);
    ended_fini(&other);
}

TestSuite(ended, .fini = forget);

static const unsigned char *identity_of(int number)
{
    static unsigned char identity[PROTO_IDENTITY_BYTES];

    memcpy(identity, &number, sizeof number);
    return identity;
}

static bool has(const struct ended *in, int number)
{
    return ended_has(in, identity_of(number));
}

static void add(int first, int n)
{
    for (int i = first; i < first + n; i++)
        ended_add(&ended, identity_of(i));
}

/* The next leader is told over the wire, and knows what this one knows. */
static void tell(uint64_t n_told)
{
    const struct proto_ended message = ended_since(&ended, n_told);
    union proto_message back;
    size_t n_bytes;
    char *payload = proto_encode(PROTO_ENDED, &message, &n_bytes);

    cr_assert(eq(int, proto_decode(PROTO_ENDED, &back, payload, n_bytes, NULL), FSDP_OK));
    ended_take(&other, &back.ended);
    free(payload);
}

Test(ended, who_is_told_knows_it)
{
    add(0, 3);
    cr_assert(has(&ended, 2) && !has(&ended, 3));
    tell(0);
    cr_assert(has(&other, 0) && has(&other, 2) && !has(&other, 3));
    cr_assert(eq(sz, other.n, 3));
}

Test(ended, only_what_is_new_is_told)
{
    add(0, 3);
    add(1, 4);
    cr_assert(eq(u64, ended.n_added, 5), "two were known");
    tell(3);
    cr_assert(other.n == 2 && has(&other, 3) && has(&other, 4));
    cr_assert(eq(sz, ended_since(&ended, 5).n, 0));
}

Test(ended, of_too_many_the_oldest_is_forgotten)
{
    add(0, PROTO_ENDED_MAX + 2);
    cr_assert(eq(sz, ended.n, PROTO_ENDED_MAX));
    cr_assert(has(&ended, 2) && !has(&ended, 1) && has(&ended, PROTO_ENDED_MAX + 1));
    tell(0);
    cr_assert(other.n == PROTO_ENDED_MAX && has(&other, 2));
}

Test(ended, a_message_that_is_no_list_is_refused)
{
    static char bytes[(PROTO_ENDED_MAX + 1) * PROTO_IDENTITY_BYTES];
    const size_t sizes[] = { 0, 15, 17, sizeof bytes };
    union proto_message back;

    for (int i = 0; i < 4; i++)
        cr_expect(eq(int, proto_decode(PROTO_ENDED, &back, bytes, sizes[i], NULL), FSDP_ERR_FORMAT), "%zu",
                  sizes[i]);
}

#include "agent/link/link_outbox.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct link_outbox outbox;
static int ends[2];

static void open_ends(void)
{
    cr_assert(eq(int, socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0));
    outbox_init(&outbox);
}

static void close_ends(void)
{
    outbox_fini(&outbox);
    close(ends[0]);
    if (ends[1] >= 0)
        close(ends[1]);
}

TestSuite(link_outbox, .init = open_ends, .fini = close_ends, .timeout = 300);

static enum fsdp_status send_number(uint32_t number, struct fsdp_err *err)
{
    static const char filling[4096];

    return outbox_send(&outbox, ends[0], FSDP_LINK_VALUE, number, filling, sizeof filling, -1, err);
}

/* The tag of the next packet; -1 when there is none. */
static int64_t receive_number(void)
{
    struct fsdp_link_header header;
    ssize_t n = recv(ends[1], &header, sizeof header, MSG_DONTWAIT);

    return n == (ssize_t)sizeof header ? (int64_t)header.tag : -1;
}

Test(link_outbox, what_fits_is_sent_at_once)
{
    cr_assert(eq(int, send_number(7, NULL), FSDP_OK));

    cr_expect(outbox_is_empty(&outbox));
    cr_expect(eq(i64, receive_number(), 7));
    cr_expect(eq(i64, receive_number(), -1));
}

Test(link_outbox, order_is_kept_through_a_full_socket)
{
    uint32_t n_sent = 0;

    for (int n_more = 0; n_more < 3; n_more += !outbox_is_empty(&outbox))
        cr_assert(eq(int, send_number(n_sent++, NULL), FSDP_OK));
    for (int64_t expected = 0; expected < n_sent; expected++) {
        cr_assert(eq(i64, receive_number(), expected));
        cr_assert(eq(int, outbox_flush(&outbox, ends[0], NULL), FSDP_OK));
    }

    cr_expect(outbox_is_empty(&outbox));
}

Test(link_outbox, one_that_does_not_read_is_given_up_after_4_mib)
{
    struct fsdp_err err = { 0 };
    int n_kept = 0;

    while (send_number(0, &err) == FSDP_OK)
        n_kept += !outbox_is_empty(&outbox);

    cr_expect(eq(int, err.status, FSDP_ERR_NOMEM));
    cr_expect(eq(str, err.message, "it does not read what it is sent"));
    cr_expect(eq(int, n_kept, (4 << 20) / (4096 + (int)sizeof(struct fsdp_link_header))));
}

Test(link_outbox, one_that_is_gone_is_told_by_sending_and_by_flushing)
{
    while (outbox_is_empty(&outbox))
        cr_assert(eq(int, send_number(0, NULL), FSDP_OK));
    close(ends[1]);
    ends[1] = -1;

    cr_expect(eq(int, outbox_flush(&outbox, ends[0], NULL), FSDP_ERR_PEER));
    outbox_fini(&outbox);
    cr_expect(eq(int, send_number(0, NULL), FSDP_ERR_PEER));
}

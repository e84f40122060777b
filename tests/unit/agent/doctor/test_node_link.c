/* The link of a rank of the doctor, with this test as its agent. */
#include "agent/doctor/node_link.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int ends[2];
static struct node_link client;
static char value[FSDP_LINK_VALUE_BYTES + 1];

static void begin(void)
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
}

static void end(void)
{
    close(ends[0]);
    close(ends[1]);
}

TestSuite(doctor_link, .init = begin, .fini = end, .timeout = 60);

static void say(uint16_t type, uint32_t tag, const void *payload, size_t n_bytes)
{
    const struct fsdp_link_header header = { .magic = FSDP_LINK_MAGIC,
                                             .version = FSDP_LINK_VERSION,
                                             .type = type,
                                             .tag = tag,
                                             .size = (uint32_t)n_bytes };
    char *packet = malloc(sizeof header + n_bytes);

    memcpy(packet, &header, sizeof header);
    memcpy(packet + sizeof header, payload, n_bytes);
    cr_assert_eq(send(ends[1], packet, sizeof header + n_bytes, 0), (ssize_t)(sizeof header + n_bytes));
    free(packet);
}

static void greet(uint32_t rank, uint32_t world_size)
{
    const struct fsdp_link_hello hello = { .rank = rank, .world_size = world_size };

    say(FSDP_LINK_HELLO, 0, &hello, sizeof hello);
}

Test(doctor_link, a_key_is_put_and_got_whatever_comes_between)
{
    struct {
        struct fsdp_link_header header;
        char key[FSDP_LINK_KEY_BYTES], value[16];
    } packet;
    size_t n_bytes;

    greet(1, 2);
    cr_assert_eq(node_link_open(&client, ends[0], NULL), FSDP_OK);
    cr_expect_eq(client.hello.rank, 1);
    cr_assert_eq(node_link_put(&client, "report", 1, "abc", 3, NULL), FSDP_OK);
    cr_expect_eq(recv(ends[1], &packet, sizeof packet, 0),
                 (ssize_t)(sizeof packet.header + FSDP_LINK_KEY_BYTES + 3));
    cr_expect_eq(packet.header.type, FSDP_LINK_PUT);
    cr_expect_str_eq(packet.key, "doctor/report/1");
    cr_expect_eq(memcmp(packet.value, "abc", 3), 0);

    say(FSDP_LINK_VALUE, 77, "old", 3); /* the answer to nothing that was asked */
    say(FSDP_LINK_VALUE, 1, "new!", 4);
    cr_assert_eq(node_link_get(&client, "report", 0, value, &n_bytes, NULL), FSDP_OK);
    cr_expect_str_eq(value, "new!");
    cr_expect_eq(n_bytes, 4);
}

Test(doctor_link, an_agent_that_is_gone_or_gives_up_ends_the_wait)
{
    const struct fsdp_link_notice notice = { .kind = FSDP_NOTICE_ABORT };
    size_t n_bytes;

    greet(0, 2);
    cr_assert_eq(node_link_open(&client, ends[0], NULL), FSDP_OK);
    say(FSDP_LINK_NOTICE, 0, &notice, sizeof notice);
    cr_expect_eq(node_link_get(&client, "report", 1, value, &n_bytes, NULL), FSDP_ERR_PEER);
    shutdown(ends[1], SHUT_RDWR);
    cr_expect_eq(node_link_get(&client, "report", 1, value, &n_bytes, NULL), FSDP_ERR_PEER);
}

Test(doctor_link, what_is_no_link_is_refused)
{
    static char large[FSDP_LINK_VALUE_BYTES + 1];

    cr_assert_eq(send(ends[1], "x", 1, 0), 1);
    cr_expect_eq(node_link_open(&client, ends[0], NULL), FSDP_ERR_FORMAT);
    greet(2, 2); /* no rank of that world */
    cr_expect_eq(node_link_open(&client, ends[0], NULL), FSDP_ERR_FORMAT);
    say(FSDP_LINK_VALUE, 0, "abc", 3);
    cr_expect_eq(node_link_open(&client, ends[0], NULL), FSDP_ERR_FORMAT);
    cr_expect_eq(node_link_put(&client, "report", 0, large, sizeof large, NULL), FSDP_ERR_ARG);
}

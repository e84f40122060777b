/* The handshake between two processes that copy snapshots. */
#include "agent/snapshot/copy_stream.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void make_pair(int ends[2])
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    cr_assert_eq(fcntl(ends[0], F_SETFL, O_NONBLOCK), 0);
}

/* Sends the beginning of a long TLS record, byte by byte, for as long as the other end is there. */
static void *drip(void *arg)
{
    static const unsigned char record[] = { 0x16, 3, 1, 0x3f, 0, 1, 0, 0x3e, 0xf0, 3, 3 };
    const int fd = *(int *)arg;
    struct pollfd end = { .fd = fd, .events = POLLIN };

    for (size_t i = 0; (end.revents & POLLHUP) == 0; i++) {
        const unsigned char byte = i < sizeof record ? record[i] : 0;

        if (send(fd, &byte, 1, MSG_NOSIGNAL) != 1)
            break;
        (void)poll(&end, 1, 20);
    }
    return NULL;
}

Test(copy_stream, who_drips_bytes_keeps_no_place, .timeout = 60)
{
    const unsigned char key[TLS_KEY_BYTES] = { 1 };
    struct tls_context *context;
    struct copy_stream *stream;
    struct fsdp_err err = { 0 };
    pthread_t thread;
    int ends[2];

    make_pair(ends);
    cr_assert_eq(tls_context_create(&context, true, key, NULL), FSDP_OK);
    cr_assert_eq(pthread_create(&thread, NULL, drip, &ends[1]), 0);

    cr_expect_eq(copy_stream_open(&stream, ends[0], context, true, 500, &err), FSDP_ERR_PEER);
    cr_expect_null(stream);
    cr_expect_str_eq(err.message, "no answer in time");

    cr_expect_eq(close(ends[0]), 0, "the socket is still the caller's");
    pthread_join(thread, NULL);
    close(ends[1]);
    tls_context_destroy(context);
}

struct client {
    int fd;
    const struct tls_context *context;
    enum fsdp_status status;
    struct copy_stream *stream;
};

static void *open_client(void *arg)
{
    struct client *client = arg;

    client->status =
        copy_stream_open(&client->stream, client->fd, client->context, false, COPY_PATIENCE_MS, NULL);
    return NULL;
}

Test(copy_stream, who_holds_the_key_is_let_in, .timeout = 60)
{
    const unsigned char key[TLS_KEY_BYTES] = { 1 };
    struct tls_context *server, *other;
    struct client client = { .status = FSDP_ERR_PEER };
    struct copy_stream *stream;
    pthread_t thread;
    char word[6] = "";
    int ends[2];

    make_pair(ends);
    cr_assert_eq(fcntl(ends[1], F_SETFL, O_NONBLOCK), 0);
    cr_assert_eq(tls_context_create(&server, true, key, NULL), FSDP_OK);
    cr_assert_eq(tls_context_create(&other, false, key, NULL), FSDP_OK);
    client.fd = ends[1];
    client.context = other;
    cr_assert_eq(pthread_create(&thread, NULL, open_client, &client), 0);
    cr_assert_eq(copy_stream_open(&stream, ends[0], server, true, 10000, NULL), FSDP_OK);
    pthread_join(thread, NULL);
    cr_assert_eq(client.status, FSDP_OK);

    cr_expect_eq(copy_stream_send(client.stream, "hello", sizeof word, NULL), FSDP_OK);
    cr_expect_eq(copy_stream_receive(stream, word, sizeof word, NULL), FSDP_OK);
    cr_expect_str_eq(word, "hello");

    copy_stream_close(client.stream);
    copy_stream_close(stream);
    tls_context_destroy(server);
    tls_context_destroy(other);
}

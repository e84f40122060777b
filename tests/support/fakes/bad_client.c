/*
 * bad_client SOCKET KIND: sends to an fsdp-agent what no fsdprun sends. It prints "closed" when the agent
 * hangs up, "text: WORDS" when it refuses first, or "open" when it has done neither after 200 s.
 *   nothing     connects and says nothing         half        half a head, then nothing
 *   garbage     bytes that are no frame           huge        a head that announces 1 GiB
 *   empty       a RUN with no job in it           signal      a SIGNAL before any RUN
 *   nofds       a RUN of the right size without descriptors       many   100 connections that say nothing
 */
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { HEAD_BYTES = 48, VERSION = 2 };

/* A message: a head (agent/wire/frame.h: magic u32, version u16, type u16, generation u32, size u32, job u64,
 * term u64, seq u64, ack u64, little-endian) that announces `size` bytes, and what comes after it: n bytes in
 * all. */
static const struct message {
    const char *kind;
    unsigned type, size;
    const char *body;
    size_t n;
} messages[] = {
    { "half", 0x40, 100, "", HEAD_BYTES / 2 },
    { "garbage", 0x78, 0x78787878, "xxxx", HEAD_BYTES + 4 },
    { "huge", 0x40, 1u << 30, "", HEAD_BYTES },
    { "empty", 0x40, 0, "", HEAD_BYTES },
    { "signal", 0x41, 4, "\x0f\0\0\0", HEAD_BYTES + 4 },
    { "nofds", 0x40, 64, "", HEAD_BYTES + 64 },
};

static void send_message(int fd, const struct message *message)
{
    unsigned char bytes[HEAD_BYTES + 64] = {
        message->kind[0] == 'g' ? 'x' : 0x46, 0x53, 0x50, 0x52, VERSION, 0
    };

    bytes[6] = (unsigned char)message->type;
    for (int i = 0; i < 4; i++)
        bytes[12 + i] = (unsigned char)(message->size >> 8 * i);
    memcpy(bytes + HEAD_BYTES, message->body, message->n == HEAD_BYTES + 4 ? 4 : 0);
    if (send(fd, bytes, message->n, MSG_NOSIGNAL) < 0)
        perror("bad_client: send");
}

static int open_connection(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s", path);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0) {
        perror("bad_client: connect");
        exit(1);
    }
    return fd;
}

static void wait_for_answer(int fd)
{
    unsigned char answer[4096];
    size_t n_answer = 0;

    for (;;) {
        struct pollfd readable = { .fd = fd, .events = POLLIN };
        ssize_t n;

        if (poll(&readable, 1, 200000) <= 0) {
            puts("open");
            return;
        }
        n = recv(fd, answer + n_answer, sizeof answer - 1 - n_answer, 0);
        if (n <= 0)
            break;
        n_answer += (size_t)n;
    }
    answer[n_answer] = '\0';
    if (n_answer > HEAD_BYTES + 4)
        printf("text: %s\n", (char *)answer + HEAD_BYTES + 4);
    else
        puts("closed");
}

int main(int argc, char **argv)
{
    int fd;

    if (argc != 3)
        return 2;
    if (strcmp(argv[2], "many") == 0)
        for (int i = 0; i < 99; i++)
            open_connection(argv[1]);
    fd = open_connection(argv[1]);
    for (size_t i = 0; i < sizeof messages / sizeof *messages; i++)
        if (strcmp(argv[2], messages[i].kind) == 0)
            send_message(fd, &messages[i]);
    wait_for_answer(fd);
    return 0;
}

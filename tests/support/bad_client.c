/*
 * bad_client SOCKET KIND: says to an fsdp-agent what no fsdprun says, and prints "closed" when it hangs up, "text:
 * WORDS" when it refuses first, or "open" when it has done neither after 200 s.
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

enum { HEAD_BYTES = 24 };

/* agent/wire/frame.h: magic u32, version u16, type u16, generation u32, size u32, job u64, little-endian */
static void make_head(unsigned char *head, unsigned type, uint32_t size)
{
    static const unsigned char start[6] = { 0x46, 0x53, 0x50, 0x52, 1, 0 };

    memset(head, 0, HEAD_BYTES);
    memcpy(head, start, sizeof start);
    head[6] = (unsigned char)type;
    for (int i = 0; i < 4; i++)
        head[12 + i] = (unsigned char)(size >> 8 * i);
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

static size_t make_message(const char *kind, unsigned char *out)
{
    if (strcmp(kind, "half") == 0) {
        make_head(out, 0x40, 100);
        return HEAD_BYTES / 2;
    }
    if (strcmp(kind, "garbage") == 0) {
        memset(out, 'x', 1000);
        return 1000;
    }
    if (strcmp(kind, "huge") == 0) {
        make_head(out, 0x40, 1u << 30);
        return HEAD_BYTES;
    }
    if (strcmp(kind, "empty") == 0) {
        make_head(out, 0x40, 0);
        return HEAD_BYTES;
    }
    if (strcmp(kind, "signal") == 0) {
        make_head(out, 0x41, 4);
        memcpy(out + HEAD_BYTES, "\x0f\0\0\0", 4);
        return HEAD_BYTES + 4;
    }
    if (strcmp(kind, "nofds") == 0) {
        make_head(out, 0x40, 64);
        memset(out + HEAD_BYTES, 0, 64);
        return HEAD_BYTES + 64;
    }
    return 0;
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
    unsigned char message[2048];
    size_t n;
    int fd;

    if (argc != 3)
        return 2;
    if (strcmp(argv[2], "many") == 0)
        for (int i = 0; i < 99; i++)
            open_connection(argv[1]);
    fd = open_connection(argv[1]);
    n = make_message(argv[2], message);
    if (n > 0 && send(fd, message, n, MSG_NOSIGNAL) < 0)
        perror("bad_client: send");
    wait_for_answer(fd);
    return 0;
}

/*
 * idle_clients FROM PORT N FILE: holds N connections from the address FROM to 127.0.0.1:PORT, and sends
 * nothing. It opens each again as soon as it is closed. Makes FILE when each has been closed at least once:
 * from then on the listener holds all it will hold. Ends with its parent, or when it is killed.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static int open_connection(const struct sockaddr_in *from, const struct sockaddr_in *to)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (const struct sockaddr *)from, sizeof *from) < 0)
        die("idle_clients: socket");
    if (connect(fd, (const struct sockaddr *)to, sizeof *to) < 0 && errno != EINPROGRESS)
        die("idle_clients: connect");
    return fd;
}

int main(int argc, char **argv)
{
    struct sockaddr_in from = { .sin_family = AF_INET }, to = { .sin_family = AF_INET };
    const int n = argc == 5 ? atoi(argv[3]) : 0;
    struct pollfd *clients = calloc((size_t)n + 1, sizeof *clients);
    int n_fresh = n;
    int *was_closed = calloc((size_t)n + 1, sizeof *was_closed);

    if (n <= 0 || clients == NULL || was_closed == NULL || inet_pton(AF_INET, argv[1], &from.sin_addr) != 1)
        return 2;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    to.sin_port = htons((uint16_t)atoi(argv[2]));
    for (int i = 0; i < n; i++)
        clients[i] = (struct pollfd){ .fd = open_connection(&from, &to), .events = POLLIN };
    for (;;) {
        if (poll(clients, (nfds_t)n, -1) < 0)
            die("idle_clients: poll");
        for (int i = 0; i < n; i++) {
            if (clients[i].revents == 0)
                continue;
            close(clients[i].fd);
            clients[i].fd = open_connection(&from, &to);
            n_fresh -= !was_closed[i];
            was_closed[i] = 1;
            if (n_fresh == 0) {
                close(open(argv[4], O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
                n_fresh = -1;
            }
        }
    }
}

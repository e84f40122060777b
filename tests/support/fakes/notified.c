/*
 * notified SOCKET N: stands in for systemd: binds a datagram socket and prints the first N messages, a line
 * each.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    char text[512];

    if (argc != 3 || fd < 0)
        return 2;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", argv[1]);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) < 0)
        return 1;
    alarm(60);
    for (int i = 0; i < atoi(argv[2]); i++) {
        ssize_t n = recv(fd, text, sizeof text - 1, 0);

        if (n < 0)
            return 1;
        printf("%.*s\n", (int)n, text);
        fflush(stdout);
    }
    return 0;
}

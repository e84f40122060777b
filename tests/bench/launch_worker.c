/*
 * The worker of bench_launch, linked statically: the first thing main() does is to read the clock. It writes what it
 * read to the FIFO that it is given and, with a second one, stays until that one is closed at the other end.
 */
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

int main(int argc, char **argv)
{
    struct timespec t;
    double now;
    char byte;
    int fd;

    clock_gettime(CLOCK_MONOTONIC, &t);
    now = (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
    if (argc < 2)
        return 2;
    fd = open(argv[1], O_WRONLY);
    if (fd < 0 || write(fd, &now, sizeof now) != sizeof now)
        return 1;
    if (argc > 2) {
        fd = open(argv[2], O_RDONLY);
        return fd < 0 || read(fd, &byte, 1) != 0;
    }
    return 0;
}

/*
 * The worker of bench_launch, linked statically: the first thing main() does is to read the clock. It writes
 * "ns pid" as one record to the FIFO that it is given. With a second FIFO, it stays until that one is closed
 * at the other end.
 */
#include <fcntl.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

enum { RECORD_BYTES = 32 };

int main(int argc, char **argv)
{
    struct timespec t;
    char record[RECORD_BYTES + 1], byte;
    int fd;

    clock_gettime(CLOCK_MONOTONIC, &t);
    if (argc < 2)
        return 2;
    snprintf(record, sizeof record, "%20lld %10d\n", (long long)t.tv_sec * 1000000000 + t.tv_nsec,
             (int)getpid());
    fd = open(argv[1], O_WRONLY);
    if (fd < 0 || write(fd, record, RECORD_BYTES) != RECORD_BYTES)
        return 1;
    if (argc > 2) {
        fd = open(argv[2], O_RDONLY);
        return fd < 0 || read(fd, &byte, 1) != 0;
    }
    return 0;
}

/*
 * A worker that writes much, for the tests of the output path:
 *   writer line BYTES         one line of so many bytes, then "end"
 *   writer lines BYTES COUNT  so many lines of so many bytes, all of the letter of its rank ('a' + RANK), in pieces
 *                             of uneven sizes; COUNT lines on stdout and as many on stderr (letters in capitals)
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            perror("writer");
            exit(1);
        }
        bytes += done;
        n -= (size_t)done;
    }
}

static void write_in_pieces(int fd, const char *line, size_t n)
{
    for (size_t at = 0, i = 0; at < n; i++) {
        size_t piece = 1 + (at * 31 + i * 977) % 20011;

        if (piece > n - at)
            piece = n - at;
        write_all(fd, line + at, piece);
        at += piece;
    }
}

int main(int argc, char **argv)
{
    const int rank = getenv("RANK") == NULL ? 0 : atoi(getenv("RANK"));
    const size_t n = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;

    if (argc == 3 && strcmp(argv[1], "line") == 0) {
        static char block[1 << 20];

        memset(block, 'x', sizeof block);
        for (size_t left = n; left > 0;) {
            size_t piece = left < sizeof block ? left : sizeof block;

            write_all(1, block, piece);
            left -= piece;
        }
        write_all(1, "\nend\n", 5);
        return 0;
    }
    if (argc == 4 && strcmp(argv[1], "lines") == 0) {
        char *small = malloc(n + 1), *capital = malloc(n + 1);

        memset(small, 'a' + rank, n);
        memset(capital, 'A' + rank, n);
        small[n] = capital[n] = '\n';
        for (long i = atol(argv[3]); i > 0; i--) {
            write_in_pieces(1, small, n + 1);
            write_in_pieces(2, capital, n + 1);
        }
        free(small);
        free(capital);
        return 0;
    }
    fprintf(stderr, "usage: writer line BYTES | writer lines BYTES COUNT\n");
    return 2;
}

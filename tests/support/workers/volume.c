/*
 * A job that writes much, the same bytes each time, so that a test can tell every one of them:
 *   volume write BYTES WORKERS    as worker $RANK: its share of BYTES, to stdout and stderr in turns
 *   volume check BYTES WORKERS    stdin is a console that showed it all with torchrun's prefixes: is every
 *                                 line there,
 *                                 whole, once, and in order within its stream? Says what it counted, or what
 *                                   is wrong
 *
 * Of all bytes, 90 % are in lines of 80 to 200 bytes, and 1 % in lines of 1 byte. 9 % are in lines of 100 MB,
 * or in one shorter line if 9 % is less. Of the first kind 2 % are binary junk: any byte but a newline, with
 * no two carriage returns next to each other. A stream repeats a block of lines of its own; every line, and
 * what follows a carriage return, begins with the stream's letter.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 1 << 20, LONG_LINE = 100 * 1000 * 1000, PIECE = 65536, SHOWN_BYTES = 65536 };

struct stream {
    char letter;
    char *block;
    size_t n_block;
    uint64_t n_ordinary; /* bytes of whole lines of the block, over and over */
    uint64_t n_long, long_bytes;
    uint64_t at_ordinary; /* how far it is */
    bool long_done;
    uint64_t long_at; /* bytes of the long line that are out */
};

static uint64_t random_state;

static uint32_t random_below(uint32_t limit)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)((random_state >> 32) % limit);
}

static size_t put_line(char *at, char letter, size_t length, bool junk)
{
    static const char text[] =
        " the loss of this step is 2.0524 and the gradient's norm 0.731, tokens a second 18251";

    at[0] = letter;
    for (size_t i = 1; i < length; i++) {
        const int byte = (int)random_below(256);

        at[i] = junk ? (char)(byte == '\n' ? 0 : byte) : text[(i + (size_t)letter) % (sizeof text - 1)];
        if (at[i] == '\r' && (i < 10 || i + 2 >= length || at[i - 1] == letter))
            at[i] = 0;
        if (i > 1 && at[i - 1] == '\r')
            at[i] = letter;
    }
    if (!junk)
        snprintf(at + 1, 9, "%08" PRIx32, (uint32_t)random_state), at[9] = ' ';
    at[length] = '\n';
    return length + 1;
}

static void stream_init(struct stream *stream, int rank, int which, uint64_t total, int n_workers)
{
    const uint64_t n_long = total / 100 * 9, n_streams = (uint64_t)n_workers * 2;
    size_t n = 0, n_single = 0, n_lines = 0;

    *stream = (struct stream){ .letter = (char)((which == 0 ? 'a' : 'A') + rank) };
    random_state = 88172645463325252u + (uint64_t)(rank * 2 + which) * 7919;
    for (int i = 0; i < 10; i++)
        random_below(2);
    stream->block = malloc(BLOCK_BYTES + 512);
    while (n < BLOCK_BYTES) {
        n += put_line(stream->block + n, stream->letter, 80 + random_below(121), n_lines++ % 50 == 49);
        for (; n_single * 90 < n; n_single += 2) { /* 1 part in lines of 1 byte to 90 in the others */
            stream->block[n++] = stream->letter;
            stream->block[n++] = '\n';
        }
    }
    stream->n_block = n;
    stream->n_ordinary = (total - n_long) / n_streams;
    if (rank == 0 && which == 0) {
        stream->long_bytes = n_long < LONG_LINE ? n_long : LONG_LINE;
        stream->n_long = n_long / (stream->long_bytes > 0 ? stream->long_bytes : 1);
    }
}

/*
 * The next bytes of the ordinary lines, at most `limit`; 0 at the end. A last line is parted: its end is
 * missing.
 */
static size_t next_ordinary(const struct stream *stream, uint64_t limit, const char **bytes)
{
    const size_t at = (size_t)(stream->at_ordinary % stream->n_block);
    uint64_t n = stream->n_ordinary - stream->at_ordinary;

    if (n > stream->n_block - at)
        n = stream->n_block - at;
    *bytes = stream->block + at;
    return (size_t)(n < limit ? n : limit);
}

static bool long_is_due(const struct stream *stream)
{
    /* After the first block, where there are so many bytes; else first of all. */
    return !stream->long_done && stream->n_long > 0 &&
           stream->at_ordinary == (stream->n_ordinary < stream->n_block ? 0 : stream->n_block);
}

/* Write */

static void write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, bytes, n);

        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0) {
            perror("volume");
            exit(1);
        }
        bytes += done;
        n -= (size_t)done;
    }
}

static bool write_piece(struct stream *stream, int fd)
{
    const char *bytes;
    size_t n;

    if (long_is_due(stream)) {
        char *line = malloc(PIECE);

        memset(line, stream->letter, PIECE);
        for (uint64_t i = 0; i < stream->n_long; i++) {
            for (uint64_t left = stream->long_bytes - 1; left > 0; left -= left < PIECE ? left : PIECE)
                write_all(fd, line, left < PIECE ? (size_t)left : PIECE);
            write_all(fd, "\n", 1);
        }
        free(line);
        stream->long_done = true;
    }
    n = next_ordinary(stream, PIECE, &bytes);
    write_all(fd, bytes, n);
    stream->at_ordinary += n;
    return n > 0;
}

static int write_share(uint64_t total, int n_workers)
{
    const int rank = getenv("RANK") == NULL ? 0 : atoi(getenv("RANK"));
    struct stream streams[2];
    bool more = true;

    for (int i = 0; i < 2; i++)
        stream_init(&streams[i], rank, i, total, n_workers);
    while (more) {
        more = write_piece(&streams[0], 1);
        more = write_piece(&streams[1], 2) || more;
    }
    free(streams[0].block);
    free(streams[1].block);
    return 0;
}

/* Check */

/*
 * The next line that a console shows of the stream: up to a newline, or a carriage return that none follows.
 */
static bool next_shown(struct stream *stream, const char **line, size_t *length, bool *is_long)
{
    size_t n;
    const char *end;

    *is_long = false;
    if (long_is_due(stream)) {
        *is_long = true;
        *length = (size_t)stream->long_bytes - 1;
        return true;
    }
    n = next_ordinary(stream, UINT64_MAX, line);
    if (n == 0)
        return false;
    for (end = *line; end < *line + n && *end != '\n'; end++)
        if (*end == '\r' && end + 1 < *line + n && end[1] != '\n')
            break;
    *length = (size_t)(end - *line);
    return true;
}

static bool take_if_next(struct stream *stream, const char *shown, size_t n)
{
    const char *line;
    size_t length;
    bool is_long;

    if (!next_shown(stream, &line, &length, &is_long))
        return false;
    if (is_long && length > SHOWN_BYTES) {
        if (n < SHOWN_BYTES || strncmp(shown + SHOWN_BYTES, "... [cut: ", 10) != 0 ||
            strtoull(shown + SHOWN_BYTES + 10, NULL, 10) != length)
            return false;
        length = SHOWN_BYTES;
    } else if (n != length) {
        return false;
    }
    if (is_long) {
        for (size_t i = 0; i < length; i++)
            if (shown[i] != stream->letter)
                return false;
        stream->long_done = --stream->n_long == 0;
        return true;
    }
    if (memcmp(shown, line, length) != 0)
        return false;
    stream->at_ordinary += length + 1;
    if (stream->at_ordinary > stream->n_ordinary) /* the last line had no end of its own */
        stream->at_ordinary = stream->n_ordinary;
    return true;
}

static int check_lines(struct stream *streams, int n_workers)
{
    static char *line; /* the process' */
    size_t room = 0;
    ssize_t n;
    uint64_t n_lines = 0, n_missing = 0;

    while ((n = getline(&line, &room, stdin)) > 0) {
        char *end;
        long rank = n > 10 && strncmp(line, "[default", 8) == 0 ? strtol(line + 8, &end, 10) : -1;

        n_lines++;
        n -= line[n - 1] == '\n';
        if (rank < 0 || rank >= n_workers || strncmp(end, "]:", 2) != 0) {
            printf("line %" PRIu64 " has no prefix: %.80s\n", n_lines, line);
            return 1;
        }
        end += 2;
        if (!take_if_next(&streams[rank * 2], end, (size_t)(line + n - end)) &&
            !take_if_next(&streams[rank * 2 + 1], end, (size_t)(line + n - end))) {
            printf("line %" PRIu64 " of rank %ld is torn, or out of its order: %.80s\n", n_lines, rank, end);
            return 1;
        }
    }
    for (int i = 0; i < 2 * n_workers; i++)
        n_missing +=
            streams[i].n_ordinary - streams[i].at_ordinary + (streams[i].long_done ? 0 : streams[i].n_long);
    printf("%" PRIu64 " lines, %" PRIu64 " bytes missing\n", n_lines, n_missing);
    return n_missing == 0 ? 0 : 1;
}

static int check(uint64_t total, int n_workers)
{
    struct stream *streams = calloc((size_t)n_workers * 2, sizeof *streams);
    int status;

    for (int i = 0; i < 2 * n_workers; i++)
        stream_init(&streams[i], i / 2, i % 2, total, n_workers);
    status = check_lines(streams, n_workers);
    for (int i = 0; i < 2 * n_workers; i++)
        free(streams[i].block);
    free(streams);
    return status;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "write") == 0)
        return write_share(strtoull(argv[2], NULL, 10), atoi(argv[3]));
    if (argc == 4 && strcmp(argv[1], "check") == 0)
        return check(strtoull(argv[2], NULL, 10), atoi(argv[3]));
    fprintf(stderr, "usage: volume write BYTES WORKERS | volume check BYTES WORKERS\n");
    return 2;
}

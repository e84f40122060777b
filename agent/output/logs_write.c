/*
 * How captured bytes get to their files. With a disk, each read becomes a piece, and the pieces of a stream
 * are written one after another:
 *   1. The loop reads a piece, and adds it to the stream's row.
 *   2. The disk's thread appends the oldest piece to the log, and filters its lines.
 *   3. The loop shows the piece on the console, from memory, frees it, and submits the next one.
 * When the channel is closed and no piece is left, the thread ends the filter. Between 2 and 3 the row may
 * get longer, but its oldest piece stays. Without a disk, the loop does all of that for each read.
 */
#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "agent/output/output_impl.h"
#include "shard_runtime/core/clock.h"

/* the most bytes of one stream that wait for the disk; beyond that, the worker waits */
enum { WAITING_BYTES = 1 << 20 };

/* The bytes of one read, as long as they wait for the disk. */
struct piece {
    struct piece *next;
    size_t n;
    char bytes[];
};

/* Append to the files. Thread: the disk's. */
static void write_files(struct stream *stream, const char *bytes, size_t n)
{
    log_times_note(&stream->times, stream->file, clock_epoch_us() / 1000);
    stream->result = log_file_write(stream->file, bytes, n);
    if (stream->filter != NULL)
        log_filter_feed(stream->filter, bytes, n);
}

static struct stream *stream_of(struct disk_job *job)
{
    return (struct stream *)((char *)job - offsetof(struct stream, job));
}

static void do_write(struct disk_job *job)
{
    struct stream *stream = stream_of(job);

    if (stream->oldest != NULL)
        write_files(stream, stream->oldest->bytes, stream->oldest->n);
    else if (stream->filter != NULL)
        log_filter_end(stream->filter);
}

static void pause_reading(struct stream *stream)
{
    if (stream->fd < 0 || stream->paused || stream->n_waiting < WAITING_BYTES)
        return;
    uv_poll_stop(&stream->poll);
    stream->paused = true;
}

static void resume_reading(struct stream *stream)
{
    if (stream->fd < 0 || !stream->paused || stream->n_waiting >= WAITING_BYTES)
        return;
    stream->paused = false;
    stream_resume(stream);
}

static void drop_oldest(struct stream *stream)
{
    struct piece *piece = stream->oldest;

    stream->oldest = piece->next;
    if (stream->oldest == NULL)
        stream->newest = &stream->oldest;
    stream->n_waiting -= piece->n;
    free(piece);
}

static void on_written(struct disk_job *job)
{
    struct stream *stream = stream_of(job);
    struct output *output = stream->output;
    const bool ended = stream->oldest == NULL;

    if (!ended) {
        logs_written(stream, stream->oldest->bytes, stream->oldest->n);
        drop_oldest(stream);
        resume_reading(stream);
    }
    if (stream->oldest != NULL || (stream->ending && !ended && stream->filter != NULL)) {
        disk_submit(output->logs.disk, job);
        return;
    }
    stream->writing = false;
    if (stream->ending)
        logs_ended(stream);
    stream_sweep(output);
    output_handle_closed(output);
}

static void begin_writing(struct stream *stream)
{
    stream->writing = true;
    stream->output->n_open_handles++; /* its memory is in use */
    stream->job = (struct disk_job){ .work = do_write, .done = on_written };
    disk_submit(stream->output->logs.disk, &stream->job);
}

void logs_end(struct stream *stream)
{
    const struct output *output = stream->output;

    stream->ending = true;
    if (stream->writing)
        return; /* the end follows */
    if (stream->filter != NULL && output->logs.disk != NULL && !output->destroyed) {
        begin_writing(stream);
        return;
    }
    if (stream->filter != NULL)
        log_filter_end(stream->filter);
    logs_ended(stream);
}

void logs_take(struct stream *stream, const char *bytes, size_t n)
{
    struct piece *piece;

    stream->output->taken += n;
    last_words_add(&stream->words, bytes, n);
    if (stream->output->logs.disk == NULL) {
        write_files(stream, bytes, n);
        logs_written(stream, bytes, n);
        return;
    }
    piece = malloc(sizeof *piece + n);
    if (piece == NULL) {
        logs_say_lost(stream, &(struct log_file_result){ .lost = n, .error = ENOMEM });
        return;
    }
    piece->next = NULL;
    piece->n = n;
    memcpy(piece->bytes, bytes, n);
    *stream->newest = piece;
    stream->newest = &piece->next;
    stream->n_waiting += n;
    pause_reading(stream);
    if (!stream->writing)
        begin_writing(stream);
}

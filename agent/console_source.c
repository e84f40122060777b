#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/console_impl.h"
#include "agent/line_cut.h"

enum { SEARCH_LOOKS = 16 }; /* a long line's end is searched for in so many reads a turn: 1 MiB */

/* --- taking lines
 * ------------------------------------------------------------------------------------------------- */

static ssize_t read_at(int fd, char *out, size_t n, uint64_t offset)
{
    size_t got = 0;

    while (got < n) {
        const ssize_t now = pread(fd, out + got, n - got, (off_t)(offset + got));

        if (now < 0 && errno == EINTR)
            continue;
        if (now <= 0)
            return got > 0 ? (ssize_t)got : now;
        got += (size_t)now;
    }
    return (ssize_t)got;
}

bool source_is_ready(const struct console_source *source)
{
    return source->ended || source->looked != source->size;
}

static void put_line(struct console_source *source, const char *bytes, size_t length)
{
    struct outlet *outlet = source->outlet;

    outlet_put(outlet, source->prefix, source->n_prefix);
    outlet_put(outlet, bytes, length);
    outlet_put(outlet, "\n", 1);
}

/* The line at `cursor`, `length` bytes without its end: from the file, and cut when it is too long. */
static void put_line_from_file(struct console_source *source, uint64_t length)
{
    struct outlet *outlet = source->outlet;
    const size_t want = length < CONSOLE_LINE_BYTES ? (size_t)length : CONSOLE_LINE_BYTES;
    ssize_t got;

    outlet_put(outlet, source->prefix, source->n_prefix);
    got = read_at(source->fd, outlet->batch + outlet->end, want, source->cursor);
    if (got < 0)
        got = 0;
    if (length > CONSOLE_LINE_BYTES) {
        got = (ssize_t)line_cut_length(outlet->batch + outlet->end, (size_t)got);
        outlet->end += (size_t)got;
        outlet->end += (size_t)snprintf(outlet->batch + outlet->end, PATH_BYTES + 64,
                                        "... [cut: %" PRIu64 " bytes in %s]", length, source->path);
    } else {
        outlet->end += (size_t)got;
    }
    outlet_put(outlet, "\n", 1);
}

static void go_to(struct console_source *source, uint64_t offset)
{
    source->console->written += offset - source->cursor;
    source->cursor = source->searched = offset;
}

/* All whole lines of one read at the cursor. False when the file cannot be read. */
static bool take_whole_lines(struct console_source *source)
{
    const uint64_t rest = source->size - source->cursor;
    char *at = source->console->look;
    ssize_t n = read_at(source->fd, at, rest < LOOK_BYTES ? (size_t)rest : LOOK_BYTES, source->cursor);
    size_t length, consumed, searched = 0;

    if (n <= 0)
        return false;
    while (n > 0 && outlet_has_room(source->outlet)) {
        if (!line_end(at, (size_t)n, &length, &consumed, &searched)) {
            source->searched = source->cursor + searched;
            source->looked = source->cursor + (uint64_t)n;
            return true;
        }
        if (length > 0 || at[length] == '\n') /* a carriage return alone shows nothing */
            put_line(source, at, length);
        at += consumed;
        n -= (ssize_t)consumed;
        go_to(source, source->cursor + consumed);
    }
    source->looked = source->cursor;
    return true;
}

/* In the middle of a line: search on for its end, a bounded piece a turn. False when the file cannot be read.
 */
static bool search_on(struct console_source *source)
{
    for (int i = 0; i < SEARCH_LOOKS && source->searched < source->size; i++) {
        const uint64_t rest = source->size - source->searched;
        char *look = source->console->look;
        const ssize_t n =
            read_at(source->fd, look, rest < LOOK_BYTES ? (size_t)rest : LOOK_BYTES, source->searched);
        size_t length, consumed, searched = 0;

        if (n <= 0)
            return false;
        if (line_end(look, (size_t)n, &length, &consumed, &searched)) {
            const uint64_t next = source->searched + consumed;

            put_line_from_file(source, source->searched + length - source->cursor);
            go_to(source, next);
            source->looked = next;
            return true;
        }
        source->looked = source->searched + (uint64_t)n;
        source->searched += searched;
        if (source->looked == source->size)
            break;
    }
    return true;
}

/* The source is done with: unlink it, then tell. */
static void finish_source(struct console_source *source)
{
    void (*shown)(void *) = source->shown;
    void *data = source->data;

    console_drop(source);
    if (shown != NULL)
        shown(data);
}

void source_take_turn(struct console_source *source)
{
    bool readable = true;

    if (source->looked != source->size)
        readable = source->searched > source->cursor ? search_on(source) : take_whole_lines(source);
    if (!readable) { /* a file that was cut or cannot be read any more has nothing to show */
        go_to(source, source->size);
        source->looked = source->size;
    }
    if (!source->ended || source->looked != source->size || !outlet_has_room(source->outlet))
        return;
    if (source->cursor < source->size) { /* the last line has no newline of its own */
        put_line_from_file(source, source->size - source->cursor);
        go_to(source, source->size);
    }
    finish_source(source);
}

void source_pass(struct console_source *source)
{
    go_to(source, source->size);
    source->looked = source->size;
    if (source->ended)
        finish_source(source);
}

/* --- life
 * ---------------------------------------------------------------------------------------------------------
 */

enum fsdp_status console_add(struct console *console, struct console_source **out,
                             const struct console_source_spec *spec, struct fsdp_err *err)
{
    struct console_source *source = calloc(1, sizeof *source);

    *out = NULL;
    if (source != NULL)
        source->path = strndup(spec->path != NULL ? spec->path : "", PATH_BYTES - 1);
    if (source == NULL || source->path == NULL) {
        free(source);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory to show %s", spec->path);
    }
    source->console = console;
    source->outlet = console->of[spec->sink];
    source->fd = spec->fd;
    source->size = source->cursor = source->searched = source->looked = spec->offset;
    source->n_prefix = (size_t)snprintf(source->prefix, sizeof source->prefix, "%s",
                                        spec->prefix != NULL ? spec->prefix : "");
    if (source->n_prefix >= sizeof source->prefix)
        source->n_prefix = sizeof source->prefix - 1;
    source->shown = spec->shown;
    source->data = spec->data;
    source->next = console->sources;
    if (source->next != NULL)
        source->next->previous = source;
    console->sources = source;
    *out = source;
    return FSDP_OK;
}

void console_grew(struct console_source *source, uint64_t size)
{
    if (size <= source->size)
        return;
    source->size = size;
    outlet_arm(source->outlet);
}

void console_end(struct console_source *source)
{
    source->ended = true;
    outlet_arm(source->outlet);
}

void console_drop(struct console_source *source)
{
    struct console *console = source->console;

    for (int i = 0; i < console->n_outlets; i++)
        if (console->outlets[i].turn == source)
            console->outlets[i].turn = source->next;
    if (source->previous != NULL)
        source->previous->next = source->next;
    else
        console->sources = source->next;
    if (source->next != NULL)
        source->next->previous = source->previous;
    free(source->path);
    free(source);
}

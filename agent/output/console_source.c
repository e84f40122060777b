#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/output/console_impl.h"
#include "agent/output/line_cut.h"
#include "shard_runtime/core/utf8.h"

enum { SEARCH_LOOKS = 16 }; /* most reads per turn of the loop in search for the end of a long line: 1 MiB */

bool source_is_ready(const struct console_source *source)
{
    return source->ended || source->looked != source->size || source->gone > source->cursor;
}

static const char *look(struct console_source *source, uint64_t offset, char *room, size_t *n)
{
    const uint64_t rest = source->size - offset;

    return source->look(source->data, offset, room, rest < LOOK_BYTES ? (size_t)rest : LOOK_BYTES, n);
}

/*
 * Put a line into the batch. `readable` bytes may be read at `bytes`, at least `length`. Short lines are the
 * usual case, and there are millions of them, so they are copied as one block.
 */
static inline void put_line(struct console_source *source, const char *bytes, size_t length, size_t readable)
{
    struct outlet *outlet = source->outlet;
    char *to = outlet->batch + outlet->end;

    if (source->n_prefix <= BURST_BYTES)
        memcpy(to, source->prefix, BURST_BYTES);
    else
        memcpy(to, source->prefix, source->n_prefix);
    to += source->n_prefix;
    if (length <= BURST_BYTES && readable >= BURST_BYTES)
        memcpy(to, bytes, BURST_BYTES);
    else
        memcpy(to, bytes, length);
    to[length] = '\n';
    outlet->end += source->n_prefix + length + 1;
}

/*
 * Copy the bytes [offset, offset + want) of the log to `out`, as many as still exist. Returns their number.
 */
static size_t copy_out(struct console_source *source, uint64_t offset, char *out, size_t want)
{
    size_t got = 0, n;

    while (got < want) {
        const char *bytes = source->look(source->data, offset + got, out + got, want - got, &n);

        if (n == 0)
            break;
        if (n > want - got)
            n = want - got;
        if (bytes != out + got)
            memcpy(out + got, bytes, n);
        got += n;
    }
    return got;
}

/*
 * Add the line at `cursor` (`length` bytes without its end) to the batch, read from the log, and cut if it is
 * too long.
 */
static void put_line_from_log(struct console_source *source, uint64_t length)
{
    struct outlet *outlet = source->outlet;
    const size_t want = length < CONSOLE_LINE_BYTES ? (size_t)length : CONSOLE_LINE_BYTES;
    size_t got;

    outlet_put(outlet, source->prefix, source->n_prefix);
    got = copy_out(source, source->cursor, outlet->batch + outlet->end, want);
    if (length > CONSOLE_LINE_BYTES) {
        outlet->end += utf8_cut(outlet->batch + outlet->end, got);
        outlet->end += (size_t)snprintf(outlet->batch + outlet->end, PATH_BYTES + 64,
                                        "... [cut: %" PRIu64 " bytes in %s]", length, source->path);
    } else {
        outlet->end += got;
    }
    outlet_put(outlet, "\n", 1);
}

static void go_to(struct console_source *source, uint64_t offset)
{
    source->cursor = source->searched = offset;
}

/* Add all whole lines of one look at the cursor. Returns false if the log cannot be read. */
static bool take_whole_lines(struct console_source *source)
{
    const uint64_t begin = source->cursor;
    struct line_scan scan;
    const char *line;
    size_t n, length;

    line = look(source, begin, source->console->look, &n);
    if (n == 0)
        return false;
    line_scan_init(&scan, line, n);
    while (outlet_has_room(source->outlet)) {
        if (!line_scan_next(&scan, &line, &length)) {
            go_to(source, begin + (n - (size_t)(scan.end - scan.at)));
            source->searched = source->cursor + scan.n_searched;
            source->looked = begin + n;
            return true;
        }
        if (length > 0 || *line == '\n') /* a carriage return alone shows nothing */
            put_line(source, line, length, (size_t)(scan.end - line));
    }
    go_to(source, begin + (n - (size_t)(scan.end - scan.at)));
    source->looked = source->cursor;
    return true;
}

/*
 * Go on with the search for the end of a long line, a limited piece per turn. Returns false if the log cannot
 * be read.
 */
static bool search_on(struct console_source *source)
{
    for (int i = 0; i < SEARCH_LOOKS && source->searched < source->size; i++) {
        size_t n, length, consumed, searched = 0;
        const char *bytes = look(source, source->searched, source->console->look, &n);

        if (n == 0)
            return false;
        if (line_end(bytes, n, &length, &consumed, &searched)) {
            const uint64_t next = source->searched + consumed;

            put_line_from_log(source, source->searched + length - source->cursor);
            go_to(source, next);
            source->looked = next;
            return true;
        }
        source->looked = source->searched + n;
        source->searched += searched;
        if (source->looked == source->size)
            break;
    }
    return true;
}

static void say_what_is_gone(struct console_source *source)
{
    char line[PATH_BYTES + 128];
    const int n = snprintf(line, sizeof line, "[fsdprun: %" PRIu64 " bytes of %s were rotated away unseen]",
                           source->gone - source->cursor, source->path);

    put_line(source, line, (size_t)n, (size_t)n);
    go_to(source, source->gone);
    source->looked = source->gone;
}

/* The source is shown completely: unlink it, then call `shown`, because that may add or drop sources. */
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

    if (source->gone > source->cursor)
        say_what_is_gone(source);
    if (source->searched > source->cursor && source->looked != source->size)
        readable = search_on(source);
    if (readable && source->searched == source->cursor && source->looked != source->size &&
        outlet_has_room(source->outlet))
        readable = take_whole_lines(source);
    if (!readable) { /* the log was cut, or cannot be read any more, so the rest cannot be shown */
        go_to(source, source->size);
        source->looked = source->size;
    }
    if (!source->ended || source->looked != source->size || !outlet_has_room(source->outlet))
        return;
    if (source->cursor < source->size) { /* the last line has no newline of its own */
        put_line_from_log(source, source->size - source->cursor);
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
    source->look = spec->look;
    source->size = source->cursor = source->searched = source->looked = spec->offset;
    source->n_prefix =
        (size_t)snprintf(source->prefix, PREFIX_BYTES, "%s", spec->prefix != NULL ? spec->prefix : "");
    if (source->n_prefix >= PREFIX_BYTES)
        source->n_prefix = PREFIX_BYTES - 1;
    source->shown = spec->shown;
    source->data = spec->data;
    source->next = console->sources;
    console->sources = source;
    *out = source;
    return FSDP_OK;
}

void console_grew(struct console_source *source, uint64_t size)
{
    if (size <= source->size)
        return;
    source->size = size;
    outlet_offer(source->outlet, source);
}

uint64_t console_taken(const struct console_source *source)
{
    return source->cursor;
}

void console_skip(struct console_source *source, uint64_t offset)
{
    if (offset <= source->cursor)
        return;
    source->gone = offset;
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
    struct console_source **link = &console->sources;

    for (int i = 0; i < console->n_outlets; i++)
        if (console->outlets[i].turn == source)
            console->outlets[i].turn = source->next;
    while (*link != source)
        link = &(*link)->next;
    *link = source->next;
    free(source->path);
    free(source);
}

#include "agent/record/traceback.h"

#include <ctype.h>
#include <string.h>

#include "agent/record/errors.h"

static const char header[] = "Traceback (most recent call last):";
static const char group_header[] = "  + Exception Group ";
static const char group_margin[] = "  | ";
enum { PREFIX_MOST = 96, HEADER_BYTES = sizeof header - 1, GROUP_BYTES = sizeof group_header - 1 };

struct line {
    const char *at;
    size_t n; /* length without the newline, and without a carriage return before it */
};

struct traceback {
    /*
     * begin: the first header of the chain of tracebacks; end: after the last line that belongs to the chain
     */
    const char *begin, *end;
    struct line exception;   /* line of the exception, as written */
    const char *message_end; /* end of the exception's message */
    const char *prefix;      /* the text before each of its lines, without the margin of an exception group */
    size_t n_prefix;
    bool is_group;
    bool is_uncaught;  /* has the form that only an excepthook writes */
    bool is_outermost; /* its first frame is the top level of the program */
    bool is_recorded;  /* directly after a log record */
};

/* Reads the line at `at`. Returns where the next one begins. */
static const char *line_at(const char *at, const char *end, struct line *line)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));

    line->at = at;
    line->n = (size_t)((newline != NULL ? newline : end) - at);
    if (line->n > 0 && at[line->n - 1] == '\r')
        line->n--;
    return newline != NULL ? newline + 1 : end;
}

static bool begins(const struct line *line, const char *with, size_t n)
{
    return line->n >= n && memcmp(line->at, with, n) == 0;
}

static bool begins_text(const struct line *line, const char *text)
{
    return begins(line, text, strlen(text));
}

static bool ends_text(const struct line *line, const char *text)
{
    const size_t n = strlen(text);

    return line->n >= n && memcmp(line->at + line->n - n, text, n) == 0;
}

static bool holds(const struct line *line, const char *text)
{
    return memmem(line->at, line->n, text, strlen(text)) != NULL;
}

static struct line without(const struct line *line, size_t n)
{
    return (struct line){ line->at + n, line->n - n };
}

static bool is_blank(const struct line *line)
{
    for (size_t i = 0; i < line->n; i++)
        if (line->at[i] != ' ' && line->at[i] != '\t' && line->at[i] != '\r')
            return false;
    return true;
}

static bool is_indented(const struct line *line)
{
    return line->n > 0 && (line->at[0] == ' ' || line->at[0] == '\t');
}

/* "[rank12]: " */
static bool is_rank_prefix(const char *prefix, size_t n)
{
    if (n < 9 || memcmp(prefix, "[rank", 5) != 0 || memcmp(prefix + n - 3, "]: ", 3) != 0)
        return false;
    for (size_t i = 5; i < n - 3; i++)
        if (!isdigit((unsigned char)prefix[i]))
            return false;
    return true;
}

/*
 * Returns whether `line` is the header of a traceback, and stores its kind in *this. Headers inside a group,
 * after its margin, are parts of it and do not count.
 */
static bool read_header(const struct line *line, struct traceback *this)
{
    struct line prefix = { line->at, line->n - HEADER_BYTES };

    if (line->n > HEADER_BYTES + PREFIX_MOST || !ends_text(line, header))
        return false;
    if (ends_text(&prefix, group_header)) {
        this->is_group = true;
        prefix.n -= GROUP_BYTES;
    } else if (ends_text(&prefix, "| ") || ends_text(&prefix, "| Exception Group ")) {
        return false;
    }
    this->prefix = prefix.at;
    this->n_prefix = prefix.n;
    this->is_uncaught = is_rank_prefix(prefix.at, prefix.n);
    return true;
}

static bool is_name(char c)
{
    return isalpha((unsigned char)c) || c == '_' || (unsigned char)c >= 0x80;
}

/*
 * Finds the exception's line of the traceback whose header is at `at`: the first line that is not indented
 * and begins with a name. Returns where the line after it begins. NULL: there is none, so this is no
 * traceback.
 */
static const char *find_exception(const char *at, const char *end, struct traceback *this)
{
    const size_t n_margin = this->is_group ? sizeof group_margin - 1 : 0;
    struct line line;
    const char *next = line_at(at, end, &line);
    bool any = false;

    while (next < end) {
        struct line body;

        next = line_at(next, end, &line);
        if (!begins(&line, this->prefix, this->n_prefix))
            return NULL;
        body = without(&line, this->n_prefix);
        if (!begins(&body, group_margin, n_margin))
            return NULL;
        body = without(&body, n_margin);
        if (body.n > 0 && body.at[0] != ' ') {
            this->exception = line;
            return any && is_name(body.at[0]) ? next : NULL;
        }
        if (!any)
            this->is_outermost =
                ends_text(&body, ", in <module>") || ends_text(&body, ", in _run_module_as_main");
        any = true;
    }
    return NULL;
}

/*
 * Reads a SyntaxError of the program itself, which has no frames yet: `  File "x.py", line 3`, indented
 * lines, `SyntaxError: ...`.
 */
static const char *find_syntax_error(const char *at, const char *end, struct traceback *this)
{
    struct line line;
    const char *next = line_at(at, end, &line);
    size_t digits = 0;

    while (digits < line.n && isdigit((unsigned char)line.at[line.n - 1 - digits]))
        digits++;
    line.n -= digits;
    if (digits == 0 || !begins_text(&line, "  File \"") || !ends_text(&line, "\", line "))
        return NULL;
    while (next < end) {
        next = line_at(next, end, &line);
        if (is_indented(&line) || line.n == 0)
            continue;
        this->prefix = this->begin;
        this->exception = line;
        return begins_text(&line, "SyntaxError: ") || begins_text(&line, "IndentationError: ") ||
                       begins_text(&line, "TabError: ")
                   ? next
                   : NULL;
    }
    return NULL;
}

/*
 * Reads the traceback that begins at `at`, up to its exception's line. Returns false if no traceback begins
 * there.
 */
static bool read_traceback(const char *at, const char *end, struct traceback *this)
{
    struct line line;

    *this = (struct traceback){ .begin = at };
    line_at(at, end, &line);
    this->end = read_header(&line, this) ? find_exception(at, end, this) : find_syntax_error(at, end, this);
    return this->end != NULL;
}

/* Is this a line of warnings.warn()? "x.py:3: UserWarning: ..."; the source line after it is indented. */
static bool is_warning(const struct line *line)
{
    const char *found = memmem(line->at, line->n, "Warning: ", 9);
    const char *at = found;

    while (at != NULL && at > line->at && isalnum((unsigned char)at[-1]))
        at--;
    return at != NULL && at - line->at > 3 && at[-1] == ' ' && at[-2] == ':' &&
           isdigit((unsigned char)at[-3]);
}

/*
 * Is this a log line of PyTorch's C++ code? "[rank0]:[W1121 10:11:12.123456789 ProcessGroupNCCL.cpp:1250]
 * Warning: ..."
 */
static bool is_native_log(const struct line *line)
{
    const char *rank = begins_text(line, "[rank") ? memmem(line->at, line->n, "]:[", 3) : NULL;
    const struct line rest = without(line, rank != NULL ? (size_t)(rank + 2 - line->at) : 0);

    return rest.n > 3 && rest.at[0] == '[' && strchr("IWEF", rest.at[1]) != NULL && rest.at[1] != '\0' &&
           isdigit((unsigned char)rest.at[2]) && isdigit((unsigned char)rest.at[3]);
}

/* Does this line begin a report of an exception that does not end the program? */
static bool is_ignored(const struct line *line)
{
    return begins_text(line, "Exception ignored ") || begins_text(line, "Error in atexit._run_exitfuncs:");
}

/*
 * Returns whether the traceback is from Python's resource tracker. That is another process; it writes
 * tracebacks about resources that the dead process left.
 */
static bool is_tracker(const struct traceback *this)
{
    struct line line;

    line_at(line_at(this->begin, this->end, &line), this->end, &line);
    return holds(&line, "resource_tracker.py\", line ");
}

/*
 * If the text at `at` has nothing to do with the program's end, returns where that text ends; otherwise NULL.
 */
static const char *past_noise(const char *at, const char *end, bool threads)
{
    struct traceback other;
    struct line line;
    const char *next = line_at(at, end, &line);

    if (is_ignored(&line)) {
        if (read_traceback(next, end, &other))
            return other.end;
        return line_at(next, end, &line); /* its exception alone */
    }
    if (threads && begins_text(&line, "Exception in thread ") && read_traceback(next, end, &other))
        return other.end;
    if (is_warning(&line) || is_native_log(&line))
        return next;
    return read_traceback(at, end, &other) && is_tracker(&other) ? other.end : NULL;
}

static bool is_log_record(const struct line *line)
{
    return holds(line, "ERROR") || holds(line, "CRITICAL") || holds(line, "FATAL") || holds(line, "WARNING");
}

static bool is_chain(const struct line *line)
{
    return holds(line, "During handling of the above exception, another exception occurred:") ||
           holds(line, "The above exception was the direct cause of the following exception:");
}

/*
 * Finds the newest traceback in the bytes that is complete up to its exception's line. If its chain is cut,
 * the rest of the chain counts.
 */
static bool find_newest(const char *bytes, const char *end, struct traceback *found)
{
    struct line above = { bytes, 0 },
                last = { bytes, 0 }; /* `last`: the line directly above, and the last one that is not blank */
    const char *next;
    bool any = false;

    for (const char *at = bytes; at < end; at = next) {
        struct traceback this;
        struct line line;

        next = line_at(at, end, &line);
        if (read_traceback(at, end, &this) && !is_tracker(&this) &&
            (!any || !found->is_uncaught || this.is_uncaught)) {
            const bool chained = any && is_chain(&last);

            this.begin = chained ? found->begin : at;
            this.is_recorded = chained ? found->is_recorded : is_log_record(&above);
            *found = this;
            any = true;
            next = this.end;
            line = this.exception;
        } else {
            const char *past = past_noise(at, end, any && found->is_outermost);

            next = past != NULL ? past : next;
        }
        above = line;
        if (line.n > (any && begins(&line, found->prefix, found->n_prefix) ? found->n_prefix : 0))
            last = line;
    }
    return any;
}

static bool belongs(const struct traceback *this, const struct line *line)
{
    struct line body;

    if (!begins(line, this->prefix, this->n_prefix))
        return false;
    body = without(line, this->n_prefix);
    if (this->is_uncaught && this->n_prefix > 0)
        return true;
    return body.n == 0 || is_indented(&body) || (!this->is_group && this->is_outermost && !this->is_recorded);
}

/*
 * Is this the line that closes an exception group: "    +-----------"? A message within the group may have
 * been written without margin.
 */
static bool is_group_end(const struct traceback *this, const struct line *line)
{
    struct line body = without(line, this->n_prefix);

    while (body.n > 0 && body.at[0] == ' ')
        body = without(&body, 1);
    for (size_t i = 1; i < body.n; i++)
        if (body.at[i] != '-')
            return false;
    return body.n > 2 && body.at[0] == '+';
}

/*
 * Extends the traceback over all following lines that belong to it. Returns false if something else follows:
 * then the traceback is not the cause.
 */
static bool take_rest(struct traceback *this, const char *end)
{
    const char *parts = NULL, *next;
    bool foreign = false, noise = false;

    for (const char *at = this->end; at < end; at = next) {
        struct line line;
        const char *past;

        next = line_at(at, end, &line);
        if (is_blank(&line))
            continue;
        past = past_noise(at, end, true);
        if (past != NULL) {
            next = past;
            noise = true;
        } else if (belongs(this, &line) && (!noise || this->is_uncaught)) {
            struct line body = without(&line, this->n_prefix);

            this->end = next;
            if (this->is_group && parts == NULL && begins_text(&body, "  +-"))
                parts = at;
            if (this->is_group && is_group_end(this, &line))
                foreign = false;
        } else if (!noise || !is_indented(&line)) {
            foreign = true;
        }
    }
    this->message_end = parts != NULL ? parts : this->end;
    return !foreign || this->is_uncaught;
}

static struct line strip(const struct traceback *found, const struct line *line, bool margin)
{
    struct line body = *line;

    if (begins(&body, found->prefix, found->n_prefix))
        body = without(&body, found->n_prefix);
    if (margin && found->is_group && begins_text(&body, group_margin))
        body = without(&body, sizeof group_margin - 1);
    return body;
}

/* Copies the whole lines at the end of the traceback that fit in `size` bytes. */
static void copy_text(const struct traceback *found, char *out, size_t size)
{
    const char *from = found->begin;
    size_t length = 0;
    struct line line;

    /* measures the text, and finds the first line from which the rest fits */
    for (const char *at = from; at < found->end;) {
        at = line_at(at, found->end, &line);
        length += strip(found, &line, false).n + 1;
        while (length >= size) {
            from = line_at(from, found->end, &line);
            length -= strip(found, &line, false).n + 1;
        }
    }
    length = 0;
    while (from < found->end) {
        from = line_at(from, found->end, &line);
        line = strip(found, &line, false);
        memcpy(out + length, line.at, line.n);
        length += line.n;
        out[length++] = '\n';
    }
    out[length] = '\0';
    /* zero bytes become another character, because they would end the text */
    for (size_t i = 0; i < length; i++)
        if (out[i] == '\0')
            out[i] = ' ';
}

static void copy_message(const struct traceback *found, char *out, size_t size)
{
    /* one byte more than fits, so that the cut finds the end of a whole character */
    char text[ERRORS_MESSAGE_BYTES + 1];
    size_t length = 0;

    for (const char *at = found->exception.at; at < found->message_end && length < sizeof text;) {
        struct line line;
        size_t n;

        at = line_at(at, found->message_end, &line);
        line = strip(found, &line, true);
        if (length > 0)
            text[length++] = '\n';
        n = line.n < sizeof text - length ? line.n : sizeof text - length;
        memcpy(text + length, line.at, n);
        length += n;
    }
    while (length > 0 && (text[length - 1] == '\n' || text[length - 1] == ' '))
        length--;
    for (size_t i = 0; i < length; i++)
        if (text[i] == '\0')
            text[i] = ' ';
    errors_copy_text(out, size, text, length);
}

/*
 * Copies bytes[0..n) to `out` (n bytes) without the colours that Python 3.13 and newer write to a terminal.
 * Returns the length.
 */
static size_t drop_colours(const char *bytes, size_t n, char *out)
{
    size_t length = 0;

    for (size_t i = 0; i < n; i++) {
        size_t stop = i + 2;

        if (bytes[i] == '\033' && i + 1 < n && bytes[i + 1] == '[') {
            while (stop < n && (isdigit((unsigned char)bytes[stop]) || bytes[stop] == ';'))
                stop++;
            if (stop < n && bytes[stop] == 'm') {
                i = stop;
                continue;
            }
        }
        out[length++] = bytes[i];
    }
    return length;
}

bool traceback_take(const char *bytes, size_t n, char *text, size_t text_size, char *message,
                    size_t message_size)
{
    char plain[TRACEBACK_BYTES];
    struct traceback found;

    if (n > sizeof plain) {
        bytes += n - sizeof plain;
        n = sizeof plain;
    }
    n = drop_colours(bytes, n, plain);
    if (!find_newest(plain, plain + n, &found) || !take_rest(&found, plain + n))
        return false;
    copy_text(&found, text, text_size);
    copy_message(&found, message, message_size);
    return true;
}

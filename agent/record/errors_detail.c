#include "agent/record/errors_impl.h"

#include <string.h>

#include "shard_runtime/core/utf8.h"

enum { ACCOUNT_TRACEBACK_LINES = 40, ACCOUNT_TAIL_LINES = 8, SCREEN_BYTES = 8192 };

void errors_detail_copy(struct errors_detail *to, const struct errors_detail *from)
{
    *to = *from;
    for (int i = 0; i < from->tail.n_lines; i++)
        to->tail.lines[i] = to->tail.bytes + (from->tail.lines[i] - from->tail.bytes);
}

void errors_copy_text(char *out, size_t size, const char *text, size_t n)
{
    if (n >= size)
        n = utf8_cut(text, size - 1);
    memcpy(out, text, n);
    out[n] = '\0';
}

bool errors_detail_is_empty(const struct errors_detail *detail)
{
    return detail->tail.n_lines == 0 && detail->message[0] == '\0' && detail->traceback[0] == '\0' &&
           detail->error_file[0] == '\0' && detail->log[0] == '\0';
}

/*
 * Is the traceback's last line among the last lines of stderr? If it came from an error file, it may never
 * have been on stderr. PyTorch puts "[rank0]: " before each line there.
 */
static bool traceback_is_in_tail(const struct errors_detail *detail)
{
    size_t end = strlen(detail->traceback), start;

    while (end > 0 && detail->traceback[end - 1] == '\n')
        end--;
    for (start = end; start > 0 && detail->traceback[start - 1] != '\n';)
        start--;
    for (int i = 0; i < detail->tail.n_lines; i++) {
        const char *line = detail->tail.lines[i];
        const size_t length = strlen(line);

        if (length >= end - start &&
            memcmp(line + length - (end - start), detail->traceback + start, end - start) == 0)
            return true;
    }
    return false;
}

bool errors_detail_went_by(const struct errors_detail *detail, uint64_t output_now)
{
    return detail->shown && output_now - detail->output_at <= SCREEN_BYTES &&
           (detail->traceback[0] == '\0' || traceback_is_in_tail(detail));
}

/* Append a line that a worker wrote, with control bytes replaced, because a terminal would act on them. */
static void add_line(struct cut_text *out, const char *line, size_t length)
{
    const size_t from = out->length;

    cut_add(out, "  %.*s", (int)length, line);
    for (size_t i = from; i < out->length; i++)
        if (((unsigned char)out->bytes[i] < 0x20 && out->bytes[i] != '\t') || out->bytes[i] == 0x7f)
            out->bytes[i] = '?';
    cut_add(out, "\n");
}

static const char *after_line(const char *at)
{
    at += strcspn(at, "\n");
    return at + (*at == '\n');
}

static void account_of_traceback(struct cut_text *out, const char *text)
{
    int n_lines = 0;

    for (const char *at = text; *at != '\0'; at = after_line(at))
        n_lines++;
    cut_add(out, "fsdprun: its Python traceback%s:\n",
            n_lines > ACCOUNT_TRACEBACK_LINES ? " (the last lines of it)" : "");
    for (const char *at = text; *at != '\0'; at = after_line(at))
        if (n_lines-- <= ACCOUNT_TRACEBACK_LINES)
            add_line(out, at, strcspn(at, "\n"));
}

static void account_of_tail(struct cut_text *out, const struct errors_tail *tail)
{
    int first = tail->n_lines > ACCOUNT_TAIL_LINES ? tail->n_lines - ACCOUNT_TAIL_LINES : 0;

    for (int i = first - 1; i >= 0; i--)
        if (strstr(tail->lines[i], "Traceback (most recent call last)") != NULL) {
            first = i;
            break;
        }
    cut_add(out, "fsdprun: its last lines on stderr:\n");
    for (int i = first; i < tail->n_lines; i++)
        add_line(out, tail->lines[i], strlen(tail->lines[i]));
}

const char *errors_account(const struct errors_detail *detail, char *out, size_t size)
{
    struct cut_text account = { out, size, 0 };

    out[0] = '\0';
    if (detail != NULL && detail->traceback[0] != '\0')
        account_of_traceback(&account, detail->traceback);
    else if (detail != NULL && detail->tail.n_lines > 0)
        account_of_tail(&account, &detail->tail);
    return out;
}

/*
 * End each line of bytes[0..n) with a zero, and keep pointers to the last lines. Text that a carriage return
 * overwrote is left out.
 */
static void split_tail(struct errors_tail *tail, size_t n)
{
    char *bytes = tail->bytes;
    size_t end = n;

    while (end > 0 && (bytes[end - 1] == '\n' || bytes[end - 1] == '\r'))
        end--;
    while (end > 0 && tail->n_lines < ERRORS_TAIL_LINES) {
        size_t start, stop = end;

        while (stop > 0 && bytes[stop - 1] == '\r')
            stop--; /* of "\r\n" */
        start = stop;
        while (start > 0 && bytes[start - 1] != '\n' && bytes[start - 1] != '\r')
            start--;
        bytes[stop] = '\0';
        tail->lines[ERRORS_TAIL_LINES - ++tail->n_lines] = bytes + start;
        while (start > 0 && bytes[start - 1] != '\n')
            start--;
        end = start > 0 ? start - 1 : 0;
        if (start == 0)
            break;
    }
    memmove(tail->lines, tail->lines + ERRORS_TAIL_LINES - tail->n_lines,
            sizeof *tail->lines * (size_t)tail->n_lines);
}

void errors_tail_take(struct errors_tail *tail, const char *bytes, size_t n, bool cut)
{
    const char *newline;

    if (n > ERRORS_TAIL_BYTES) {
        bytes += n - ERRORS_TAIL_BYTES;
        n = ERRORS_TAIL_BYTES;
        cut = true;
    }
    /* The first line may have lost its beginning: leave it out, unless it is all there is. */
    newline = cut ? memchr(bytes, '\n', n) : NULL;
    if (newline != NULL && newline + 1 < bytes + n) {
        n -= (size_t)(newline + 1 - bytes);
        bytes = newline + 1;
    }
    tail->n_lines = 0;
    memcpy(tail->bytes, bytes, n);
    split_tail(tail, n);
}

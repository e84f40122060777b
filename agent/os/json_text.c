#include "agent/os/json_text.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char replacement[3] = { '\xef', '\xbf', '\xbd' }; /* U+FFFD */

size_t json_utf8_length(const char *bytes, size_t n_bytes)
{
    const unsigned char *b = (const unsigned char *)bytes;
    unsigned low = 0x80, high = 0xbf; /* bounds of the second byte: RFC 3629, section 4 */
    size_t n;

    if (n_bytes == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    if (b[0] < 0xc2 || b[0] > 0xf4)
        return 0;
    n = b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
    if (n > n_bytes)
        return 0;
    if (b[0] == 0xe0)
        low = 0xa0;
    else if (b[0] == 0xed)
        high = 0x9f; /* no surrogates */
    else if (b[0] == 0xf0)
        low = 0x90;
    else if (b[0] == 0xf4)
        high = 0x8f;
    if (b[1] < low || b[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((b[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

/* One character of `text` at `at` in its JSON form, at most 6 bytes, into `out`; returns the bytes consumed. */
static size_t escape_one(const char *text, size_t length, size_t at, char out[8], size_t *n_out)
{
    static const char short_forms[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    const unsigned char byte = (unsigned char)text[at];
    size_t n = json_utf8_length(text + at, length - at);

    if (n == 0) {
        memcpy(out, replacement, 3);
        *n_out = 3;
        return 1;
    }
    for (size_t i = 0; n == 1 && short_forms[i] != '\0'; i += 2)
        if (short_forms[i] == text[at]) {
            out[0] = '\\';
            out[1] = short_forms[i + 1];
            *n_out = 2;
            return 1;
        }
    if (byte < 0x20 || byte == 0x7f) {
        *n_out = (size_t)snprintf(out, 8, "\\u%04x", byte);
        return 1;
    }
    memcpy(out, text + at, n);
    *n_out = n;
    return n;
}

size_t json_quote(char *out, size_t size, const char *text, size_t length)
{
    size_t end = 0;

    if (size < 3)
        goto does_not_fit;
    out[end++] = '"';
    for (size_t at = 0; at < length;) {
        char piece[8];
        size_t n_piece;

        at += escape_one(text, length, at, piece, &n_piece);
        if (end + n_piece + 2 > size)
            goto does_not_fit;
        memcpy(out + end, piece, n_piece);
        end += n_piece;
    }
    out[end++] = '"';
    out[end] = '\0';
    return end;
does_not_fit:
    if (size > 0)
        out[0] = '\0';
    return 0;
}

void json_put_text(FILE *file, const char *text)
{
    const size_t length = text == NULL ? 0 : strlen(text);

    if (text == NULL) {
        fputs("null", file);
        return;
    }
    fputc('"', file);
    for (size_t at = 0; at < length;) {
        char piece[8];
        size_t n_piece;

        at += escape_one(text, length, at, piece, &n_piece);
        fwrite(piece, 1, n_piece, file);
    }
    fputc('"', file);
}

char *json_clean_copy(const char *text, size_t length, size_t *out_length)
{
    char *copy;
    size_t end = 0;

    if (length > SIZE_MAX / 3 - 1)
        return NULL;
    copy = malloc(3 * length + 1);
    if (copy == NULL)
        return NULL;
    for (size_t at = 0; at < length;) {
        const size_t n = json_utf8_length(text + at, length - at);

        memcpy(copy + end, n == 0 ? replacement : text + at, n == 0 ? 3 : n);
        end += n == 0 ? 3 : n;
        at += n == 0 ? 1 : n;
    }
    copy[end] = '\0';
    *out_length = end;
    return copy;
}

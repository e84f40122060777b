#include "shard_runtime/core/utf8.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

size_t utf8_length(const char *bytes, size_t n_bytes)
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
        low = 0xa0; /* no overlong forms */
    else if (b[0] == 0xed)
        high = 0x9f; /* no surrogates */
    else if (b[0] == 0xf0)
        low = 0x90;
    else if (b[0] == 0xf4)
        high = 0x8f; /* nothing above U+10FFFF */
    if (b[1] < low || b[1] > high)
        return 0;
    for (size_t i = 2; i < n; i++)
        if ((b[i] & 0xc0) != 0x80)
            return 0;
    return n;
}

size_t utf8_prefix(const char *text, size_t length)
{
    size_t at = 0, step;

    while ((step = utf8_length(text + at, length - at)) > 0)
        at += step;
    return at;
}

bool utf8_is_valid(const char *text)
{
    return utf8_prefix(text, strlen(text)) == strlen(text);
}

size_t utf8_cut(const char *bytes, size_t n)
{
    size_t start = n;

    /* Skip at most three continuation bytes backwards, to the byte that begins the character. */
    while (start > 0 && n - start < 3 && ((unsigned char)bytes[start - 1] & 0xc0) == 0x80)
        start--;
    if (start > 0) {
        const unsigned char lead = (unsigned char)bytes[start - 1];
        const size_t want = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 1;

        if (lead >= 0xc0 && n - (start - 1) < want)
            return start - 1;
    }
    return n;
}

struct range {
    uint32_t first, last;
};

/*
 * Whole blocks of combining characters (Unicode 15). A few characters in them do not combine; they are rare
 * in names.
 */
static const struct range combining[] = {
    { 0x0300, 0x036f }, { 0x0483, 0x0489 }, { 0x0591, 0x05bd }, { 0x064b, 0x065f }, { 0x1ab0, 0x1aff },
    { 0x1dc0, 0x1dff }, { 0x200b, 0x200f }, { 0x202a, 0x202e }, { 0x2060, 0x2064 }, { 0x20d0, 0x20ff },
    { 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f }, { 0xfeff, 0xfeff },
};
static const struct range wide[] = {
    { 0x1100, 0x115f },   { 0x2e80, 0x303e },   { 0x3041, 0xa4cf },   { 0xa960, 0xa97f },
    { 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },   { 0xfe30, 0xfe6f },   { 0xff00, 0xff60 },
    { 0xffe0, 0xffe6 },   { 0x1f300, 0x1f64f }, { 0x1f680, 0x1f6ff }, { 0x1f900, 0x1f9ff },
    { 0x20000, 0x3fffd },
};

static bool is_within(uint32_t code, const struct range *ranges, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (code >= ranges[i].first && code <= ranges[i].last)
            return true;
    return false;
}

int utf8_columns(const char *character, size_t length)
{
    const unsigned char *b = (const unsigned char *)character;
    uint32_t code = length <= 1 ? b[0] : b[0] & (0xffu >> (length + 1));

    for (size_t i = 1; i < length; i++)
        code = code << 6 | (b[i] & 0x3f);
    if (is_within(code, combining, sizeof combining / sizeof *combining))
        return 0;
    return is_within(code, wide, sizeof wide / sizeof *wide) ? 2 : 1;
}

char *utf8_clean_copy(const char *text, size_t length, size_t *out_length)
{
    char *copy;
    size_t end = 0;

    if (length > SIZE_MAX / 3 - 1)
        return NULL;
    copy = malloc(3 * length + 1);
    if (copy == NULL)
        return NULL;
    for (size_t at = 0; at < length;) {
        const size_t n = utf8_length(text + at, length - at);

        memcpy(copy + end, n == 0 ? UTF8_REPLACEMENT : text + at, n == 0 ? 3 : n);
        end += n == 0 ? 3 : n;
        at += n == 0 ? 1 : n;
    }
    copy[end] = '\0';
    *out_length = end;
    return copy;
}

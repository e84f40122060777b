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

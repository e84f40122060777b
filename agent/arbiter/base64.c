#include "agent/arbiter/base64.h"

#include <stdint.h>
#include <string.h>

static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void base64_encode(char *out, const void *bytes, size_t n)
{
    const unsigned char *in = bytes;

    for (size_t i = 0; i < n; i += 3) {
        const uint32_t bits =
            (uint32_t)in[i] << 16 | (i + 1 < n ? (uint32_t)in[i + 1] << 8 : 0) | (i + 2 < n ? in[i + 2] : 0);

        *out++ = letters[bits >> 18];
        *out++ = letters[bits >> 12 & 63];
        *out++ = i + 1 < n ? letters[bits >> 6 & 63] : '=';
        *out++ = i + 2 < n ? letters[bits & 63] : '=';
    }
    *out = '\0';
}

bool base64_decode(void *out, size_t capacity, size_t *n, const char *text)
{
    const size_t length = strlen(text);
    const char *const end = text + length;
    size_t n_padding = 0;
    unsigned char *bytes = out;
    uint32_t bits = 0;

    if (length % 4 != 0)
        return false;
    if (length > 0 && end[-1] == '=')
        n_padding = end[-2] == '=' ? 2 : 1;
    *n = length / 4 * 3 - n_padding;
    if (*n > capacity)
        return false;
    for (size_t i = 0, at = 0; i < length; i++) {
        const char *letter = i < length - n_padding ? memchr(letters, text[i], sizeof letters - 1) : letters;

        if (letter == NULL)
            return false;
        bits = bits << 6 | (uint32_t)(letter - letters);
        if (i % 4 != 3)
            continue;
        for (int shift = 16; shift >= 0; shift -= 8)
            if (at < *n)
                bytes[at++] = (unsigned char)(bits >> shift);
            else if ((bits >> shift & 0xff) != 0)
                /*
                 * refused: the bits after the last byte are not zero, so another text is the right form for
                 * these bytes
                 */
                return false;
        bits = 0;
    }
    return true;
}

#include "shard_runtime/job/utf8.h"

/* Length of the character that starts here, 0 when there is none (RFC 3629: no overlong forms, no
 * surrogates). */
static size_t utf8_step(const unsigned char *at, size_t left)
{
    static const struct {
        unsigned char first, last, second_low, second_high, length;
    } forms[] = {
        { 0x00, 0x7f, 0x00, 0x00, 1 }, { 0xc2, 0xdf, 0x80, 0xbf, 2 }, { 0xe0, 0xe0, 0xa0, 0xbf, 3 },
        { 0xe1, 0xec, 0x80, 0xbf, 3 }, { 0xed, 0xed, 0x80, 0x9f, 3 }, { 0xee, 0xef, 0x80, 0xbf, 3 },
        { 0xf0, 0xf0, 0x90, 0xbf, 4 }, { 0xf1, 0xf3, 0x80, 0xbf, 4 }, { 0xf4, 0xf4, 0x80, 0x8f, 4 },
    };

    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
        if (at[0] < forms[i].first || at[0] > forms[i].last)
            continue;
        if (forms[i].length > left)
            return 0;
        if (forms[i].length > 1 && (at[1] < forms[i].second_low || at[1] > forms[i].second_high))
            return 0;
        for (size_t j = 2; j < forms[i].length; j++)
            if ((at[j] & 0xc0) != 0x80)
                return 0;
        return forms[i].length;
    }
    return 0;
}

size_t utf8_prefix(const char *text, size_t length)
{
    size_t at = 0, step;

    while (at < length && (step = utf8_step((const unsigned char *)text + at, length - at)) > 0)
        at += step;
    return at;
}

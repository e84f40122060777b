#include "launcher/hostlist.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DIGITS = 9 };

/* The numbers from `first` to `last`. Each is written with at least `width` digits: "03-05" has width two. */
struct range {
    int first, last, width;
};

/* Reads the digits at *at and moves *at to what follows them. Returns -1 if there are none, or too many. */
static int read_number(const char **at)
{
    const size_t n_digits = strspn(*at, "0123456789");
    const char *digits = *at;

    *at += n_digits;
    return n_digits == 0 || n_digits > MOST_DIGITS ? -1 : (int)strtol(digits, NULL, 10);
}

static bool read_range(const char **at, struct range *range)
{
    const char *begin = *at;

    range->first = range->last = read_number(at);
    range->width = (int)(*at - begin);
    if (range->first >= 0 && **at == '-') {
        ++*at;
        range->last = read_number(at);
    }
    return range->first >= 0 && range->last >= range->first && range->last - range->first < HOSTLIST_MOST;
}

/*
 * Counts the numbers in a pair of brackets. *at is just after the opening one, and moves past the closing
 * one. If number `index` is among them, writes it to `digits`. Returns 0 if the text is malformed.
 */
static int read_brackets(const char **at, int index, char digits[MOST_DIGITS + 2])
{
    struct range range;
    int n = 0;

    do {
        if (!read_range(at, &range))
            return 0;
        if (index >= n && index - n <= range.last - range.first)
            snprintf(digits, MOST_DIGITS + 2, "%0*d", range.width, range.first + index - n);
        n += range.last - range.first + 1;
        if (n > HOSTLIST_MOST)
            return 0;
    } while (*(*at)++ == ',');
    return (*at)[-1] == ']' ? n : 0;
}

/*
 * Counts the names that the element at *at stands for. Moves *at past the element, to a comma or to the end
 * of the list. Returns 0 if the element is malformed.
 */
static int read_element(const char **at)
{
    const char *begin = *at;
    char digits[MOST_DIGITS + 2];
    int n = 1;

    while (**at != '\0' && **at != ',') {
        const char c = *(*at)++;
        const int n_here = c == '[' ? read_brackets(at, -1, digits) : 1;

        if (c == ']' || !isgraph((unsigned char)c) || n_here == 0 || n > HOSTLIST_MOST / n_here)
            return 0;
        n *= n_here;
    }
    return *at == begin ? 0 : n;
}

/*
 * Writes name number `index` of a well-formed element that stands for `n` names. The last brackets count
 * fastest. Returns false if the name is too long.
 */
static bool write_name(const char *at, int n, int index, char out[HOSTLIST_NAME_BYTES])
{
    size_t used = 0;

    while (*at != '\0' && *at != ',') {
        char piece[MOST_DIGITS + 2] = { *at++, '\0' };

        if (piece[0] == '[') {
            const char *inside = at;

            n /= read_brackets(&inside, -1, piece);
            (void)read_brackets(&at, index / n, piece);
            index %= n;
        }
        if (used + strlen(piece) >= HOSTLIST_NAME_BYTES)
            return false;
        used += (size_t)sprintf(out + used, "%s", piece);
    }
    return true;
}

/*
 * Counts the names of a list, and writes number `index` to `out`. It reads the whole list even if it has
 * found the name: a list that was cut short must be refused, not accepted as a shorter one.
 */
static int walk(const char *list, int index, char *out, bool *is_named)
{
    int n = 0;

    for (const char *at = list;; at++) {
        const char *begin = at;
        const int n_here = read_element(&at);

        if (n_here == 0 || n + n_here > HOSTLIST_MOST)
            return 0;
        if (index >= n && index - n < n_here)
            *is_named = write_name(begin, n_here, index - n, out);
        n += n_here;
        if (*at == '\0')
            return n;
    }
}

int hostlist_count(const char *list)
{
    return walk(list, -1, NULL, NULL);
}

bool hostlist_name(const char *list, int index, char out[HOSTLIST_NAME_BYTES])
{
    bool is_named = false;

    out[0] = '\0';
    if (walk(list, index, out, &is_named) == 0)
        is_named = false;
    if (!is_named)
        out[0] = '\0';
    return is_named;
}

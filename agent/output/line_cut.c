#include "agent/output/line_cut.h"

bool line_end(const char *bytes, size_t n, size_t *length, size_t *consumed, size_t *n_searched)
{
    const char *newline = memchr(bytes, '\n', n);
    const char *limit = newline != NULL ? newline : bytes + n;

    for (const char *at = bytes; (at = memchr(at, '\r', (size_t)(limit - at))) != NULL;) {
        const char *after = at;

        while (after < limit && *after == '\r')
            after++;
        if (after == bytes + n) { /* what follows the last of them decides */
            *n_searched = n - 1;
            return false;
        }
        if (*after != '\n') {
            *length = (size_t)(at - bytes);
            *consumed = (size_t)(after - bytes);
            return true;
        }
        break; /* "\r\n": the newline ends it */
    }
    *n_searched = n;
    if (newline == NULL)
        return false;
    *length = (size_t)(newline - bytes);
    *consumed = *length + 1;
    return true;
}

void line_scan_init(struct line_scan *scan, const char *bytes, size_t n)
{
    *scan = (struct line_scan){ .at = bytes, .end = bytes + n, .carriage = memchr(bytes, '\r', n) };
    if (scan->carriage == NULL)
        scan->carriage = scan->end;
}

bool line_scan_slowly(struct line_scan *scan, size_t *length)
{
    size_t consumed;

    if (!line_end(scan->at, (size_t)(scan->end - scan->at), length, &consumed, &scan->n_searched))
        return false;
    scan->at += consumed;
    if (scan->carriage < scan->at) {
        scan->carriage = memchr(scan->at, '\r', (size_t)(scan->end - scan->at));
        if (scan->carriage == NULL)
            scan->carriage = scan->end;
    }
    return true;
}

#include "agent/placement/gpu_visible.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

enum { NONE = -1, WORD_SHOWN = 60 };

/* One entry of a list: a piece of its text. */
struct entry {
    const char *text;
    size_t length;
};

/* Take the entry at *list, and advance *list past its comma. False: there is none left. */
static bool take(const char **list, struct entry *entry)
{
    if (*list == NULL)
        return false;
    entry->text = *list;
    entry->length = strcspn(*list, ",");
    *list = entry->text[entry->length] == ',' ? entry->text + entry->length + 1 : NULL;
    return true;
}

static bool begins(const char *text, const char *prefix)
{
    return text != NULL && strncmp(text, prefix, strlen(prefix)) == 0;
}

bool gpu_visible_migs(const char *list)
{
    return begins(list, "MIG-");
}

bool gpu_visible_names(const char *list)
{
    return begins(list, "GPU-") || gpu_visible_migs(list);
}

/*
 * The index with which an entry begins; NONE: it begins with none. A huge number gives an index that no
 * machine has.
 */
static int index_of(struct entry entry)
{
    enum { BEYOND = 1000000 };
    int value = 0;
    bool digits = false;

    while (entry.length > 0 && isspace((unsigned char)*entry.text))
        entry.text++, entry.length--;
    if (entry.length > 0 && *entry.text == '+')
        entry.text++, entry.length--;
    for (; entry.length > 0 && isdigit((unsigned char)*entry.text); entry.text++, entry.length--) {
        digits = true;
        value = value >= BEYOND ? BEYOND : value * 10 + (*entry.text - '0');
    }
    return digits ? value : NONE;
}

/* The device whose name begins with the entry; NONE: there is none, or more than one. */
static int named(struct entry entry, const char *const *names, int n)
{
    int found = NONE;

    for (int i = 0; i < n; i++) {
        if (names == NULL || names[i] == NULL || strncmp(names[i], entry.text, entry.length) != 0)
            continue;
        if (names[i][entry.length] == '\0')
            /* this name is equal to the entry, so longer names that begin with the entry do not count */
            return i;
        if (found != NONE)
            return NONE;
        found = i;
    }
    return found;
}

/* Does `entry` have the form of this kind of list? There need not be such a device. */
static bool of_kind(struct entry entry, const char *prefix)
{
    return prefix != NULL ? begins(entry.text, prefix) : index_of(entry) != NONE;
}

static bool same(struct entry a, struct entry b, const char *prefix)
{
    return prefix != NULL ? a.length == b.length && memcmp(a.text, b.text, a.length) == 0
                          : index_of(a) == index_of(b);
}

/*
 * Does `entry` have the form of an entry of this kind of list, such as a name with `prefix`? No device need
 * match it.
 */
static bool repeats(const char *list, const char *prefix, struct entry *twice)
{
    struct entry other;

    while (take(&list, twice) && of_kind(*twice, prefix))
        for (const char *rest = list; take(&rest, &other) && of_kind(other, prefix);)
            if (same(*twice, other, prefix))
                return true;
    return false;
}

static int pick_all(int n, int *picked, int room)
{
    n = n < room ? n : room;
    for (int i = 0; i < n; i++)
        picked[i] = i;
    return n;
}

static bool holds(const int *picked, int n, int device)
{
    for (int i = 0; i < n; i++)
        if (picked[i] == device)
            return true;
    return false;
}

static int shown(struct entry entry)
{
    return entry.length < WORD_SHOWN ? (int)entry.length : WORD_SHOWN;
}

int gpu_visible_pick(const char *variable, const char *list, const char *const *names, int n, int *picked,
                     int room, char *why, size_t why_bytes)
{
    const char *prefix = gpu_visible_migs(list) ? "MIG-" : gpu_visible_names(list) ? "GPU-" : NULL;
    const char *rest = list;
    struct entry entry;
    int count = 0;

    if (why_bytes > 0)
        why[0] = '\0';
    if (list == NULL)
        return pick_all(n, picked, room);
    if (repeats(list, prefix, &entry)) {
        snprintf(why, why_bytes, "%s names %.*s twice, which hides all", variable, shown(entry), entry.text);
        return 0;
    }
    while (count < room && take(&rest, &entry)) {
        int device = !of_kind(entry, prefix) ? NONE
                     : prefix != NULL        ? named(entry, names, n)
                                             : index_of(entry);

        if (device == NONE || device >= n) {
            if (count == 0 && (list[0] == '\0' || strcmp(list, "-1") == 0))
                snprintf(why, why_bytes, "%s=%s hides all", variable, list);
            else
                snprintf(why, why_bytes, "%s ends at \"%.*s\", which is none of %d", variable, shown(entry),
                         entry.text, n);
            return count;
        }
        /* Find an entry that is twice in the list. It counts even if this machine has no such device. */
        if (holds(picked, count, device)) {
            snprintf(why, why_bytes, "%s names %.*s twice, which hides all", variable, shown(entry),
                     entry.text);
            return 0;
        }
        picked[count++] = device;
    }
    return count;
}

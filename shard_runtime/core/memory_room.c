#include "shard_runtime/core/memory_room.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { PATH_BYTES = 4096 };

/* Reads the number in a file; "max" gives UINT64_MAX. Returns false if there is no number. */
static bool read_number(const char *folder, const char *name, uint64_t *number)
{
    char path[PATH_BYTES + 64], word[32] = "";
    FILE *file;
    bool read;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "re");
    if (file == NULL)
        return false;
    read = fscanf(file, "%31s", word) == 1;
    fclose(file);
    if (strcmp(word, "max") == 0)
        *number = UINT64_MAX;
    else
        read = read && sscanf(word, "%" SCNu64, number) == 1;
    return read;
}

/* Returns the number after `key` at the start of a line of the file; 0: there is none. */
static uint64_t read_field(const char *path, const char *key)
{
    FILE *file = fopen(path, "re");
    char line[256];
    uint64_t number = 0;

    if (file == NULL)
        return 0;
    while (fgets(line, sizeof line, file) != NULL)
        if (strncmp(line, key, strlen(key)) == 0 && sscanf(line + strlen(key), "%" SCNu64, &number) == 1)
            break;
    fclose(file);
    return number;
}

/*
 * Returns what the limit of one group leaves. `limit` and `usage` are names of its files; `cache` is the name
 * of a line of memory.stat.
 */
static uint64_t room_of_group(const char *folder, const char *limit, const char *usage, const char *cache)
{
    char path[PATH_BYTES + 64];
    uint64_t most, used;

    if (!read_number(folder, limit, &most) || most > INT64_MAX / 2 || !read_number(folder, usage, &used))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s/memory.stat", folder);
    most += read_field(path, cache);
    return most > used ? most - used : 0;
}

/*
 * Returns the least that the limits of this group and of all groups above it leave. `base` is where the tree
 * of groups is mounted.
 */
static uint64_t room_of_groups(const char *base, const char *group, bool is_v2)
{
    char folder[PATH_BYTES];
    uint64_t room = UINT64_MAX;
    int n = snprintf(folder, sizeof folder, "%s%s", base, group);

    while (n > 0 && n < (int)sizeof folder && strlen(folder) >= strlen(base)) {
        const uint64_t here = is_v2 ? room_of_group(folder, "memory.max", "memory.current", "inactive_file ")
                                    : room_of_group(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                    "total_inactive_file ");
        char *slash = strrchr(folder, '/');

        room = here < room ? here : room;
        if (slash == NULL)
            break;
        *slash = '\0';
    }
    return room;
}

uint64_t memory_room(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES], base[PATH_BYTES];
    uint64_t room, available;
    FILE *file;

    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    available = read_field(path, "MemAvailable:");
    room = available == 0 ? UINT64_MAX : available * 1024;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    file = fopen(path, "re");
    if (file == NULL)
        return room;
    while (fgets(line, sizeof line, file) != NULL) {
        const bool is_v2 = strncmp(line, "0::", 3) == 0;
        char *group = strstr(line, is_v2 ? "::" : ":memory:");
        uint64_t here;

        if (group == NULL)
            continue;
        group += strlen(is_v2 ? "::" : ":memory:");
        group[strcspn(group, "\n")] = '\0';
        if (snprintf(base, sizeof base, "%s/sys/fs/cgroup%s", root, is_v2 ? "" : "/memory") >=
            (int)sizeof base)
            continue;
        here = room_of_groups(base, strcmp(group, "/") == 0 ? "" : group, is_v2);
        room = here < room ? here : room;
    }
    fclose(file);
    return room;
}

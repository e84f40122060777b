#include "agent/os/oom.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/cgroup.h"
#include "agent/os/small_file.h"

enum { FILE_BYTES = 4096, RECORD_BYTES = 8192, RECORDS_MAX = 20000 };

bool oom_parse_counter(const char *text, uint64_t *n)
{
    static const char key[] = "oom_kill ";

    for (; text != NULL && *text != '\0'; text = strchr(text, '\n'), text = text == NULL ? NULL : text + 1)
        if (strncmp(text, key, sizeof key - 1) == 0) {
            char *end;

            *n = strtoull(text + sizeof key - 1, &end, 10);
            return end != text + sizeof key - 1;
        }
    return false;
}

/*
 * The kernel writes "Memory cgroup out of memory: Killed process 4242 (name) ..." or "Out of memory: Killed
 * process ..." (mm/oom_kill.c).
 */
pid_t oom_parse_record(const char *record)
{
    static const char mark[] = "ut of memory", killed[] = "Killed process ";
    const char *at = strstr(record, mark);

    at = at == NULL ? NULL : strstr(at, killed);
    return at == NULL ? 0 : (pid_t)strtol(at + sizeof killed - 1, NULL, 10);
}

bool oom_parse_group(const char *text, bool *v1, char *path, size_t size)
{
    struct cgroup_line line;
    bool found = false;

    while (cgroup_next(&text, &line)) {
        if (!cgroup_is_v2(&line) && !cgroup_has(&line, "memory"))
            continue;
        *v1 = !cgroup_is_v2(&line);
        snprintf(path, size, "%.*s", (int)line.group_bytes, line.group);
        found = true;
        if (*v1)
            /*
             * version 1 decides; after the line of version 2, one of version 1 with the controller may come
             */
            break;
    }
    return found;
}

/*
 * Find the counter in the folder of our group. A container may see only its own part of the tree; the counter
 * is then in the top folder.
 */
static void find_counter(struct oom_watch *watch, const char *root, bool v1, const char *group)
{
    static const char *const tops[2][2] = { { "", "/unified" }, { "/memory", "" } };
    const char *const counter = v1 ? "memory.oom_control" : "memory.events";
    const char *const limit = v1 ? "memory.limit_in_bytes" : "memory.max";
    char text[FILE_BYTES];

    for (int i = 0; i < 4; i++) {
        const char *top = tops[v1][i / 2], *in = i % 2 == 0 && strcmp(group, "/") != 0 ? group : "";

        snprintf(watch->counter, sizeof watch->counter, "%s%s%s/%s", root, top, in, counter);
        snprintf(watch->limit, sizeof watch->limit, "%s%s%s/%s", root, top, in, limit);
        if (small_file_read(text, sizeof text, "%s", watch->counter) && oom_parse_counter(text, &watch->seen))
            return;
    }
    watch->counter[0] = watch->limit[0] = '\0';
}

void oom_watch_begin(struct oom_watch *watch, const char *cgroup_file, const char *root, const char *kmsg)
{
    char text[FILE_BYTES], group[OOM_PATH_BYTES / 2], ns[64];
    bool v1;
    ssize_t n;

    *watch = (struct oom_watch){ .kmsg = -1 };
    if (small_file_read(text, sizeof text, "%s", cgroup_file) &&
        oom_parse_group(text, &v1, group, sizeof group))
        find_counter(watch, root, v1, group);
    /*
     * The log has pids of the first pid namespace, whose inode is 4026531836 (proc_ns.h). In any other
     * namespace they are not ours.
     */
    n = readlink("/proc/self/ns/pid", ns, sizeof ns - 1);
    ns[n > 0 ? n : 0] = '\0';
    if (kmsg == NULL || strcmp(ns, "pid:[4026531836]") != 0)
        return;
    watch->kmsg = open(kmsg, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (watch->kmsg >= 0 && lseek(watch->kmsg, 0, SEEK_END) < 0) {
        close(watch->kmsg);
        watch->kmsg = -1;
    }
}

void oom_watch_end(struct oom_watch *watch)
{
    if (watch->kmsg >= 0)
        close(watch->kmsg);
    watch->kmsg = -1;
}

/* Read the new records of the kernel log, one for each read() (Documentation/ABI/testing/dev-kmsg). */
static void read_log(struct oom_watch *watch)
{
    char record[RECORD_BYTES];

    for (int i = 0; watch->kmsg >= 0 && i < RECORDS_MAX; i++) {
        const ssize_t n = read(watch->kmsg, record, sizeof record - 1);
        pid_t pid;

        if (n < 0 && (errno == EPIPE || errno == EINTR))
            continue; /* records were overwritten before we read them: go on with the next one */
        if (n <= 0)
            return;
        record[n] = '\0';
        pid = oom_parse_record(record);
        if (pid <= 0)
            continue;
        if (watch->n_named == OOM_NAMED)
            memmove(watch->named, watch->named + 1, sizeof *watch->named * (size_t)--watch->n_named);
        watch->named[watch->n_named++] = pid;
    }
}

/* Did the log name this pid? Forgets the pid, so the second question gets false. */
static bool take_named(struct oom_watch *watch, pid_t pid)
{
    for (int i = 0; i < watch->n_named; i++)
        if (watch->named[i] == pid) {
            watch->named[i] = watch->named[--watch->n_named];
            return true;
        }
    return false;
}

static void put_limit(const struct oom_watch *watch, char *out, size_t size)
{
    char text[FILE_BYTES], *end;
    uint64_t bytes;

    out[0] = '\0';
    if (!small_file_read(text, sizeof text, "%s", watch->limit))
        return;
    bytes = strtoull(text, &end, 10);
    /* without a limit, version 2 writes "max" and version 1 a huge number */
    if (end != text && bytes < UINT64_C(1) << 60)
        snprintf(out, size, " (its control group may use %" PRIu64 " MiB)", bytes >> 20);
}

enum oom_answer oom_watch_ask(struct oom_watch *watch, pid_t pid, bool by_kill, char *words, size_t size)
{
    char text[FILE_BYTES], limit[64];
    uint64_t n = watch->seen, risen;
    bool named;

    read_log(watch);
    named = take_named(watch, pid);
    if (small_file_read(text, sizeof text, "%s", watch->counter))
        oom_parse_counter(text, &n);
    risen = n > watch->seen ? n - watch->seen : 0;
    if (!named && risen == 0)
        return OOM_NO;
    put_limit(watch, limit, sizeof limit);
    if (named || (by_kill && risen > (uint64_t)watch->n_named)) {
        if (risen > 0)
            /* one OOM kill belongs to this process; the others that were counted belong to other processes */
            watch->seen++;
        snprintf(words, size, "out of memory: ended by the kernel's OOM killer%s", risen > 0 ? limit : "");
        return OOM_KILLED;
    }
    watch->seen = n;
    watch->n_named = 0;
    snprintf(words, size, "the kernel's OOM killer ended another process of its control group%s", limit);
    return OOM_NEARBY;
}

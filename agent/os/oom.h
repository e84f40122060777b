/*
 * Did the kernel's OOM killer end a worker? There are two sources, and either may be missing:
 *   counter     OOM kills of this process's control group (memory.events of version 2, memory.oom_control of
 *               version 1). It says how many were killed, but not which.
 *   kernel log  /dev/kmsg names the pid, but not every user may read it, and the pids are those of the first
 *               pid namespace.
 * Both are opened before the first worker starts, and read when a worker has died by KILL. Nothing here
 * blocks. The parsers are pure.
 */
#ifndef AGENT_OOM_H
#define AGENT_OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { OOM_PATH_BYTES = 512, OOM_NAMED = 16 };

enum oom_answer {
    OOM_NO,     /* neither source says so, or both are missing */
    OOM_KILLED, /* this process */
    OOM_NEARBY, /* the OOM killer ended another process of the control group a short time ago */
};

struct oom_watch {
    int kmsg;                     /* read from the position where the watch began; -1: not readable */
    char counter[OOM_PATH_BYTES]; /* path of the file with the "oom_kill" line; empty: none */
    char limit[OOM_PATH_BYTES];   /* path of the file with the group's limit */
    uint64_t seen;                /* OOM kills that were attributed to a process */
    pid_t named[OOM_NAMED];       /* pids of the log that were not asked for yet; the oldest are dropped */
    int n_named;
};

/**
 * Begin to watch. `cgroup_file` is /proc/self/cgroup, `root` /sys/fs/cgroup, and `kmsg` /dev/kmsg or NULL;
 * tests pass other paths.
 */
void oom_watch_begin(struct oom_watch *watch, const char *cgroup_file, const char *root, const char *kmsg);
void oom_watch_end(struct oom_watch *watch);

/**
 * Call it when a worker has died. `by_kill`: it died by a SIGKILL that we did not send. With OOM_KILLED and
 * OOM_NEARBY, `words` receives a text for the user. Example: "out of memory: ended by the kernel's OOM killer
 * (its control group may use 64 MiB)".
 */
enum oom_answer oom_watch_ask(struct oom_watch *watch, pid_t pid, bool by_kill, char *words, size_t size);

/** Read the value of the line "oom_kill N" of `text`. False: there is no such line. Pure. */
bool oom_parse_counter(const char *text, uint64_t *n);

/**
 * The pid in a record of the kernel log about a process that the OOM killer ended; 0 for any other record.
 * Pure.
 */
pid_t oom_parse_record(const char *record);

/**
 * Find in the text of /proc/PID/cgroup the folder of the memory controller. It is below the root of the
 * cgroup file systems: "/memory/a/b", "/a/b" or "/unified/a/b". If there are both versions, version 1 counts.
 * Returns false if the text names none. Pure.
 */
bool oom_parse_group(const char *text, bool *v1, char *path, size_t size);

#endif

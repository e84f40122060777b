/*
 * Was it the kernel's OOM killer? Two witnesses, either of which may be missing: the counter of OOM kills of this
 * process's control group (memory.events of cgroup v2, memory.oom_control of v1), which says how many but not whom,
 * and the kernel log (/dev/kmsg), which names the pid, but only to those who may read it and only with pids of the
 * first pid namespace. Both are opened before the first worker starts and asked when one has died by KILL.
 *
 * The parsers are pure; nothing here waits.
 */
#ifndef AGENT_OOM_H
#define AGENT_OOM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { OOM_PATH_BYTES = 512, OOM_NAMED = 16 };

enum oom_answer {
    OOM_NO,     /* nothing says so, or nothing can be asked */
    OOM_KILLED, /* this process */
    OOM_NEARBY, /* another process of the control group, not long ago */
};

struct oom_watch {
    int kmsg;                     /* at its end when the watch began; -1: not to be had */
    char counter[OOM_PATH_BYTES]; /* the file with the "oom_kill" line; empty: none */
    char limit[OOM_PATH_BYTES];   /* the file with the group's limit */
    uint64_t seen;                /* OOM kills that are accounted for */
    pid_t named[OOM_NAMED]; /* whom the log named and nobody asked about yet; the oldest are forgotten */
    int n_named;
};

/** Begin. `cgroup_file` and `root` are /proc/self/cgroup and /sys/fs/cgroup but in tests; `kmsg` /dev/kmsg or NULL. */
void oom_watch_begin(struct oom_watch *watch, const char *cgroup_file, const char *root, const char *kmsg);
void oom_watch_end(struct oom_watch *watch);

/**
 * A worker has died. `by_kill`: by a SIGKILL that we did not send. With OOM_KILLED and OOM_NEARBY `words` tell it to
 * people: "out of memory: ended by the kernel's OOM killer (its control group may use 64 MiB)".
 */
enum oom_answer oom_watch_ask(struct oom_watch *watch, pid_t pid, bool by_kill, char *words, size_t size);

/** The value of the line "oom_kill N" of `text`; false where there is none. Pure. */
bool oom_parse_counter(const char *text, uint64_t *n);

/** The pid of one record of the kernel log that says whom the OOM killer took, 0 for any other record. Pure. */
pid_t oom_parse_record(const char *record);

/**
 * From the text of /proc/PID/cgroup: the folder of its memory controller below the cgroup file systems' root
 * ("/memory/a/b", "/a/b", "/unified/a/b"), the v1 one where both are there. False: none is named. Pure.
 */
bool oom_parse_group(const char *text, bool *v1, char *path, size_t size);

#endif

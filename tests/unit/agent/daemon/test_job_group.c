#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/daemon/job_group.h"
#include "agent/os/small_file.h"
#include "shard_runtime/core/clock.h"

static char root[] = "/tmp/fsdp-groups-XXXXXX", own[64];
static struct job_groups groups;
static struct fsdp_err err;
static char path[JOB_GROUP_PATH_BYTES], text[256];

/* A file of a tree that is no real one. */
static void put(const char *name, const char *value)
{
    char file[256];
    FILE *out;

    snprintf(file, sizeof file, "%s/%s", root, name);
    for (char *slash = file + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        mkdir(file, 0755);
        *slash = '/';
    }
    out = fopen(file, "w");
    cr_assert(out != NULL);
    fputs(value, out);
    fclose(out);
}

static const char *in(const char *name)
{
    small_file_read(text, sizeof text, "%s/%s", root, name);
    return text;
}

static void make_root(void)
{
    cr_assert(mkdtemp(root) != NULL);
    snprintf(own, sizeof own, "%s/own", root);
}

static void remove_root(void)
{
    char command[128];

    snprintf(command, sizeof command, "rm -rf %s", root);
    cr_assert(system(command) == 0);
}

TestSuite(job_group, .init = make_root, .fini = remove_root);

static enum fsdp_status begin(const char *own_text)
{
    put("own", own_text);
    return job_groups_begin(&groups, own, root, &err);
}

Test(job_group, a_tree_of_version_2_is_found_and_the_daemon_moves_below_its_own_group)
{
    static const char *const tops[] = { "a.slice/b.service", "unified/a.slice/b.service" };
    char name[128];

    for (size_t i = 0; i < 2; i++) {
        snprintf(name, sizeof name, "%s/cgroup.controllers", tops[i]);
        put(name, "memory pids\n");
        snprintf(name, sizeof name, "%s/cgroup.subtree_control", tops[i]);
        put(name, "");
        snprintf(name, sizeof name, "%s/agent/cgroup.procs", tops[i]);
        put(name, "");
        cr_assert(eq(int, begin("3:memory:/x\n0::/a.slice/b.service\n"), FSDP_OK), "%s", err.message);
        cr_assert(eq(str, (char *)in(name), "0"));
        snprintf(name, sizeof name, "%s/cgroup.subtree_control", tops[i]);
        cr_assert(eq(str, (char *)in(name), "+memory"));
        remove_root();
        mkdir(root, 0755);
    }
}

Test(job_group, without_version_2_or_the_right_to_change_it_there_are_none)
{
    cr_assert(eq(int, begin("3:memory:/x\n1:name=systemd:/y\n"), FSDP_ERR_IO));
    cr_assert(eq(str, groups.folder, ""));
    cr_assert(eq(int, begin("0::/absent\n"), FSDP_ERR_IO));
    put("there/cgroup.controllers", "");
    cr_assert(eq(int, begin("0::/there\n"), FSDP_ERR_IO), "the new group has no cgroup.procs");
    cr_assert(eq(str, groups.folder, ""));
}

Test(job_group, a_limit_is_written_or_the_job_is_refused)
{
    put("s/cgroup.controllers", "");
    put("s/agent/cgroup.procs", "");
    cr_assert(eq(int, begin("0::/s\n"), FSDP_OK));
    put("s/job-1/memory.max", "max\n");
    cr_assert(eq(uint, job_group_make(&groups, INT64_C(64) << 30, path, &err), 1));
    cr_assert(eq(str, (char *)in("s/job-1/memory.max"), "68719476736"));
    cr_assert(strcmp(path + strlen(root), "/s/job-1") == 0);
    cr_assert(eq(uint, job_group_make(&groups, 4096, path, &err), 0), "there is no memory.max");
    cr_assert(strstr(err.message, "job_memory_max cannot be kept here") != NULL);
    cr_assert(access(path, F_OK) < 0 && errno == ENOENT, "nothing of it stays");
    cr_assert(eq(uint, job_group_make(&groups, 0, path, &err), 2));
    cr_assert(job_group_end(&groups, 2) && access(path, F_OK) < 0);
    cr_assert(job_group_end(&groups, 0) && job_group_end(&groups, 7), "what is not there is removed");
}

/*
 * In a group of our own in the real tree. Its first process makes the group of a job, with a process that
 * hangs.
 */
static int use_real_groups(const char *group)
{
    int up[2], status;
    pid_t job;
    char byte;

    put("own", group);
    if (job_groups_begin(&groups, own, "/sys/fs/cgroup", &err) != FSDP_OK)
        return 1;
    if (job_group_make(&groups, 0, path, &err) != 1 || pipe(up) < 0)
        return 2;
    job = fork();
    if (job == 0) {
        if (job_group_enter(path) && write(up[1], "u", 1) == 1)
            pause();
        _exit(0);
    }
    if (read(up[0], &byte, 1) != 1)
        return 3;
    if (!small_file_read(text, sizeof text, "%s/cgroup.procs", path) || atoi(text) != job)
        return 4;
    for (const int64_t deadline = clock_now_ms() + 60000; !job_group_end(&groups, 1);)
        if (clock_now_ms() > deadline)
            return 5;
    if (access(path, F_OK) == 0 || waitpid(job, &status, 0) != job || !WIFSIGNALED(status) ||
        WTERMSIG(status) != SIGKILL)
        return 6;
    return 0;
}

Test(job_group, what_is_left_in_a_job_s_group_is_killed_with_it, .timeout = 120)
{
    const char *top =
        access("/sys/fs/cgroup/unified", F_OK) == 0 ? "/sys/fs/cgroup/unified" : "/sys/fs/cgroup";
    char folder[128], name[160], group[64];
    int status;
    pid_t first;

    snprintf(group, sizeof group, "0::/fsdp-groups-%d\n", (int)getpid());
    snprintf(folder, sizeof folder, "%s/fsdp-groups-%d", top, (int)getpid());
    snprintf(name, sizeof name, "%s/cgroup.kill", folder);
    if (mkdir(folder, 0755) < 0)
        cr_skip_test("needs a tree of version 2 that this user may change");
    if (access(name, W_OK) < 0) {
        rmdir(folder);
        cr_skip_test("needs cgroup.kill (Linux 5.14)");
    }
    first = fork();
    if (first == 0)
        _exit(use_real_groups(group));
    cr_assert(waitpid(first, &status, 0) == first);
    snprintf(name, sizeof name, "%s/job-1", folder);
    rmdir(name);
    snprintf(name, sizeof name, "%s/agent", folder);
    rmdir(name);
    cr_assert(rmdir(folder) == 0, "a process is left in it");
    cr_assert(eq(int, status, 0), "see use_real_groups()");
}

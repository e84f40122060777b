#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/desk/registry.h"
#include "tests/unit/agent/scratch.h"

static struct registry_list list;
static struct fsdp_err err;
static int listen_fd;

static void begin(void)
{
    scratch_make();
    setenv("XDG_RUNTIME_DIR", scratch, 1);
    setenv("TMPDIR", scratch, 1);
}

static void end(void)
{
    registry_list_fini(&list);
    scratch_remove();
}

TestSuite(registry, .init = begin, .fini = end, .timeout = 60);

static struct registry_job job_named(const char *id, const char *name, double started_s)
{
    struct registry_job job = { .pid = getpid(), .started_s = started_s };

    snprintf(job.id, sizeof job.id, "%s", id);
    snprintf(job.name, sizeof job.name, "%s", name);
    snprintf(job.run_dir, sizeof job.run_dir, "/runs/%s", name);
    return job;
}

/* Another process that enters a job. The registry of one process has no lock against itself. */
static pid_t other_enters_job(const struct registry_job *job)
{
    int ready[2];
    pid_t pid;
    char byte;

    cr_assert_eq(pipe(ready), 0);
    pid = fork();
    if (pid == 0) {
        struct registry_entry *own;
        int fd;

        if (registry_enter(&own, job, &fd, NULL) != FSDP_OK)
            _exit(1);
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    close(ready[1]);
    cr_assert_eq(read(ready[0], &byte, 1), 1, "the other process did not enter");
    close(ready[0]);
    return pid;
}

static pid_t other_enters(const char *id, const char *name, double started_s)
{
    const struct registry_job job = job_named(id, name, started_s);

    return other_enters_job(&job);
}

static void kill_other(pid_t pid)
{
    kill(pid, SIGKILL);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

static int n_files(const char *path)
{
    DIR *files = opendir(path);
    int n = 0;

    while (files != NULL && readdir(files) != NULL)
        n++;
    if (files != NULL)
        closedir(files);
    return files == NULL ? -1 : n - 2;
}

Test(registry, without_a_folder_is_empty_and_makes_none)
{
    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));

    cr_assert(eq(sz, list.n, 0));
    cr_assert(eq(int, n_files(scratch), 0));
}

Test(registry, lists_the_runs_of_other_processes_oldest_first)
{
    const pid_t young = other_enters("12", "young", 200), old = other_enters("7", "old\n\"\x01", 100);

    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));

    cr_assert(eq(sz, list.n, 2));
    cr_assert(eq(str, list.jobs[0].id, "7"));
    cr_assert(eq(str, list.jobs[0].name, "old\n\"\x01"));
    cr_assert(eq(str, list.jobs[1].run_dir, "/runs/young"));
    cr_assert(eq(dbl, list.jobs[1].started_s, 200));
    kill_other(young);
    kill_other(old);
}

Test(registry, sweeps_what_a_killed_run_has_left)
{
    const pid_t stays = other_enters("1", "stays", 1), dies = other_enters("2", "dies", 2);

    kill_other(dies);
    cr_assert(eq(int, n_files(scratch_path("fsdprun")), 4));

    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));

    cr_assert(eq(sz, list.n, 1));
    cr_assert(eq(str, list.jobs[0].name, "stays"));
    cr_assert(eq(int, n_files(scratch_path("fsdprun")), 2));
    kill_other(stays);
}

/* A killed run has left its entry and its socket. The process id comes again; its entry is another file. */
/* A run whose directory is `scratch`, which is there, is killed. */
static void lose_one(const char *id)
{
    struct registry_job job = job_named(id, "lost", 1);
    pid_t pid;

    snprintf(job.run_dir, sizeof job.run_dir, "%s", scratch);
    pid = other_enters_job(&job);
    kill_other(pid);
}

Test(registry, says_where_a_killed_run_has_left_its_files)
{
    lose_one("17");

    for (int i = 0; i < 3; i++) { /* whoever reads first takes it from no other reader */
        cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));
        cr_assert(eq(sz, list.n, 0));
        cr_assert(eq(sz, list.n_lost, 1));
        cr_assert(eq(str, list.lost[0].id, "17"));
        cr_assert(eq(str, list.lost[0].run_dir, scratch));
        registry_list_fini(&list);
    }
}

Test(registry, forgets_killed_runs_beyond_its_bound)
{
    for (int i = 0; i < REGISTRY_LOST + 3; i++) {
        char id[12];

        snprintf(id, sizeof id, "%d", i + 1);
        lose_one(id);
    }

    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));

    cr_assert(eq(sz, list.n_lost, REGISTRY_LOST));
    registry_list_fini(&list);
    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));
    cr_assert(eq(sz, list.n_lost, REGISTRY_LOST));
}

Test(registry, an_id_that_comes_again_is_not_swept_with_the_dead_one)
{
    kill_other(other_enters("5", "dead", 1));
    const pid_t again = other_enters("5", "again", 2);

    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));

    cr_assert(eq(sz, list.n, 1));
    cr_assert(eq(str, list.jobs[0].name, "again"));
    const int fd = registry_connect(&list, &list.jobs[0]);
    cr_assert(ge(int, fd, 0));
    close(fd);
    kill_other(again);
}

Test(registry, an_entry_goes_with_its_run_and_the_folder_with_the_last)
{
    const struct registry_job one = job_named("1", "one", 1), two = job_named("2", "two", 2);
    struct registry_entry *first, *second;
    int other_fd;

    cr_assert(eq(int, registry_enter(&first, &one, &listen_fd, &err), FSDP_OK), "%s", err.message);
    cr_assert(eq(int, registry_enter(&second, &two, &other_fd, &err), FSDP_OK), "%s", err.message);
    registry_leave(first);
    cr_assert(eq(int, n_files(scratch_path("fsdprun")), 2));
    registry_leave(second);

    cr_assert(eq(int, n_files(scratch), 0));
    close(listen_fd);
    close(other_fd);
}

Test(registry, is_this_users_alone)
{
    const struct registry_job job = job_named("1", "one", 1);
    struct registry_entry *entry;
    struct stat at;

    umask(0);
    cr_assert(eq(int, registry_enter(&entry, &job, &listen_fd, &err), FSDP_OK), "%s", err.message);

    cr_assert_eq(stat(scratch_path("fsdprun"), &at), 0);
    cr_assert(eq(uint, at.st_mode & 07777, 0700));
    registry_leave(entry);
    close(listen_fd);
}

Test(registry, a_long_path_is_no_limit)
{
    const struct registry_job job = job_named("1", "one", 1);
    struct registry_entry *entry;
    char path[400];

    snprintf(path, sizeof path, "%s/%0200d", scratch, 1);
    cr_assert_eq(mkdir(path, 0700), 0);
    setenv("XDG_RUNTIME_DIR", path, 1);

    cr_assert(eq(int, registry_enter(&entry, &job, &listen_fd, &err), FSDP_OK), "%s", err.message);

    registry_leave(entry);
    close(listen_fd);
}

static void refuse(void)
{
    const struct registry_job job = job_named("1", "one", 1);
    struct registry_entry *entry;

    cr_assert(eq(int, registry_enter(&entry, &job, &listen_fd, &err), FSDP_ERR_CONFIG), "%s", err.message);
    cr_assert_null(entry);
    cr_assert(eq(int, listen_fd, -1));
    cr_assert(eq(int, registry_read(&list, &err), FSDP_ERR_CONFIG));
}

Test(registry, a_symbolic_link_is_refused)
{
    cr_assert_eq(mkdir(scratch_path("elsewhere"), 0700), 0);
    cr_assert_eq(symlink("elsewhere", scratch_path("fsdprun")), 0);

    refuse();

    cr_assert(eq(int, n_files(scratch_path("elsewhere")), 0));
}

Test(registry, a_folder_that_others_may_enter_is_refused)
{
    cr_assert_eq(mkdir(scratch_path("fsdprun"), 0700), 0);
    cr_assert_eq(chmod(scratch_path("fsdprun"), 0750), 0);

    refuse();
}

Test(registry, a_file_in_its_place_is_refused)
{
    fclose(fopen(scratch_path("fsdprun"), "w"));

    refuse();
}

Test(registry, a_folder_that_is_refused_does_not_hide_the_other_one)
{
    unsetenv("XDG_RUNTIME_DIR");
    const pid_t other = other_enters("1", "one", 1);
    setenv("XDG_RUNTIME_DIR", scratch, 1);
    cr_assert_eq(symlink("elsewhere", scratch_path("fsdprun")), 0);

    cr_assert(eq(int, registry_read(&list, &err), FSDP_ERR_CONFIG));

    cr_assert_not_null(strstr(err.message, "symbolic link"));
    cr_assert(eq(sz, list.n, 1));
    cr_assert(eq(str, list.jobs[0].name, "one"));
    kill_other(other);
}

Test(registry, without_a_runtime_directory_it_is_below_the_temporary_one)
{
    char want[64];

    unsetenv("XDG_RUNTIME_DIR");
    snprintf(want, sizeof want, "fsdprun-%u", geteuid());
    const pid_t other = other_enters("1", "one", 1);
    setenv("XDG_RUNTIME_DIR", scratch, 1);

    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK)); /* a reader with another environment finds it */

    cr_assert(eq(sz, list.n, 1));
    cr_assert(eq(int, n_files(scratch_path("%s", want)), 2));
    kill_other(other);
}

/* What stands there although no run has put it there is neither read nor followed nor waited for. */
Test(registry, links_pipes_and_garbage_are_ignored)
{
    const pid_t other = other_enters("1", "one", 1);

    cr_assert_eq(symlink("/etc/passwd", scratch_path("fsdprun/8.00000001.json")), 0);
    cr_assert_eq(mkfifo(scratch_path("fsdprun/8.00000002.json"), 0600), 0);
    cr_assert_eq(mkdir(scratch_path("fsdprun/8.00000003.json"), 0700), 0);
    fclose(fopen(scratch_path("fsdprun/%0100d.json", 4), "w"));
    fclose(fopen(scratch_path("fsdprun/notes.txt"), "w"));

    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));

    cr_assert(eq(sz, list.n, 1));
    cr_assert(eq(str, list.jobs[0].name, "one"));
    kill_other(other);
}

/* Runs begin and end at the same time, each possibly with the last entry of the folder. */
Test(registry, the_folder_may_go_and_come_at_any_time)
{
    enum { N = 8, TIMES = 50 };
    int status;

    for (int i = 0; i < N; i++)
        if (fork() == 0) {
            for (int k = 0; k < TIMES; k++) {
                const struct registry_job job = job_named("1", "one", 1);
                struct registry_entry *entry;
                int fd;

                if (registry_enter(&entry, &job, &fd, &err) != FSDP_OK) {
                    fprintf(stderr, "%s\n", err.message);
                    _exit(1);
                }
                close(fd);
                registry_leave(entry);
            }
            _exit(0);
        }
    for (int i = 0; i < N; i++) {
        cr_assert(gt(int, wait(&status), 0));
        cr_assert(eq(int, status, 0));
    }

    cr_assert(eq(int, n_files(scratch), 0));
}

Test(registry, a_job_of_an_agent_is_found_by_its_environment_and_its_process)
{
    char other[sizeof scratch + 16];
    struct registry_job job = job_named("", "far", 1);
    pid_t pids[2];
    int fd;

    cr_assert(snprintf(other, sizeof other, "%s/other", scratch) > 0);
    cr_assert_eq(mkdir(other, 0700), 0);
    setenv("XDG_RUNTIME_DIR", other, 1);
    for (int i = 0; i < 2; i++) { /* both enter that folder; an agent names only the first */
        job.pid = i + 1;
        snprintf(job.id, sizeof job.id, "%d", (int)job.pid);
        pids[i] = other_enters_job(&job);
    }
    setenv("XDG_RUNTIME_DIR", scratch, 1);
    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK));
    cr_assert(eq(sz, list.n, 0));

    for (int i = 0; i < 2; i++) /* the second time it is there already */
        cr_assert(eq(int, registry_add(&list, geteuid(), 1, other, "", &err), FSDP_OK));
    cr_assert(eq(sz, list.n, 1));
    cr_assert(eq(str, list.jobs[0].id, "1"));
    fd = registry_connect(&list, &list.jobs[0]);
    cr_expect(fd >= 0);
    close(fd);
    cr_assert(eq(int, registry_add(&list, geteuid(), 3, "/nowhere", other, &err), FSDP_OK));
    cr_assert(eq(sz, list.n, 1));

    kill_other(pids[0]); /* its entry stays: only a reader of one's own registry removes it */
    registry_list_fini(&list);
    cr_assert(eq(int, registry_add(&list, geteuid(), 1, other, "", &err), FSDP_OK));
    cr_assert(eq(sz, list.n, 0));
    snprintf(other + strlen(other), 9, "/fsdprun");
    cr_assert(eq(int, n_files(other), 4));
    kill_other(pids[1]);
}

/* What a job takes in place of such a TMPDIR, its readers take too. */
Test(registry, a_job_with_a_relative_temporary_folder_is_found_from_every_directory)
{
    struct registry_job job = job_named("", "one", 1);
    pid_t other;

    snprintf(job.id, sizeof job.id, "%d", (int)job.pid);
    unsetenv("XDG_RUNTIME_DIR");
    cr_assert_eq(mkdir(scratch_path("below"), 0700), 0);
    cr_assert_eq(chdir(scratch), 0);
    setenv("TMPDIR", "below", 1);
    other = other_enters_job(&job);
    cr_assert_eq(chdir("/"), 0);

    cr_assert(eq(int, registry_add(&list, geteuid(), getpid(), "", "below", &err), FSDP_OK));
    cr_assert(eq(sz, list.n, 1));
    registry_list_fini(&list);
    cr_assert(eq(int, registry_add(&list, geteuid(), getpid(), "", "", &err), FSDP_OK));
    cr_assert(eq(sz, list.n, 1));

    cr_assert(eq(int, n_files(scratch_path("below")), 0));
    registry_list_fini(&list);
    kill_other(other);
    setenv("XDG_RUNTIME_DIR", scratch, 1);
    cr_assert(eq(int, registry_read(&list, &err), FSDP_OK)); /* removes what was left in /tmp */
}

Test(registry, of_another_user_only_what_that_user_owns_counts)
{
    const pid_t other = other_enters("1", "one", 1);

    /* the folder is ours: as that of another user it is refused, wherever the agent says that it is */
    cr_assert(eq(int, registry_add(&list, geteuid() + 1, getpid(), "", scratch, &err), FSDP_OK));
    cr_assert(eq(sz, list.n, 0));
    char folder[sizeof scratch + 32];
    snprintf(folder, sizeof folder, "%s/fsdprun-%u", scratch, geteuid() + 1);
    cr_assert_eq(mkdir(folder, 0700), 0);
    cr_assert(eq(int, registry_add(&list, geteuid() + 1, getpid(), "", scratch, &err), FSDP_ERR_CONFIG));
    cr_assert_not_null(strstr(err.message, "must be of user"));
    kill_other(other);
}

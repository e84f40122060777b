#include "agent/os/os.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "tests/unit/agent/scratch.h"

static struct os_baseline baseline;
static struct os_spawn spawn; /* what is asked for, and what came of it */
static struct os_child child;
static struct os_spawn_failure failure;

static void request(const char *path, char *const *argv)
{
    static char *const nothing[] = { NULL };

    os_baseline_capture(&baseline);
    spawn = (struct os_spawn){ .path = path,
                               .argv = argv,
                               .envp = nothing,
                               .stdio = { 0, 1, 2 },
                               .keep_fds = { -1, -1, -1, -1 },
                               .baseline = &baseline };
}

/* A shell with this script, and `word` as its $0. */
static void request_shell(const char *script, const char *word)
{
    static char *argv[5] = { "sh", "-c" };

    argv[2] = (char *)(uintptr_t)script;
    argv[3] = (char *)(uintptr_t)word;
    request("/bin/sh", argv);
}

static bool start(void)
{
    return agent_os_linux.spawn(NULL, &spawn, &child, &failure);
}

static void is_refused(const char *call, int error)
{
    cr_expect_not(start());
    cr_expect(failure.exec == (strcmp(call, "execve") == 0) && failure.error == error &&
                  strcmp(failure.call, call) == 0,
              "%s: %s", failure.call, strerror(failure.error));
}

/* The child has ended in this way. */
static void ended(int code, int status)
{
    struct pollfd p = { .fd = child.pidfd, .events = POLLIN };
    siginfo_t info;

    cr_assert_eq(poll(&p, 1, 200000), 1);
    cr_assert(agent_os_linux.reap(NULL, &child, &info));
    close(child.pidfd);
    cr_expect(info.si_pid == child.pid && info.si_status == status &&
                  (info.si_code == code || (code == CLD_KILLED && info.si_code == CLD_DUMPED)),
              "code %d, status %d", info.si_code, info.si_status);
}

TestSuite(os, .timeout = 300);

Test(os, a_child_runs_and_its_exit_is_seen_by_pidfd)
{
    request_shell("exit 7", NULL);
    cr_assert(start());
    ended(CLD_EXITED, 7);
}

Test(os, reap_never_waits_and_kill_reaches_the_group)
{
    siginfo_t info;

    request_shell("sleep 100 & wait", NULL);
    cr_assert(start());
    cr_expect_not(agent_os_linux.reap(NULL, &child, &info));
    cr_expect_eq(getsid(child.pid), child.pid);
    cr_expect_eq(agent_os_linux.kill_group(NULL, &child, SIGKILL), 0);
    ended(CLD_KILLED, SIGKILL);
}

Test(os, a_child_ignores_the_signals_named_and_ends_by_others)
{
    request_shell("kill -TERM $$; kill -USR2 $$; kill -USR1 $$; exit 7", NULL);
    spawn.ignored = UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGUSR2;
    cr_assert(start());
    ended(CLD_KILLED, SIGUSR1);
}

Test(os, what_exec_refuses_comes_back_as_its_errno_and_nothing_is_left)
{
    char *argv[] = { "x", NULL };

    child = (struct os_child){ .pid = -5, .pidfd = -6 };
    request("/no/such/file", argv);
    is_refused("execve", ENOENT);
    cr_expect(child.pid == -5 && child.pidfd == -6, "untouched");
    cr_expect(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    request("/etc/passwd", argv);
    is_refused("execve", EACCES);
    request("/bin/sh", argv);
    spawn.directory = "/no/such/directory";
    is_refused("chdir", ENOENT);
}

Test(os, standard_descriptors_may_stand_on_each_others_numbers)
{
    char text[16] = { 0 };
    int out[2], err[2], saved[2] = { dup(1), dup(2) };

    request_shell("echo out; echo err >&2", NULL);
    cr_assert(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    fflush(NULL);
    dup2(err[1], 1); /* 1 is what the child's stderr is to be, and 2 its stdout */
    dup2(out[1], 2);
    spawn.stdio[1] = 2;
    spawn.stdio[2] = 1;
    const bool started = start();
    dup2(saved[0], 1);
    dup2(saved[1], 2);
    cr_assert(started);
    ended(CLD_EXITED, 0);
    cr_expect_eq(read(out[0], text, sizeof text), 4);
    cr_expect_str_eq(text, "out\n");
    cr_expect_eq(read(err[0], text, sizeof text), 4);
    cr_expect_str_eq(text, "err\n");
}

/* A file of the scratch folder. */
static void make_file(const char *name, mode_t mode)
{
    close(open(scratch_path("%s", name), O_WRONLY | O_CREAT, mode));
}

/* `want` NULL: any path will do, or, with an error, none. */
static void finds(const char *name, const char *list, int error, const char *want)
{
    char path[4096] = "";

    cr_expect_eq(os_find_program(name, list, path, sizeof path), error, "%s", name);
    if (want != NULL)
        cr_expect_str_eq(path, want);
}

Test(os, programs_are_found_as_exec_would, .init = scratch_make, .fini = scratch_remove)
{
    char list[128];

    make_file("tool", 0644);
    snprintf(list, sizeof list, "/nowhere:%s:/bin", scratch);

    finds("sh", list, 0, "/bin/sh");
    finds("tool", list, EACCES, NULL);
    finds("nothing-of-that-name", list, ENOENT, NULL);
    finds("", list, ENOENT, NULL);
    finds(scratch, list, EACCES, NULL); /* a directory is no program */
    chmod(scratch_path("tool"), 0755);
    finds("tool", list, 0, scratch_path("tool"));
    finds("./tool", "/bin", ENOENT, NULL);
    cr_assert_eq(chdir(scratch), 0);
    finds("./tool", "/bin", 0, NULL);
    finds("sh", NULL, 0, NULL);
}

/* What a script must be, system/test_job_file.sh looks at. */
Test(os, a_script_is_looked_for_in_the_workers_directory, .init = scratch_make, .fini = scratch_remove)
{
    make_file("x.py", 0600);
    cr_expect_eq(os_check_script(scratch_path("x.py")), 0);
    cr_expect_eq(os_check_script("x.py"), ENOENT);
    cr_assert_eq(chdir(scratch), 0);
    cr_expect_eq(os_check_script("x.py"), 0);
    cr_expect_eq(os_check_script("/dev/stdin"), 0, "it need not be a regular file");
}

Test(os, descendants_are_ended_but_the_excepted)
{
    pid_t spared, other;

    /* as the agent is: a process that is forked while its parent is killed is then a child of this one */
    cr_assert_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    spared = fork();
    if (spared == 0)
        for (;;)
            pause();
    other = fork();
    if (other == 0) {
        prctl(PR_SET_NAME, "a) Z 1 (b"); /* as much as it looks like a zombie's line of /proc/PID/stat */
        setsid();
        (void)!fork();
        for (;;)
            pause();
    }
    pid_t children[4];
    cr_expect_eq(descendants_children(children, 4), 2);
    cr_expect_eq(descendants_end(10000, &spared, 1), 0);
    cr_expect_eq(kill(spared, 0), 0);
    cr_expect(kill(other, 0) < 0 && errno == ESRCH);
    cr_expect_eq(descendants_end(10000, NULL, 0), 0);
    cr_expect(kill(spared, 0) < 0 && errno == ESRCH);
}

Test(os, a_child_that_is_bound_to_no_cpu_of_this_machine_is_not_started)
{
    struct cpu_mask one = { { 0 } };

    /* Nothing runs on CPUs that are not there, and the call that said so is named. */
    request_shell("exit 0", NULL);
    cpu_mask_add(&one, CPU_MASK_CPUS - 1);
    spawn.cpus = &one;
    is_refused("sched_setaffinity", EINVAL);
}

/* A copy of the shell whose exec waits until the lease is given back, or the kernel's 45 s are over. */
static int make_slow_shell(const char *script)
{
    static char *argv[] = { "sh", "-c", NULL, NULL };
    char path[4096];
    int fd;

    scratch_make();
    snprintf(path, sizeof path, "cp /bin/sh %s", scratch_path("slow"));
    cr_assert_eq(system(path), 0);
    signal(SIGIO, SIG_IGN);
    fd = open(scratch_path("slow"), O_RDONLY | O_CLOEXEC);
    if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0)
        cr_skip_test("the file system of %s has no leases", scratch);
    argv[2] = (char *)(uintptr_t)script;
    request(strdup(scratch_path("slow")), argv);
    return fd;
}

/* The start does not wait for the exec. Returns what shows its end. */
static int start_unwaited(void)
{
    int exec_fd = -1;

    spawn.exec_fd = &exec_fd;
    cr_assert(start() && exec_fd >= 0);
    return exec_fd;
}

static enum os_exec exec_over(int exec_fd)
{
    struct pollfd p = { .fd = exec_fd, .events = POLLIN };

    cr_assert_eq(poll(&p, 1, 200000), 1);
    return agent_os_linux.executed(NULL, exec_fd, &failure);
}

Test(os, a_start_need_not_wait_for_its_exec_and_holds_nothing_of_ours_meanwhile, .fini = scratch_remove)
{
    const int lease = make_slow_shell("exit 7");
    struct pollfd end = { .events = POLLIN };
    int ends[2], exec_fd;
    char byte;

    cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
    exec_fd = start_unwaited();
    cr_expect_eq(agent_os_linux.executed(NULL, exec_fd, &failure), OS_EXEC_PENDING);
    close(ends[1]);
    end.fd = ends[0];
    cr_expect(poll(&end, 1, 30000) == 1 && read(ends[0], &byte, 1) == 0, "the child holds the pipe open");
    cr_expect_eq(agent_os_linux.executed(NULL, exec_fd, &failure), OS_EXEC_PENDING);
    close(lease);
    cr_expect_eq(exec_over(exec_fd), OS_EXEC_DONE);
    ended(CLD_EXITED, 7);
}

/* From now on dup2() of this process and its children waits. Returns what is readable once one waits. */
static int hold_up_dup2(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
#ifdef SYS_dup2
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_dup2, 1, 0),
#endif
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_dup3, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof filter / sizeof *filter, filter };
    int fd;

    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    fd = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
    if (fd < 0)
        cr_skip_test("no system call can be held up here: %s", strerror(errno));
    return fd;
}

static bool is_readable(int fd, int within_ms)
{
    struct pollfd p = { .fd = fd, .events = POLLIN };

    return poll(&p, 1, within_ms) == 1;
}

/* As where a standard descriptor of ours is a file on a disk that does not answer: dup2() closes it. */
Test(os, a_child_that_hangs_before_its_exec_has_closed_our_sockets_and_our_lock)
{
    const int held = hold_up_dup2(), later = memfd_create("lock", MFD_CLOEXEC);
    char path[64];
    int ours[2], its[2];

    request_shell("exit 7", NULL);
    snprintf(path, sizeof path, "/proc/self/fd/%d", later);
    spawn.lock_fd = open(path, O_RDWR | O_CLOEXEC); /* as another process opens it */
    cr_assert_eq(flock(spawn.lock_fd, LOCK_EX), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ours), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, its), 0);
    spawn.stdio[1] = open("/dev/null", O_WRONLY | O_CLOEXEC);
    spawn.keep_fds[0] = its[1];
    start_unwaited();
    cr_assert(is_readable(held, 30000), "the child calls dup2()");

    close(ours[1]);
    close(its[1]);
    cr_expect(is_readable(ours[0], 0), "its other end is closed everywhere");
    cr_expect_not(is_readable(its[0], 0), "the child has this one");
    cr_expect_neq(flock(later, LOCK_EX | LOCK_NB), 0, "we hold it");
    close(spawn.lock_fd);
    cr_expect_eq(flock(later, LOCK_EX | LOCK_NB), 0, "and the child does not: %s", strerror(errno));
    close(later);
    cr_expect_eq(agent_os_linux.kill_group(NULL, &child, SIGKILL), 0);
    ended(CLD_KILLED, SIGKILL);
}

Test(os, a_child_that_waits_for_its_exec_can_be_killed_at_any_time, .fini = scratch_remove)
{
    make_slow_shell("exit 7");
    for (int i = 0; i < 20; i++) {
        const int exec_fd = start_unwaited();

        cr_expect_eq(agent_os_linux.kill_group(NULL, &child, SIGKILL), 0);
        ended(CLD_KILLED, SIGKILL);
        cr_expect_eq(exec_over(exec_fd), OS_EXEC_DONE, "no call has failed");
        close(exec_fd);
    }
}

Test(os, an_exec_that_was_not_waited_for_reports_its_errno)
{
    char *argv[] = { "x", NULL };
    int exec_fd;

    request("/etc/passwd", argv);
    exec_fd = start_unwaited();
    cr_expect_eq(exec_over(exec_fd), OS_EXEC_FAILED);
    cr_expect(failure.exec && failure.error == EACCES);
    ended(CLD_EXITED, 127);
}

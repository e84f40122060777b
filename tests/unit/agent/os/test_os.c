#include "agent/os/os.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "agent/placement/cpus.h"

static struct os_baseline baseline;

static struct os_spawn request(const char *path, char *const *argv)
{
    static char *const nothing[] = { NULL };

    os_baseline_capture(&baseline);
    return (struct os_spawn){ .path = path,
                              .argv = argv,
                              .envp = nothing,
                              .stdio = { 0, 1, 2 },
                              .keep_fds = { -1, -1 },
                              .baseline = &baseline };
}

static siginfo_t wait_for(const struct os_child *child)
{
    struct pollfd p = { .fd = child->pidfd, .events = POLLIN };
    siginfo_t info;

    cr_assert_eq(poll(&p, 1, 200000), 1);
    cr_assert(agent_os_linux.reap(NULL, child, &info));
    close(child->pidfd);
    return info;
}

Test(os, a_child_runs_and_its_exit_is_seen_by_pidfd, .timeout = 300)
{
    char *argv[] = { "sh", "-c", "exit 7", NULL };
    struct os_spawn spawn = request("/bin/sh", argv);
    struct os_child child;
    struct os_spawn_failure failure;
    siginfo_t info;

    cr_assert(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
    info = wait_for(&child);
    cr_expect(info.si_pid == child.pid && info.si_code == CLD_EXITED && info.si_status == 7);
}

Test(os, reap_never_waits_and_kill_reaches_the_group, .timeout = 300)
{
    char *argv[] = { "sh", "-c", "sleep 100 & wait", NULL };
    struct os_spawn spawn = request("/bin/sh", argv);
    struct os_child child;
    struct os_spawn_failure failure;
    siginfo_t info;

    cr_assert(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
    cr_expect_not(agent_os_linux.reap(NULL, &child, &info));
    cr_expect_eq(getsid(child.pid), child.pid);
    cr_expect_eq(agent_os_linux.kill_group(NULL, &child, SIGKILL), 0);
    info = wait_for(&child);
    cr_expect(info.si_code == CLD_KILLED && info.si_status == SIGKILL);
}

Test(os, a_child_ignores_the_signals_named_and_ends_by_others, .timeout = 300)
{
    char *argv[] = { "sh", "-c", "kill -TERM $$; kill -USR2 $$; kill -USR1 $$; exit 7", NULL };
    struct os_spawn spawn = request("/bin/sh", argv);
    struct os_child child;
    struct os_spawn_failure failure;
    siginfo_t info;

    spawn.ignored = UINT64_C(1) << SIGTERM | UINT64_C(1) << SIGUSR2;
    cr_assert(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
    info = wait_for(&child);
    cr_expect((info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED) && info.si_status == SIGUSR1);
}

Test(os, what_exec_refuses_comes_back_as_its_errno_and_nothing_is_left, .timeout = 300)
{
    char *argv[] = { "x", NULL };
    struct os_spawn spawn = request("/no/such/file", argv);
    struct os_child child = { .pid = -5, .pidfd = -6 };
    struct os_spawn_failure failure;

    cr_expect_not(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
    cr_expect(failure.exec && failure.error == ENOENT && strcmp(failure.call, "execve") == 0);
    cr_expect(child.pid == -5 && child.pidfd == -6, "untouched");
    cr_expect(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
    spawn = request("/etc/passwd", argv);
    cr_expect_not(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
    cr_expect(failure.exec && failure.error == EACCES);
    spawn = request("/bin/sh", argv);
    spawn.directory = "/no/such/directory";
    cr_expect_not(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
    cr_expect(!failure.exec && failure.error == ENOENT && strcmp(failure.call, "chdir") == 0);
}

Test(os, standard_descriptors_may_stand_on_each_others_numbers, .timeout = 300)
{
    char *argv[] = { "sh", "-c", "echo out; echo err >&2", NULL };
    struct os_spawn spawn = request("/bin/sh", argv);
    struct os_child child;
    struct os_spawn_failure failure;
    char text[16] = { 0 };
    int out[2], err[2], saved[2] = { dup(1), dup(2) };

    cr_assert(pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0);
    fflush(NULL);
    dup2(err[1], 1); /* 1 is what the child's stderr is to be, and 2 its stdout */
    dup2(out[1], 2);
    spawn.stdio[1] = 2;
    spawn.stdio[2] = 1;
    bool started = agent_os_linux.spawn(NULL, &spawn, &child, &failure);
    dup2(saved[0], 1);
    dup2(saved[1], 2);
    cr_assert(started);
    wait_for(&child);
    cr_expect_eq(read(out[0], text, sizeof text), 4);
    cr_expect_str_eq(text, "out\n");
    cr_expect_eq(read(err[0], text, sizeof text), 4);
    cr_expect_str_eq(text, "err\n");
}

Test(os, programs_are_found_as_exec_would)
{
    char directory[] = "/tmp/fsdp-find-XXXXXX", path[4096], list[128], file[64];

    cr_assert_not_null(mkdtemp(directory));
    snprintf(file, sizeof file, "%s/tool", directory);
    close(open(file, O_WRONLY | O_CREAT, 0644));
    snprintf(list, sizeof list, "/nowhere:%s:/bin", directory);

    cr_expect_eq(os_find_program("sh", list, NULL, path, sizeof path), 0);
    cr_expect_str_eq(path, "/bin/sh");
    cr_expect_eq(os_find_program("tool", list, NULL, path, sizeof path), EACCES);
    cr_expect_eq(os_find_program("nothing-of-that-name", list, NULL, path, sizeof path), ENOENT);
    cr_expect_eq(os_find_program("", list, NULL, path, sizeof path), ENOENT);
    cr_expect_eq(os_find_program(directory, list, NULL, path, sizeof path), EACCES,
                 "a directory is no program");
    chmod(file, 0755);
    cr_expect_eq(os_find_program("tool", list, NULL, path, sizeof path), 0);
    cr_expect_str_eq(path, file);
    cr_expect_eq(os_find_program("./tool", "/bin", directory, path, sizeof path), 0,
                 "from the workers' directory");
    cr_expect_eq(os_find_program("./tool", "/bin", "/", path, sizeof path), ENOENT);
    cr_expect_eq(os_find_program("sh", NULL, NULL, path, sizeof path), 0);
    unlink(file);
    rmdir(directory);
}

Test(os, a_script_is_checked_as_its_interpreter_will_see_it)
{
    char directory[] = "/tmp/fsdp-script-XXXXXX", file[64], package[64], main_file[96];

    cr_assert_not_null(mkdtemp(directory));
    snprintf(file, sizeof file, "%s/x.py", directory);
    snprintf(package, sizeof package, "%s/package", directory);
    snprintf(main_file, sizeof main_file, "%s/__main__.py", package);
    close(open(file, O_WRONLY | O_CREAT, 0600));
    mkdir(package, 0700);

    cr_expect_eq(os_check_script(file, NULL), 0);
    cr_expect_eq(os_check_script("x.py", directory), 0, "from the workers' directory");
    cr_expect_eq(os_check_script("x.py", "/"), ENOENT);
    cr_expect_eq(os_check_script(file, "/"), 0, "an absolute path stands for itself");
    cr_expect_eq(os_check_script("/dev/stdin", NULL), 0, "it need not be a regular file");
    cr_expect_eq(os_check_script(package, NULL), EISDIR);
    close(open(main_file, O_WRONLY | O_CREAT, 0600));
    cr_expect_eq(os_check_script("package", directory), 0, "Python runs a directory with a __main__.py");
    if (geteuid() != 0) {
        chmod(file, 0);
        cr_expect_eq(os_check_script(file, NULL), EACCES);
    }
    unlink(main_file);
    rmdir(package);
    unlink(file);
    rmdir(directory);
}

Test(os, descendants_are_ended_but_the_excepted, .timeout = 300)
{
    pid_t spared = fork(), other;

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

Test(os, a_child_is_bound_to_the_cpus_it_is_given, .timeout = 300)
{
    char *argv[] = { "sh", "-c", "grep Cpus_allowed_list: /proc/self/status | grep -qw \"$0\"", NULL, NULL };
    char text[CPU_MASK_TEXT_BYTES];
    struct cpu_mask allowed, one = { { 0 } };
    struct os_spawn spawn;
    struct os_child child;
    struct os_spawn_failure failure;
    siginfo_t info;

    cpus_allowed(&allowed);
    for (int cpu = cpu_mask_next(&allowed, -1); cpu >= 0; cpu = cpu_mask_next(&allowed, cpu)) {
        memset(&one, 0, sizeof one);
        cpu_mask_add(&one, cpu);
        argv[3] = cpu_mask_text(&one, text);
        spawn = request("/bin/sh", argv);
        spawn.cpus = &one;
        cr_assert(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
        info = wait_for(&child);
        cr_expect(info.si_code == CLD_EXITED && info.si_status == 0, "not on CPU %s alone", text);
    }
    /* Nothing runs on CPUs that are not there, and the call that said so is named. */
    memset(&one, 0, sizeof one);
    cpu_mask_add(&one, CPU_MASK_CPUS - 1);
    cr_expect_not(agent_os_linux.spawn(NULL, &spawn, &child, &failure));
    cr_expect(!failure.exec && failure.error == EINVAL && strcmp(failure.call, "sched_setaffinity") == 0);
}

#include "agent/os/process_look.h"

#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/agent/placement/fake_root.h"

static char root[FAKE_ROOT_BYTES];

static void make(void)
{
    fake_root_make(root);
}

static void clear(void)
{
    fake_root_remove(root);
}

TestSuite(process_look, .init = make, .fini = clear, .timeout = 60);

static void add_thread(int thread, char state, const char *wchan)
{
    char text[128];

    snprintf(text, sizeof text, "%d (a) b) %c 1 1 1", thread, state);
    fake_root_add(root, text, "/7/task/%d/stat", thread);
    fake_root_add(root, wchan, "/7/task/%d/wchan", thread);
}

Test(process_look, a_process_shows_its_call_its_file_its_frames_and_its_threads_by_kind)
{
    struct process_look look;
    char text[128], path[128];

    fake_root_add(root, "7 (x) y) D 1 7 7 0", "/7/stat");
    fake_root_add(root, "folio_wait_bit", "/7/wchan");
    snprintf(text, sizeof text, "%ld 0x3 0x7f00 0x0", (long)SYS_read);
    fake_root_add(root, text, "/7/syscall");
    fake_root_add(root, "[<0>] folio_wait_bit+0x1/0x2\n[<0>] nfs_read [nfs]\nodd\n[<0>] last+0x0/0x1",
                  "/7/stack");
    fake_root_add(root, "", "/7/fd/none");
    snprintf(path, sizeof path, "%s/7/fd/3", root);
    cr_assert_eq(symlink("/data/shard-3", path), 0);
    add_thread(7, 'D', "folio_wait_bit");
    add_thread(8, 'S', "futex_wait_queue");
    add_thread(9, 'R', "0");
    add_thread(10, 'S', "futex_wait_queue");

    process_look(&look, root, 7);

    cr_assert_eq(look.state, 'D');
    cr_assert_str_eq(look.wchan, "folio_wait_bit");
    cr_assert_str_eq(look.syscall, "read");
    cr_assert_str_eq(look.file, "/data/shard-3");
    cr_assert_eq(look.n_frames, 3);
    cr_assert_str_eq(look.frames[1], "nfs_read");
    cr_assert_str_eq(look.frames[2], "last");
    cr_assert_eq(look.n_threads, 4);
    cr_assert_eq(look.n_others, 2);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(look.others[i].count, look.others[i].state == 'S' ? 2 : 1);
}

/*
 * Nothing of these files is ours: a text without an end, a number that is none, more threads than are
 * kept.
 */
Test(process_look, odd_files_give_less_and_never_more_than_fits)
{
    struct process_look look;
    char text[8192];

    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    fake_root_add(root, "7 (x) S 1", "/7/stat");
    fake_root_add(root, text, "/7/wchan");
    fake_root_add(root, "4294967296000 0x3", "/7/syscall");
    fake_root_add(root, text, "/7/stack");
    for (int i = 0; i < PROCESS_LOOK_THREADS + 6; i++) {
        snprintf(text, sizeof text, "wait_%d", i);
        add_thread(100 + i, 'S', text);
    }

    process_look(&look, root, 7);

    cr_assert_eq(look.state, 'S');
    cr_assert_eq(strlen(look.wchan), PROCESS_LOOK_NAME_BYTES - 1);
    cr_assert_eq(look.syscall[0], '#');
    cr_assert_eq(look.n_frames, 0);
    cr_assert_eq(look.n_threads, PROCESS_LOOK_THREADS + 6);
    cr_assert_eq(look.n_others, PROCESS_LOOK_KINDS);
    process_look(&look, root, 8);
    cr_assert_eq(look.state, '?', "there is no such process");
    cr_assert_eq(look.n_threads, 0);
}

/* Each other file may block: a read of syscall or stack waits for a process that is in execve. */
Test(process_look, a_tracer_is_seen_although_other_files_of_the_process_block)
{
    static const char *const blocking[] = { "stat", "wchan", "syscall", "stack", "maps", "cmdline" };
    char path[128];

    fake_root_add(root, "Name:\tx\nState:\tt (tracing stop)\nTracerPid:\t42\nUid:\t0\n", "/7/status");
    fake_root_add(root, "Name:\tx\nTracerPid:\t0\n", "/8/status");
    for (size_t i = 0; i < sizeof blocking / sizeof *blocking; i++) {
        snprintf(path, sizeof path, "%s/7/%s", root, blocking[i]);
        cr_assert_eq(mkfifo(path, 0600), 0);
    }

    cr_expect_eq(process_tracer(root, 7), 42);
    cr_expect_eq(process_tracer(root, 8), 0);
    cr_expect_eq(process_tracer(root, 9), 0, "there is no such process");
}

static void add_delay(int thread, int64_t delay_ns)
{
    char text[64];

    snprintf(text, sizeof text, "1000 %lld 5\n", (long long)delay_ns);
    fake_root_add(root, text, "/7/task/%d/schedstat", thread);
}

/* 32 threads that each waited for a CPU for a tenth of the time did not keep the process from running. */
Test(process_look, a_process_was_delayed_for_as_long_as_its_most_delayed_thread)
{
    enum { N = 32 };
    static const int64_t second = 1000000000;
    struct process_toll before = { 0 }, now = { 0 };

    fake_root_add(root, "7 (x) S 1 7 7 0", "/7/stat");
    for (int i = 0; i < N; i++)
        add_delay(7 + i, i * second);
    process_toll_add(&before, root, 7);
    for (int i = 0; i < N; i++)
        add_delay(7 + i, i * second + second / 10);
    add_delay(8, second + second / 2);
    add_delay(7 + N, 100 * second); /* begun meanwhile: how much of it is new is not known */
    process_toll_add(&now, root, 7);

    cr_expect_eq(before.n_threads, N);
    cr_expect_eq(process_toll_delay(&before, &now), (uint64_t)second / 2);
    cr_expect_eq(process_toll_delay(&now, &now), 0);
    cr_expect_not(now.blocked);
}

Test(process_look, a_stopped_process_of_this_machine_is_seen_as_such)
{
    const pid_t child = fork();
    struct process_look look;
    int status;

    cr_assert_geq(child, 0);
    if (child == 0) {
        raise(SIGSTOP);
        _exit(0);
    }
    cr_assert_eq(waitpid(child, &status, WUNTRACED), child);
    process_look(&look, "/proc", child);
    kill(child, SIGKILL);
    waitpid(child, &status, 0);

    cr_assert_eq(look.state, 'T');
    cr_assert_eq(look.n_threads, 1);
    cr_assert_str_neq(look.syscall, "");
}

Test(process_look, the_time_of_the_main_thread_on_a_cpu)
{
    struct process_toll toll = { 0 };

    fake_root_add(root, "7 (x) D 1", "/7/stat");
    fake_root_add(root, "1000 20 3\n", "/7/task/7/schedstat");
    fake_root_add(root, "5000 300 3\n", "/7/task/8/schedstat");
    fake_root_add(root, "odd\n", "/7/task/9/schedstat");

    process_toll_add(&toll, root, 7);

    cr_expect(toll.blocked);
    cr_expect_eq(toll.run_ns, 1000);
    cr_expect_eq(toll.used_ns, 1000 + 20 + 5000 + 300);
    cr_expect_eq(toll.n_threads, 2);
    toll = (struct process_toll){ 0 };
    process_toll_add(&toll, root, 8);
    cr_expect_eq(toll.run_ns, 0);
}

/* A shell that waits for its Python, which waits for a CPU or in the kernel. */
Test(process_look, a_toll_of_two_processes_is_blocked_by_either_and_delayed_by_the_threads_of_both)
{
    struct process_toll before = { 0 }, now = { 0 };

    fake_root_add(root, "7 (sh) S 1", "/7/stat");
    fake_root_add(root, "10 20 3\n", "/7/task/7/schedstat");
    fake_root_add(root, "8 (python) D 7", "/8/stat");
    fake_root_add(root, "1000 300 3\n", "/8/task/8/schedstat");
    process_toll_add(&before, root, 7);
    cr_expect_not(before.blocked);
    process_toll_add(&before, root, 8);
    cr_expect(before.blocked);
    cr_expect_eq(before.run_ns, 1010);

    fake_root_add(root, "1000 800 3\n", "/8/task/8/schedstat");
    process_toll_add(&now, root, 8);
    process_toll_add(&now, root, 7);
    cr_expect(now.blocked);
    cr_expect_eq(process_toll_delay(&before, &now), 500);
}

/* A process in that state, whose main thread has run for so many milliseconds. */
static void toll_one(struct process_toll *toll, int pid, char state, int run_ms)
{
    char stat[64], schedstat[64];

    snprintf(stat, sizeof stat, "%d (x) %c 1", pid, state);
    fake_root_add(root, stat, "/%d/stat", pid);
    snprintf(schedstat, sizeof schedstat, "%d000000 20 3\n", run_ms);
    fake_root_add(root, schedstat, "/%d/task/%d/schedstat", pid, pid);
    process_toll_add(toll, root, pid);
}

static const struct held_row {
    const char *name, *before, *now; /* the states of processes 7, 8, 9 ... */
    int run_ms[2];                   /* of each */
    pid_t held;
} held_rows[] = {
    { "nothing holds them", "SR", "SR", { 5, 5 }, 0 },
    { "one look in state D", "SS", "SD", { 5, 5 }, 0 },
    { "asleep in the kernel", "SD", "SD", { 5, 6 }, 8 },
    { "two short reads", "SD", "SD", { 5, 300 }, 0 },
    { "each look finds another one", "DS", "SD", { 5, 5 }, 0 },
    { "one of two reads on", "DDS", "SDD", { 5, 5 }, 8 },
    { "it is stopped now", "SD", "ST", { 5, 5 }, 0 },
    { "a stopped one comes first", "DT", "DT", { 5, 5 }, 8 },
    { "by a debugger", "St", "St", { 5, 5 }, 8 },
    { "it is new", "S", "SD", { 5, 5 }, 0 },
    { "more than are kept", "DDDDDDDDDD", "SSSSSSSDDD", { 5, 5 }, 14 },
};

Test(process_look, what_holds_a_process_is_what_two_looks_find_alike)
{
    for (size_t i = 0; i < sizeof held_rows / sizeof *held_rows; i++) {
        const struct held_row *row = &held_rows[i];
        struct process_toll before = { 0 }, now = { 0 };
        const struct process_held *held;

        for (int at = 0; row->before[at] != '\0'; at++)
            toll_one(&before, 7 + at, row->before[at], row->run_ms[0]);
        for (int at = 0; row->now[at] != '\0'; at++)
            toll_one(&now, 7 + at, row->now[at], row->run_ms[1]);
        held = process_toll_held(&before, &now);
        cr_expect_eq(held == NULL ? 0 : held->pid, row->held, "%s: %d", row->name,
                     held == NULL ? 0 : (int)held->pid);
    }
}

Test(process_look, usage_is_of_the_process_and_its_children_that_were_waited_for)
{
    const uint64_t tick_ns = 1000000000 / (uint64_t)sysconf(_SC_CLK_TCK);
    struct process_usage usage = { .cpu_ns = 1, .work = 1, .written_bytes = 1 };

    fake_root_add(root, "7 (x) y) S 1 7 7 0 -1 4194304 10 20 30 40 1 2 3 4 20 0 5 0 999", "/7/stat");
    fake_root_add(root, "rchar: 9\nwchar: 5\nsyscr: 100\nsyscw: 200\nread_bytes: 7\nwrite_bytes: 8\n",
                  "/7/io");
    fake_root_add(root, "8 (x) D 1 7 7 0 -1 4194304 1 0 0 0 1 0 0 0 20 0 5 0 999", "/8/stat");
    fake_root_add(root, "rchar: 9\nwchar: 5\nsyscr: 100\n", "/8/io");
    fake_root_add(root, "9 (x) S 1 7", "/9/stat");
    fake_root_add(root, "syscr: 100\n", "/9/io");
    for (pid_t pid = 7; pid <= 10; pid++)
        process_usage_add(&usage, root, pid);

    cr_assert_eq(usage.cpu_ns, 1 + 11 * tick_ns);
    cr_assert_eq(usage.work, 1 + 100 + 300 + 1,
                 "what a process in state D reads and writes is not asked for");
    cr_assert_eq(usage.written_bytes, 6);
}

Test(process_look, the_signals_that_a_process_handles)
{
    fake_root_add(root, "Name:\tx\nSigIgn:\tffffffffffffffff\nSigCgt:\t0000100000004002\nCapInh:\t0\n",
                  "/7/status");
    fake_root_add(root, "Name:\tx\n", "/8/status");

    cr_expect(process_catches(root, 7, 2));
    cr_expect(process_catches(root, 7, 45));
    cr_expect_not(process_catches(root, 7, 1));
    cr_expect_not(process_catches(root, 8, 2));
    cr_expect_not(process_catches(root, 9, 2));
}

Test(process_look, more_threads_than_are_looked_at_may_run_unseen)
{
    struct process_toll toll = { 0 };
    char path[64];

    for (int i = 0; i < PROCESS_LOOK_THREADS; i++) {
        snprintf(path, sizeof path, "/7/task/%d/schedstat", 100 + i);
        fake_root_add(root, "5000 300 3\n", path);
    }
    process_toll_add(&toll, root, 7);
    cr_expect_eq(toll.n_threads, PROCESS_LOOK_THREADS);
    cr_expect_eq(toll.used_ns, 0);
}

/*
 * The emulation itself: that it runs what is right, and what it says of what is wrong.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/emulation/cases.h"
#include "tests/emulation/emulate.h"
#include "tests/emulation/planted.h"

static const struct {
    enum emulate_order order;
    uint64_t seed;
} schedules[] = { { EMULATE_FORWARD, 0 }, { EMULATE_REVERSE, 0 }, { EMULATE_SEEDED, 7 } };

/* Under how many of the schedules the numbers come out right. */
static int right_schedules(bool barrier)
{
    int n_right = 0;

    for (size_t s = 0; s < 3; s++) {
        float in[64], out[64];
        bool right = true;

        for (int i = 0; i < 64; i++)
            in[i] = (float)(i * i);
        emulate_schedule(schedules[s].order, schedules[s].seed);
        cr_assert_eq(planted_rotate(in, out, barrier), 0);
        for (int i = 0; i < 64; i++)
            right = right && out[i] == in[(i + 1) % 64] + in[(i + 63) % 64];
        n_right += right;
    }
    return n_right;
}

TestSuite(emulate, .fini = cases_end);

Test(emulate, a_barrier_makes_every_schedule_right)
{
    cr_assert_eq(right_schedules(true), 3);
}

Test(emulate, a_missing_barrier_is_caught_by_every_schedule)
{
    cr_assert_eq(right_schedules(false), 0);
}

/* Runs `fault` in a child; its first line on stderr, and whether it died of SIGABRT. */
static bool aborts(void (*fault)(int which), int which, char *line, size_t size)
{
    int ends[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t child;

    cr_assert_eq(pipe(ends), 0);
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        fault(which);
        _exit(0);
    }
    close(ends[1]);
    while (n < size - 1 && (got = read(ends[0], line + n, size - 1 - n)) > 0)
        n += (size_t)got;
    line[n] = '\0';
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
}

static void run_fault(int which)
{
    float out[64];

    (void)planted_fault(out, (enum planted_fault)which);
}

Test(emulate, divergence_ends_the_program_with_kernel_block_and_thread)
{
    static const struct {
        enum planted_fault fault;
        enum emulate_order order;
        const char *what;
    } cases[] = {
        { PLANTED_TWO_BARRIERS, EMULATE_FORWARD, "thread 5: divergent barrier" },
        { PLANTED_TWO_BARRIERS, EMULATE_REVERSE, "thread 5: divergent barrier" },
        { PLANTED_SKIPPED_BARRIER, EMULATE_FORWARD, "thread 40: divergent barrier: ended without it" },
        { PLANTED_SKIPPED_BARRIER, EMULATE_REVERSE, "thread 40: divergent barrier: ended without it" },
        { PLANTED_SKIPPED_SHUFFLE, EMULATE_FORWARD, "thread 16: divergent shuffle: ended without it" },
        { PLANTED_SKIPPED_SHUFFLE, EMULATE_REVERSE, "thread 47: divergent shuffle: another lane has ended" },
        { PLANTED_BARRIER_AND_SHUFFLE, EMULATE_FORWARD, "thread 3: divergent barrier" },
        { PLANTED_BARRIER_AND_SHUFFLE, EMULATE_REVERSE, "thread 35: divergent barrier" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1000];

        emulate_schedule(cases[i].order, 0);
        cr_assert(aborts(run_fault, cases[i].fault, line, sizeof line), "case %zu went on", i);
        cr_assert(strncmp(line, "emulation: kernel diverge block (0,0,0) ", 40) == 0, "case %zu: %s", i,
                  line);
        cr_assert(strstr(line, cases[i].what) != NULL, "case %zu: %s", i, line);
    }
}

Test(emulate, a_kernel_without_fault_runs)
{
    float out[64];

    cr_assert_eq(planted_fault(out, PLANTED_NONE), 0);
    cr_assert_float_eq(out[40], 8, 0);
}

static const struct {
    unsigned grid, block;
    size_t shared_bytes;
} sizes[] = { { 0, 32, 0 }, { 1, 0, 0 }, { 1, 33, 0 }, { 1, 1056, 0 }, { 1, 32, 163 * 1024 + 1 } };

static void run_size(int which)
{
    float out[64];

    (void)planted_size(out, sizes[which].grid, sizes[which].block, sizes[which].shared_bytes);
}

Test(emulate, a_launch_that_no_gpu_takes_ends_the_program)
{
    for (int i = 0; i < (int)(sizeof sizes / sizeof *sizes); i++) {
        char line[1000];

        cr_assert(aborts(run_size, i, line, sizeof line), "size %d went on", i);
        cr_assert(strncmp(line, "emulation: kernel diverge ", 26) == 0, "size %d: %s", i, line);
    }
}

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>

static void write_beyond(int which)
{
    __sanitizer_set_report_path(
        "stderr"); /* the report is expected here, not in the run's folder of reports */
    run_fault(which);
}

Test(emulate, the_address_sanitizer_sees_what_lies_beyond_shared_memory)
{
    char line[4000];

    cr_assert_not(aborts(write_beyond, PLANTED_BEYOND_SHARED, line, sizeof line),
                  "the sanitizer ends with a status");
    cr_assert(strstr(line, "heap-buffer-overflow") != NULL, "%s", line);
}
#endif

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

TestSuite(emulate, .fini = cases_end);

/* Under how many of three schedules the numbers come out right. */
static int right_schedules(enum planted_fault fault)
{
    int n_right = 0;

    for (int order = EMULATE_FORWARD; order <= EMULATE_SEEDED; order++) {
        float in[64], out[64];
        bool right = true;

        for (int i = 0; i < 64; i++)
            in[i] = (float)(i * i);
        emulate_schedule((enum emulate_order)order, 7);
        cr_assert_eq(planted_rotate(in, out, 64, fault), 0);
        for (int i = 0; i < 64; i++)
            right = right && out[i] == in[(i + 1) % 64] + in[(i + 63) % 64];
        n_right += right;
    }
    return n_right;
}

Test(emulate, a_missing_barrier_is_caught_by_every_schedule)
{
    cr_assert_eq(right_schedules(PLANTED_NONE), 3);
    cr_assert_eq(right_schedules(PLANTED_NO_BARRIER), 0);
}

/* Runs the fault in a child: its first line on stderr, and whether it died of SIGABRT. */
static bool aborts(enum planted_fault fault, unsigned n_threads, char *line, size_t size)
{
    static float in[64], out[64];
    int ends[2], status;
    size_t n = 0;
    ssize_t got;
    pid_t child;

    cr_assert_eq(pipe(ends), 0);
    child = fork();
    cr_assert_geq(child, 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        (void)planted_rotate(in, out, n_threads, fault);
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

/* A divergence, and a launch that no GPU takes. */
Test(emulate, a_fault_ends_the_program_with_kernel_block_and_thread)
{
    static const struct {
        enum planted_fault fault;
        enum emulate_order order;
        unsigned n_threads;
        const char *what;
    } cases[] = {
        { PLANTED_TWO_BARRIERS, EMULATE_FORWARD, 64, "thread 5: divergent barrier" },
        { PLANTED_TWO_BARRIERS, EMULATE_REVERSE, 64, "thread 5: divergent barrier" },
        { PLANTED_SKIPPED_BARRIER, EMULATE_FORWARD, 64, "thread 40: divergent barrier: ended without it" },
        { PLANTED_SKIPPED_BARRIER, EMULATE_REVERSE, 64, "thread 40: divergent barrier: ended without it" },
        { PLANTED_SKIPPED_SHUFFLE, EMULATE_FORWARD, 64, "thread 16: divergent shuffle: ended without it" },
        { PLANTED_SKIPPED_SHUFFLE, EMULATE_REVERSE, 64,
          "thread 47: divergent shuffle: another lane has ended" },
        { PLANTED_BARRIER_AND_SHUFFLE, EMULATE_FORWARD, 64, "thread 3: divergent barrier" },
        { PLANTED_BARRIER_AND_SHUFFLE, EMULATE_REVERSE, 64, "thread 35: divergent barrier" },
        { PLANTED_NONE, EMULATE_FORWARD, 0, "a block that is not 32 to 1024 threads" },
        { PLANTED_NONE, EMULATE_FORWARD, 33, "a block that is not 32 to 1024 threads" },
        { PLANTED_NONE, EMULATE_FORWARD, 1056, "a block that is not 32 to 1024 threads" },
        { PLANTED_NO_GRID, EMULATE_FORWARD, 64, "a grid of no size" },
        { PLANTED_MUCH_SHARED, EMULATE_FORWARD, 64, "more shared memory than a block may have" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[1000];

        emulate_schedule(cases[i].order, 0);
        cr_assert(aborts(cases[i].fault, cases[i].n_threads, line, sizeof line), "case %zu went on", i);
        cr_assert(strncmp(line, "emulation: kernel rotate block (0,0,0) ", 39) == 0, "case %zu: %s", i, line);
        cr_assert(strstr(line, cases[i].what) != NULL, "case %zu: %s", i, line);
    }
}

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>

Test(emulate, the_address_sanitizer_sees_what_lies_beyond_shared_memory)
{
    char line[4000];

    __sanitizer_set_report_path("stderr"); /* it is expected here, not in the run's folder of reports */
    cr_assert_not(aborts(PLANTED_BEYOND_SHARED, 64, line, sizeof line), "the sanitizer ends with a status");
    cr_assert(strstr(line, "heap-buffer-overflow") != NULL, "%s", line);
}
#endif

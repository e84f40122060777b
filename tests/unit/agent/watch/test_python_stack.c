#include "agent/watch/python_stack.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

static struct python_stack stack;

static bool take(const char *text, const char *directory)
{
    return python_stack_take(&stack, text, strlen(text), directory);
}

static const char threads[] = "Thread 0x00007faa4e4e46c0 (most recent call first):\n"
                              "  File \"/w/loader.py\", line 4 in other\n"
                              "\n"
                              "Current thread 0x00007faa4f819b80 [python] (most recent call first):\n"
                              "  File \"/usr/lib/python3.11/threading.py\", line 331 in acquire\n"
                              "  File \"/w/sub/train.py\", line 7 in step\n"
                              "  File \"/w/train.py\", line 11 in <module>\n";

Test(python_stack, the_main_threads_frames_are_kept_and_the_innermost_of_the_program_is_found)
{
    cr_assert(take(threads, "/w"));

    cr_assert_eq(stack.n_threads, 2);
    cr_assert_eq(stack.n_frames, 3);
    cr_assert_str_eq(stack.frames[1], "sub/train.py:7 in step");
    cr_assert_eq(stack.own, 1);
    cr_assert_not(stack.waits);
    cr_assert(take(threads, NULL));
    cr_assert_str_eq(stack.frames[2], "/w/train.py:11 in <module>");
}

Test(python_stack, a_rank_in_a_collective_of_torch_waits_and_one_below_its_own_code_does_not)
{
    cr_assert(take("Current thread 0x1 (most recent call first):\n"
                   "  File \"/v/site-packages/torch/distributed/distributed_c10d.py\", line 9 in all_reduce\n"
                   "  File \"/w/train.py\", line 2 in <module>\n",
                   "/w"));
    cr_assert(stack.waits);
    cr_assert_eq(stack.own, 1);

    cr_assert(take("Current thread 0x1 (most recent call first):\n"
                   "  File \"/w/train.py\", line 2 in step\n"
                   "  File \"/v/site-packages/torch/distributed/run.py\", line 9 in main\n",
                   "/w"));
    cr_assert_not(stack.waits);
}

Test(python_stack, without_a_current_thread_the_last_one_is_the_main_thread)
{
    cr_assert(take("Thread 0x1 (most recent call first):\n  File \"/w/loader.py\", line 4 in other\n\n"
                   "Thread 0x2 (most recent call first):\n  File \"/w/tr\033ain.py\", line 2 in step\n",
                   "/w"));
    cr_assert_eq(stack.n_frames, 1);
    cr_assert_str_eq(python_stack_line(&stack), "tr?ain.py:2 in step");
    cr_assert_not(take("", NULL));
    cr_assert_str_eq(python_stack_line(&stack), "");
}

/* The program may write to that descriptor too, and what is read may end anywhere. */
Test(python_stack, what_is_no_stack_is_none_and_nothing_is_longer_than_it_may_be)
{
    static char text[PYTHON_STACK_TEXT_BYTES];
    size_t n;

    cr_assert_not(take("", NULL));
    cr_assert_not(take("Current thread 0x1 (most recent call first):\n  <no Python frame>\n", NULL));
    cr_assert_not(take("  File \"/w/a.py\", line 7 in step\n", NULL), "it is of no thread");
    for (size_t cut = 0; cut < sizeof threads; cut++)
        python_stack_take(&stack, threads, cut, "/w");
    n = (size_t)sprintf(text, "Current thread 0x1 (most recent call first):\n");
    while (n + 2000 < sizeof text) {
        n += (size_t)sprintf(text + n, "  File \"/");
        memset(text + n, 'p', 900);
        n += 900;
        n += (size_t)sprintf(text + n, "\", line 123456789012 in ");
        memset(text + n, 'f', 900);
        n += 900;
        text[n++] = '\n';
    }
    cr_assert(python_stack_take(&stack, text, n, "/"));
    cr_assert_eq(stack.n_frames, PYTHON_STACK_FRAMES);
    for (int i = 0; i < stack.n_frames; i++)
        cr_assert_lt(strlen(stack.frames[i]), (size_t)PYTHON_STACK_FRAME_BYTES);
}

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/record/last_words.h"

static struct errors_detail detail;

static void tell(const char *text)
{
    memset(&detail, 0, sizeof detail);
    last_words_tell(&detail, text, strlen(text), false, true);
}

Test(last_words, the_newest_bytes_are_kept_however_they_come)
{
    static char all[3 * LAST_WORDS_BYTES], got[LAST_WORDS_BYTES];
    static const size_t pieces[] = {
        1, 7, 4096, LAST_WORDS_BYTES - 1, LAST_WORDS_BYTES, LAST_WORDS_BYTES + 5
    };

    for (size_t i = 0; i < sizeof all; i++)
        all[i] = (char)(i * 31 + i / 251);
    for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++) {
        static struct last_words words;
        size_t n = 0;

        memset(&words, 0, sizeof words);
        while (n < sizeof all) {
            const size_t now = pieces[p] < sizeof all - n ? pieces[p] : sizeof all - n;
            size_t kept;

            last_words_add(&words, all + n, now);
            n += now;
            if (pieces[p] < 8 && n % 4097 > 8)
                continue; /* looked at now and then is enough */
            kept = last_words_copy(&words, got);
            cr_assert(kept == (n < LAST_WORDS_BYTES ? n : LAST_WORDS_BYTES), "pieces of %zu", pieces[p]);
            cr_assert(memcmp(got, all + n - kept, kept) == 0, "pieces of %zu, after %zu", pieces[p], n);
        }
    }
}

#define TOP   "Traceback (most recent call last):\n  File \"x.py\", line 1, in <module>\n    f()\n"
#define INNER "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\n    g()\n"
#define GROUP                                                                                                \
    "  + Exception Group Traceback (most recent call last):\n  |   File \"x.py\", line 1, in <module>\n"     \
    "  | ExceptionGroup: eg (2 sub-exceptions)\n  | a note\n  +-+---------------- 1 ----------------\n"      \
    "    | Traceback (most recent call last):\n    |   File \"x.py\", line 2, in g\n    | RuntimeError: "    \
    "a\n\tb\nc\n"                                                                                            \
    "    +---------------- 2 ----------------\n    | TypeError: x\n    "                                     \
    "+------------------------------------\n"

/* `text` is the cause, all of it. */
static void check_cause(const char *text, const char *traceback, const char *message)
{
    tell(text);
    cr_assert_str_eq(detail.traceback, traceback, "%s", text);
    cr_assert_str_eq(detail.message, message, "%s", text);
}

static void check_none(const char *text)
{
    tell(text);
    cr_assert(detail.traceback[0] == '\0' && detail.message[0] == '\0', "%s", text);
}

Test(last_words, a_traceback_is_found_below_other_lines)
{
    check_cause("starting\n" INNER "ValueError: x\n", INNER "ValueError: x\n", "ValueError: x");
    check_cause("starting\n" INNER "ValueError: x\n\n \n\r\n", INNER "ValueError: x\n", "ValueError: x");
    check_cause("\033[31mstarting\n" INNER "\033[1;35mValueError\033[0m: \033[35mx\033[0m\n",
                INNER "ValueError: x\n", "ValueError: x");
}

Test(last_words, one_that_something_else_follows_is_not_the_cause)
{
    check_none("ERROR:root:ignored\n" TOP "ZeroDivisionError: division by zero\nconfig missing\n");
    cr_assert(detail.tail.n_lines == 6);
    cr_assert_str_eq(detail.tail.lines[5], "config missing");
    check_none(INNER "ZeroDivisionError: division by zero\nconfig missing\n");
    check_none(INNER "ZeroDivisionError: division by zero\n\n\nconfig missing");
    check_none(INNER "E: 1\nException ignored in: <f>\n" INNER "F: 2\nconfig missing\n");
    check_none("ERROR ignored\n" INNER
               "E: 1\n\nDuring handling of the above exception, another exception occurred:\n\n" TOP
               "F: 2\nconfig missing\n");
    check_none("[default0]:" INNER "E: 1\nconfig missing\n");
    check_none(GROUP "config missing\n");
    check_none("Exception in thread Thread-1 (f):\n" INNER "E: 1\nconfig missing\n");
}

Test(last_words, all_lines_of_a_message_belong_to_it)
{
    check_cause("ERROR:root:x\n" INNER
                "RuntimeError: Error(s) in loading:\n\tMissing key(s): \"a\".\n\tsize mismatch\n",
                INNER "RuntimeError: Error(s) in loading:\n\tMissing key(s): \"a\".\n\tsize mismatch\n",
                "RuntimeError: Error(s) in loading:\n\tMissing key(s): \"a\".\n\tsize mismatch");
    check_cause("starting\n" TOP "RuntimeError: CUDA error\nkernels\n\na note\n",
                TOP "RuntimeError: CUDA error\nkernels\n\na note\n",
                "RuntimeError: CUDA error\nkernels\n\na note");
    check_cause(TOP "RuntimeError: Caught E in worker 0.\nOriginal Traceback (most recent call last):\n  "
                    "File \"y\"\nE: 1\n\n",
                TOP "RuntimeError: Caught E in worker 0.\nOriginal Traceback (most recent call last):\n  "
                    "File \"y\"\nE: 1\n",
                "RuntimeError: Caught E in worker 0.\nOriginal Traceback (most recent call last):\n  File "
                "\"y\"\nE: 1");
}

Test(last_words, what_an_interpreter_says_on_its_way_out_does_not_count)
{
    static const char *const noise[] = {
        "Exception ignored in: <function A.__del__ at 0x7f>\n" TOP "ZeroDivisionError: 0\n",
        "Exception ignored in: <_io.TextIOWrapper name='<stdout>'>\nBrokenPipeError: [Errno 32] Broken "
        "pipe\n",
        "Error in atexit._run_exitfuncs:\n" INNER "E: 2\n",
        "Exception in thread Thread-1 (f):\n" INNER "E: 3\n",
        "/lib/resource_tracker.py:254: UserWarning: resource_tracker: There appear to be 1 leaked\n  "
        "warnings.warn('x'\n",
        "sys:1: DeprecationWarning: builtin type\n",
        "[rank0]:[W1121 10:11:12.123456789 ProcessGroupNCCL.cpp:1250] Warning: not destroyed (function "
        "operator())\n",
        "Traceback (most recent call last):\n  File \"/lib/resource_tracker.py\", line 239, in "
        "main\nKeyError: '/psm'\n",
    };
    char text[2048];

    for (size_t i = 0; i < sizeof noise / sizeof *noise; i++)
        for (size_t j = 0; j < sizeof noise / sizeof *noise; j++) {
            snprintf(text, sizeof text, "%s%s%s%s", TOP, "ValueError: x\n", noise[i], noise[j]);
            check_cause(text, TOP "ValueError: x\n", "ValueError: x");
            snprintf(text, sizeof text, "%s%s%s%s%s", TOP, "ValueError: x\n", noise[i], noise[j],
                     "config missing\n");
            check_none(text);
        }
}

Test(last_words, a_rank_in_front_of_every_line_is_left_out)
{
    static const char text[] =
        "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"x.py\", line 1, in f\n"
        "[rank1]: torch.OutOfMemoryError: no\n\n[rank1]: more\n";
    static const char want[] = "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\n"
                               "torch.OutOfMemoryError: no\n\nmore\n";
    char followed[1024];

    check_cause(text, want, "torch.OutOfMemoryError: no\n\nmore");
    snprintf(followed, sizeof followed, "%s%s", text, "wandb: synced\n" INNER "E: of a child\n");
    check_cause(followed, want, "torch.OutOfMemoryError: no\n\nmore");
}

Test(last_words, a_chain_may_have_that_rank_in_front_of_its_blank_lines_too)
{
    static const char *const blank[] = { "", "[rank1]: " };
    char text[1024];

    for (int i = 0; i < 2; i++) {
        snprintf(
            text, sizeof text,
            "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"a\"\n[rank1]: KeyError: 1\n%s\n"
            "[rank1]: During handling of the above exception, another exception occurred:\n%s\n"
            "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"b\"\n[rank1]: E: 2\n",
            blank[i], blank[i]);
        check_cause(text,
                    "Traceback (most recent call last):\n  File \"a\"\nKeyError: 1\n\n"
                    "During handling of the above exception, another exception occurred:\n\n"
                    "Traceback (most recent call last):\n  File \"b\"\nE: 2\n",
                    "E: 2");
    }
}

Test(last_words, a_group_is_one_traceback)
{
    check_cause("x\n" GROUP, GROUP, "ExceptionGroup: eg (2 sub-exceptions)\na note");
    check_cause(
        TOP "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n" GROUP,
        TOP "KeyError: 1\n\nDuring handling of the above exception, another exception occurred:\n\n" GROUP,
        "ExceptionGroup: eg (2 sub-exceptions)\na note");
    check_cause(
        "[rank0]:   + Exception Group Traceback (most recent call last):\n[rank0]:   |   File \"x\"\n"
        "[rank0]:   | ExceptionGroup: g\n[rank0]:   +-+-- 1 --\n[rank0]:     | E: 1\n[rank0]:     +-----\n",
        "  + Exception Group Traceback (most recent call last):\n  |   File \"x\"\n"
        "  | ExceptionGroup: g\n  +-+-- 1 --\n    | E: 1\n    +-----\n",
        "ExceptionGroup: g");
}

Test(last_words, a_syntax_error_of_the_program_itself_is_a_traceback)
{
    static const char *const names[] = { "SyntaxError: bad", "IndentationError: bad", "TabError: bad" };
    char text[512], want[256];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(want, sizeof want, "  File \"x.py\", line 12\n    def f(:\n          ^\n%s\n", names[i]);
        snprintf(text, sizeof text, "starting\n%s", want);
        check_cause(text, want, names[i]);
        strcat(text, "config missing\n");
        check_none(text);
    }
    check_none("  File \"x.py\", line 12\n    f(\nValueError: x\n");
    check_none("  File \"x.py\", line\n    f(\nSyntaxError: x\n");
    check_cause(TOP "  File \"y.py\", line 2\n    f(:\n      ^\nSyntaxError: bad\n",
                TOP "  File \"y.py\", line 2\n    f(:\n      ^\nSyntaxError: bad\n", "SyntaxError: bad");
}

Test(last_words, a_chain_is_one_traceback_and_the_newest_exception_its_message)
{
    const char *chain = "Traceback (most recent call last):\n  File \"a\"\nKeyError: 1\n\n"
                        "During handling of the above exception, another exception occurred:\n\n"
                        "Traceback (most recent call last):\n  File \"b\"\nRuntimeError: 2\n\n"
                        "The above exception was the direct cause of the following exception:\n\n"
                        "Traceback (most recent call last):\n  File \"c\"\nSystemError: 3\n";

    check_cause(chain, chain, "SystemError: 3");
    check_cause(
        "Traceback (most recent call last):\n  File \"a\"\nKeyError: 1\nunrelated\n" /* caught before */
        "Traceback (most recent call last):\n  File \"b\"\nRuntimeError: 2\n",
        "Traceback (most recent call last):\n  File \"b\"\nRuntimeError: 2\n", "RuntimeError: 2");
}

Test(last_words, what_is_no_whole_traceback_says_nothing)
{
    static const char *const none[] = {
        "",
        "Traceback (most recent call last):",
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):\n  File \"x\"\n",
        "Traceback (most recent call last):\nValueError: nothing between\n",
        "  + Exception Group Traceback (most recent call last):\n  |   File \"x\"\n",
        "  + Exception Group Traceback (most recent call last):\n  |   File \"x\"\nExceptionGroup: g\n",
        "Traceback (most recent call last):\n\n> File \"x\", line 1, in <module>\n",
        "Exception ignored in: <f>\nTraceback (most recent call last):\n  File \"x\"\nE: x\n",
        "[rank1]: Traceback (most recent call last):\n  File \"x\"\nValueError: of another\n",
        "he said Traceback (most recent call last): and left\n  File\nE: x\n",
    };

    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        check_none(none[i]);
    memset(&detail, 0, sizeof detail);
    last_words_tell(&detail, "Traceback (most recent call last):\n  File\nE: x\n", 46, false, false);
    cr_assert(detail.traceback[0] == '\0' && detail.tail.n_lines == 3, "it did not end as Python does");
}

Test(last_words, an_error_file_has_the_last_word)
{
    memset(&detail, 0, sizeof detail);
    strcpy(detail.error_file, "/x");
    strcpy(detail.message, "of the file");
    last_words_tell(&detail, "Traceback (most recent call last):\n  File\nE: x\n", 46, false, true);

    cr_assert_str_eq(detail.message, "of the file");
    cr_assert(detail.traceback[0] == '\0' && detail.tail.n_lines == 3);
}

Test(last_words, a_long_traceback_keeps_its_end_and_a_long_message_whole_characters)
{
    static char text[LAST_WORDS_BYTES];
    size_t n = (size_t)sprintf(text, "Traceback (most recent call last):\n");

    for (int i = 0; n < sizeof text - 3000; i++)
        n += (size_t)sprintf(text + n, "  File \"deep.py\", line %d\n", i);
    n += (size_t)sprintf(text + n, "E: ");
    for (int i = 0; i < 700; i++)
        n += (size_t)sprintf(text + n, "\xc3\xa4");
    sprintf(text + n, "\n");

    tell(text);
    cr_assert(strlen(detail.traceback) < sizeof detail.traceback && strlen(detail.traceback) > 8000);
    cr_assert(strncmp(detail.traceback, "  File \"deep.py\"", 16) == 0, "from the beginning of a line");
    cr_assert(strlen(detail.message) == 1023 && (unsigned char)detail.message[1022] == 0xa4, "%zu",
              strlen(detail.message));
    sprintf(text, "Traceback (most recent call last):\n  F\nE: x");
    for (int i = 0; i < 1000; i++)
        strcat(text, "\xe2\x82\xac");
    tell(text);
    cr_assert(strlen(detail.message) == 4 + 1017 && (unsigned char)detail.message[1020] == 0xac, "%zu",
              strlen(detail.message));
}

/*
 * Each form, also with a zero byte in it, is cut at every byte at either end. What is left is reported or
 * not, and nothing beyond it is read. A copy of exactly that size lets a sanitizer see it.
 */
Test(last_words, every_form_may_be_cut_anywhere)
{
#define FORM(text)                                                                                           \
    {                                                                                                        \
        text, sizeof text - 1                                                                                \
    }
    static const struct {
        const char *text;
        size_t n;
    } forms[] = {
        FORM("ERROR:root:x\n" TOP "E: 1\n\tb\nException ignored in: <f>\n" INNER "F: 2\n"),
        FORM("a\n" GROUP "[W1121 1] x\nsys:1: AWarning: x\n"),
        FORM("  File \"x.py\", line 12\n    def f(:\n          ^\nSyntaxError: bad\n\033[1;3m\n"),
        FORM("[r]: Traceback (most recent call last):\r\n[r]:   File \"a\"\r\n[r]: E: \xff\0x\r\n"
             "\nDuring handling of the above exception, another exception occurred:\n\n"
             "[r]: Traceback (most recent call last):\n[r]:   File\n[r]: F: \xe2\x82\xac\n\n"),
    };

    for (size_t f = 0; f < sizeof forms / sizeof *forms; f++)
        for (size_t from = 0; from < forms[f].n; from++)
            for (size_t to = from + 1; to <= forms[f].n; to++) {
                char *copy = malloc(to - from);

                memcpy(copy, forms[f].text + from, to - from);
                memset(&detail, 0, sizeof detail);
                last_words_tell(&detail, copy, to - from, true, true);
                cr_assert((detail.traceback[0] == '\0') == (detail.message[0] == '\0'), "form %zu, %zu..%zu",
                          f, from, to);
                free(copy);
            }
}

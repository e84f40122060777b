#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/last_words.h"

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

Test(last_words, a_traceback_is_found_among_other_lines)
{
    tell("starting\nTraceback (most recent call last):\n  File \"x.py\", line 1, in f\n    f()\nValueError: "
         "x\n"
         "a warning at the end\n");

    cr_assert_str_eq(detail.traceback, "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\n"
                                       "    f()\nValueError: x\n");
    cr_assert_str_eq(detail.message, "ValueError: x");
    cr_assert(detail.tail.n_lines == 6);
    cr_assert_str_eq(detail.tail.lines[5], "a warning at the end");
}

Test(last_words, a_rank_in_front_of_every_line_is_left_out)
{
    tell("[rank1]: Traceback (most recent call last):\n[rank1]:   File \"x.py\", line 1, in f\n"
         "[rank1]: torch.OutOfMemoryError: no\n[rank1]: more\n");

    cr_assert_str_eq(
        detail.traceback,
        "Traceback (most recent call last):\n  File \"x.py\", line 1, in f\ntorch.OutOfMemoryError: no\n");
    cr_assert_str_eq(detail.message, "torch.OutOfMemoryError: no");
}

Test(last_words, a_chain_is_one_traceback_and_the_newest_exception_its_message)
{
    const char *chain = "Traceback (most recent call last):\n  File \"a\"\nKeyError: 1\n\n"
                        "During handling of the above exception, another exception occurred:\n\n"
                        "Traceback (most recent call last):\n  File \"b\"\nRuntimeError: 2\n\n"
                        "The above exception was the direct cause of the following exception:\n\n"
                        "Traceback (most recent call last):\n  File \"c\"\nSystemError: 3\n";

    tell(chain);
    cr_assert_str_eq(detail.traceback, chain);
    cr_assert_str_eq(detail.message, "SystemError: 3");

    tell("Traceback (most recent call last):\n  File \"a\"\nKeyError: 1\nunrelated\n"
         "Traceback (most recent call last):\n  File \"b\"\nRuntimeError: 2\n");
    cr_assert_str_eq(detail.traceback, "Traceback (most recent call last):\n  File \"b\"\nRuntimeError: 2\n",
                     "one that was caught before is not part of it");
}

Test(last_words, what_is_no_whole_traceback_says_nothing)
{
    static const char *const none[] = {
        "",
        "Traceback (most recent call last):",
        "Traceback (most recent call last):\n",
        "Traceback (most recent call last):\n  File \"x\"\n",
        "Traceback (most recent call last):\nValueError: nothing between\n",
        "  + Exception Group Traceback (most recent call last):\n  |   File \"x\"\n  | ExceptionGroup: g\n",
        "[rank1]: Traceback (most recent call last):\n  File \"x\"\nValueError: of another\n",
        "he said Traceback (most recent call last): and left\n  File\nE: x\n",
    };

    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        tell(none[i]);
        cr_assert(detail.traceback[0] == '\0' && detail.message[0] == '\0', "%s", none[i]);
    }
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

/* Anything may come, cut anywhere, with a zero byte in it. */
Test(last_words, any_beginning_and_end_is_survived)
{
    static const char text[] =
        "[r]: Traceback (most recent call last):\r\n[r]:   File \"a\"\r\n[r]: E: \xff\0x\r\n"
        "\nDuring handling of the above exception, another exception occurred:\n\n"
        "[r]: Traceback (most recent call last):\n[r]:   File\n[r]: F: \xe2\x82\xac\n\n";

    for (size_t from = 0; from < sizeof text; from++)
        for (size_t to = from; to < sizeof text; to++) {
            char *copy = malloc(to - from + 1); /* nothing behind it: a sanitizer sees what reads on */

            memcpy(copy, text + from, to - from);
            memset(&detail, 0, sizeof detail);
            last_words_tell(&detail, copy, to - from, true, true);
            cr_assert(memchr(detail.traceback, '\0', sizeof detail.traceback) != NULL);
            free(copy);
        }
}

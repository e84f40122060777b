#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/options.h"

#define BIT(s) (UINT64_C(1) << (s))
#define NAMES  "must be names of signals, as SIGTERM,USR1; "

Test(options_lists, signals)
{
    static const struct {
        const char *text;
        uint64_t want; /* 0: refused */
        const char *why;
    } cases[] = {
        { "SIGTERM", BIT(SIGTERM), NULL },
        { "TERM", BIT(SIGTERM), NULL },
        { "sigusr1,Usr2", BIT(SIGUSR1) | BIT(SIGUSR2), NULL },
        { "SIGTERM,SIGINT,SIGHUP,SIGQUIT", BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGHUP) | BIT(SIGQUIT), NULL },
        { " SIGTERM , INT ", BIT(SIGTERM) | BIT(SIGINT), NULL },
        { "TERM,TERM", BIT(SIGTERM), NULL },
        { "ALRM", BIT(SIGALRM), NULL },
        { "", 0, NAMES "nothing is none" },
        { "TERM,", 0, NAMES "nothing is none" },
        { "SIG", 0, NAMES "SIG is none" },
        { "SIGSIGTERM", 0, NAMES "SIGSIGTERM is none" },
        { "15", 0, NAMES "15 is none" },
        { "TERM INT", 0, NAMES "TERM INT is none" },
        { "SIGABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJKLMNOPQRSTUVWXYZ", 0,
          NAMES "SIGABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJK is none" },
        { "SIGKILL", 0, "SIGKILL cannot be handled" },
        { "TERM,STOP", 0, "SIGSTOP cannot be handled" },
        { "CHLD", 0, "SIGCHLD cannot be handled" },
        { "TSTP", 0, "SIGTSTP cannot be handled" },
        { "CONT", 0, "SIGCONT cannot be handled" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct fsdp_err err = { 0 };
        uint64_t set;
        enum fsdp_status status = options_signals(cases[i].text, &set, &err);

        cr_expect(eq(int, status == FSDP_OK, cases[i].want != 0), "%s", cases[i].text);
        if (status == FSDP_OK)
            cr_expect(eq(u64, set, cases[i].want), "%s", cases[i].text);
        else
            cr_expect(eq(str, err.message, (char *)cases[i].why));
    }
}

Test(options_lists, patterns)
{
    static const struct {
        const char *text, *want; /* joined by "|"; NULL: refused */
    } cases[] = {
        { "a", "a" },    { "a,b", "a|b" },      { "a,,b", "a,b" },    { "a,,,b", "a,|b" },
        { ",,", "," },   { ",,,,", ",," },      { "a b,c", "a b|c" }, { "a,b,,c,d", "a|b,c|d" },
        { "", NULL },    { ",", NULL },         { "a,", NULL },       { ",a", NULL },
        { ",,,", NULL }, { "[E],,x", "[E],x" },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char **list = NULL, text[64] = "";
        struct fsdp_err err = { 0 };
        enum fsdp_status status = options_patterns(cases[i].text, &list, &err);

        cr_expect(eq(int, status == FSDP_OK, cases[i].want != NULL), "\"%s\"", cases[i].text);
        cr_expect(eq(int, options_patterns(cases[i].text, NULL, NULL), status));
        if (status != FSDP_OK)
            continue;
        for (size_t n = 0; list[n] != NULL; n++)
            strcat(strcat(text, n == 0 ? "" : "|"), list[n]);
        cr_expect(eq(str, text, (char *)cases[i].want));
        free(list);
    }
}

Test(options_lists, ranks)
{
    unsigned char out[12];
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, options_ranks("0,11", 12, out, &err), FSDP_OK));
    for (int r = 0; r < 12; r++)
        cr_expect(eq(int, out[r], r == 0 || r == 11), "rank %d", r);
    cr_assert(eq(int, options_ranks("12", 12, out, &err), FSDP_ERR_CONFIG));
    cr_expect(eq(str, err.message, "names local rank 12 of 12 (the first is 0)"));
    cr_assert(eq(int, options_ranks("999999999", 0, out, NULL), FSDP_OK));
    for (size_t i = 0; i < 7; i++) {
        static const char *const bad[] = { "", ",", "0,", ",0", "a", "0-3", "9999999999" };

        cr_expect(eq(int, options_ranks(bad[i], 0, out, NULL), FSDP_ERR_CONFIG), "\"%s\"", bad[i]);
    }
}

Test(options_lists, streams)
{
    unsigned char out[12];
    struct fsdp_err err = { 0 };

    for (int s = 0; s < 4; s++) {
        char text[2] = { (char)('0' + s), '\0' };

        cr_assert(eq(int, options_streams(text, 12, out, NULL), FSDP_OK));
        cr_assert(out[0] == s && out[11] == s);
    }
    cr_assert(eq(int, options_streams("0:1,11:2", 12, out, NULL), FSDP_OK));
    cr_assert(out[0] == 1 && out[1] == 0 && out[11] == 2);
    cr_assert(eq(int, options_streams("0:1,0:3", 12, out, NULL), FSDP_OK));
    cr_assert(eq(int, out[0], 3));
    cr_assert(eq(int, options_streams("12:1", 12, out, &err), FSDP_ERR_CONFIG));
    cr_assert(eq(str, err.message, "names local rank 12 of 12 (the first is 0)"));
    for (size_t i = 0; i < 11; i++) {
        static const char *const bad[] = { "",     "4",    "-1",      "0:",  ":1",   "0:4",
                                           "0:1,", ",0:1", "0:1;1:1", "a:1", "0:1,2" };

        cr_expect(eq(int, options_streams(bad[i], 0, out, NULL), FSDP_ERR_CONFIG), "\"%s\"", bad[i]);
    }
}

Test(options_lists, sizes_and_numbers)
{
    /* clang-format off */
    static const struct {
        const char *text;
        int64_t want; /* -1: refused */
    } cases[] = {
        { "1", 1 }, { "4096", 4096 }, { "10K", 10240 }, { "100M", 104857600 }, { "2g", 2147483648 },
        { "1T", 1099511627776 }, { "8388607T", 9223370937343148032 },
        { "0", -1 }, { "0K", -1 }, { "", -1 }, { "M", -1 }, { "1MB", -1 }, { "1.5M", -1 }, { "-1", -1 },
        { "8388608T", -1 }, { "1P", -1 },
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct option_value value;
        enum fsdp_status status =
            option_check(option_find(OPT_LOG_LIMIT), "x", cases[i].text, 1, &value, NULL);

        cr_expect(eq(int, status == FSDP_OK, cases[i].want > 0), "%s", cases[i].text);
        if (status == FSDP_OK)
            cr_expect(eq(i64, value.number, cases[i].want), "%s", cases[i].text);
    }
    for (size_t i = 0; i < 12; i++) {
        static const char *const reals[] = { "0", "0.1", ".5",  "5.",  "1e3",  "30",
                                             "",  "-1",  "nan", "inf", "0x10", "1s" };
        struct option_value value;

        enum fsdp_status status =
            option_check(option_find(OPT_MONITOR_INTERVAL), "x", reals[i], 1, &value, NULL);

        cr_expect(eq(int, status == FSDP_OK, i < 6), "%s", reals[i]);
    }
}

#include "agent/wire/fields.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>

#include "agent/record/errors.h"

struct sample {
    char text[8];
    int number, limited;
    uint32_t word;
    bool flag;
    uint64_t wide;
    int64_t span;
    unsigned char bytes[2];
    struct errors_tail tail;
};

/* Every kind of field, in the order of `whole` below. */
static const struct field rows[] = {
    FIELD(struct sample, TEXT, "text", text),
    FIELD(struct sample, INT, "number", number),
    FIELD_WITHIN(struct sample, INT, "limited", limited, 0, 3),
    FIELD(struct sample, WORD, "word", word),
    FIELD(struct sample, FLAG, "flag", flag),
    FIELD(struct sample, LONG, "wide", wide),
    FIELD_WITHIN(struct sample, LONG, "span", span, -1, 9),
    FIELD(struct sample, BYTES, "bytes", bytes),
    FIELD(struct sample, TAIL, "tail", tail),
};
enum { N_ROWS = sizeof rows / sizeof *rows };

static const char whole[] =
    "{\"text\":\"n\\\"1\\\\\",\"number\":-7,\"limited\":3,\"word\":4294967295,\"flag\":true,"
    "\"wide\":\"-1\",\"span\":\"-1\",\"bytes\":\"09ff\",\"tail\":\"one\\ntwo\"}";

static struct sample sample;

static enum fsdp_status decode(const char *text, struct fsdp_err *err)
{
    sample = (struct sample){ 0 };
    return fields_decode(rows, N_ROWS, &sample, text, strlen(text), err);
}

Test(fields, every_kind_is_read_and_written_again_as_it_was)
{
    char *text;

    cr_assert(eq(int, decode(whole, NULL), FSDP_OK));
    cr_expect(eq(str, sample.text, "n\"1\\"));
    cr_expect(sample.number == -7 && sample.limited == 3 && sample.word == UINT32_MAX && sample.flag);
    cr_expect(sample.wide == UINT64_MAX && sample.span == -1);
    cr_expect(sample.bytes[0] == 9 && sample.bytes[1] == 255);
    cr_assert(eq(int, sample.tail.n_lines, 2));
    cr_expect(eq(str, (char *)sample.tail.lines[1], "two"));

    text = fields_encode(rows, N_ROWS, &sample);
    cr_expect(eq(str, text, (char *)whole));
    free(text);
}

Test(fields, numbers_of_any_size_and_text_of_any_bytes_are_written)
{
    sample = (struct sample){
        .text = "\a\x7f\xff/", .number = INT32_MIN, .span = INT64_MIN, .bytes = { 255, 160 }
    };
    char *text = fields_encode(rows, N_ROWS, &sample);

    cr_expect(
        eq(str, text,
           "{\"text\":\"\\u0007\x7f\xff/\",\"number\":-2147483648,\"limited\":0,\"word\":0,\"flag\":false,"
           "\"wide\":\"0\",\"span\":\"-9223372036854775808\",\"bytes\":\"ffa0\",\"tail\":\"\"}"));
    free(text);
}

/* The whole message with one value in place of another. */
Test(fields, a_value_that_does_not_fit_its_row_is_refused)
{
    static const struct {
        const char *was, *is, *key;
    } cases[] = {
        { "\"n\\\"1\\\\\"", "1", "text" },
        { "n\\\"1\\\\", "12345678", "text" },
        { "-7", "-7.5", "number" },
        { "-7", "1e300", "number" },
        { "-7", "\"-7\"", "number" },
        { "-7", "2147483648", "number" },
        { ":3", ":4", "limited" },
        { ":3", ":-1", "limited" },
        { "4294967295", "4294967296", "word" },
        { "4294967295", "-1", "word" },
        { "true", "1", "flag" },
        { "\"wide\":\"-1\"", "\"wide\":-1", "wide" },
        { "\"wide\":\"-1\"", "\"wide\":\"\"", "wide" },
        { "\"wide\":\"-1\"", "\"wide\":\"1-\"", "wide" },
        { "\"span\":\"-1\"", "\"span\":\"10\"", "span" },
        { "\"span\":\"-1\"", "\"span\":\"-2\"", "span" },
        { "09ff", "09f", "bytes" },
        { "09ff", "09fg", "bytes" },
        { "\"one\\ntwo\"", "[]", "tail" },
        { "\"flag\":true", "\"flag\":true,\"wide\":\"1\"", NULL },
        { "\"flag\":true", "\"fleg\":true", NULL },
        { "\"flag\":true,", "", "flag" },
        { "two\"}", "two\"} ", NULL },
        { "{\"text\"", "[\"text\"", NULL },
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *at = strstr(whole, cases[i].was);
        char text[sizeof whole + 40], words[80] = "";
        struct fsdp_err err = { 0 };

        snprintf(text, sizeof text, "%.*s%s%s", (int)(at - whole), whole, cases[i].is,
                 at + strlen(cases[i].was));
        cr_expect(eq(int, decode(text, &err), FSDP_ERR_FORMAT), "%s", text);
        if (cases[i].key != NULL)
            snprintf(words, sizeof words, "a message whose %s is missing or unfit", cases[i].key);
        cr_expect(ne(ptr, strstr(err.message, words), NULL), "%s: %s", text, err.message);
    }
}

/* A tail is bounded as a worker's last lines are, wherever its text comes from. */
Test(fields, a_tail_keeps_its_bounds)
{
    static const struct field tail[] = { FIELD(struct sample, TAIL, "tail", tail) };
    static char text[ERRORS_TAIL_BYTES + 200];

    for (int over = 0; over < 2; over++) {
        const int n = ERRORS_TAIL_BYTES + ERRORS_TAIL_LINES - 1 + over;
        const int size = snprintf(text, sizeof text, "{\"tail\":\"%0*d\"}", n, 0);

        cr_expect(eq(int, fields_decode(tail, 1, &sample, text, (size_t)size, NULL),
                     over ? FSDP_ERR_FORMAT : FSDP_OK));
    }
    snprintf(text, sizeof text, "{\"tail\":\"%s\"}",
             "1\\n2\\n3\\n4\\n5\\n6\\n7\\n8\\n9\\n10\\n11\\n12\\n13\\n14\\n"
             "15\\n16\\n17\\n18\\n19\\n20\\n21\\n22");
    cr_expect(eq(int, fields_decode(tail, 1, &sample, text, strlen(text), NULL), FSDP_OK));
    cr_assert(eq(int, sample.tail.n_lines, ERRORS_TAIL_LINES));
    cr_expect(eq(str, (char *)sample.tail.lines[ERRORS_TAIL_LINES - 1], "22"), "the last lines are kept");
}

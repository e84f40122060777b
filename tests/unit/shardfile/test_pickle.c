#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/shardfile/pickle.h"

static const char *const globals[] = { "torch Size", "collections OrderedDict" };
static struct pickle pickle;
static struct fsdp_err err;

#define READ(TEXT) pickle_read(&pickle, TEXT, sizeof(TEXT) - 1, globals, 2, &err)

static void end(void)
{
    pickle_free(&pickle);
}
TestSuite(pickle, .fini = end, .timeout = 30);

/* pickle.dumps({'a': [1, -2, 2.5, None, True], 'b': ('x', 300, 70000)}, 4), without its frame */
Test(pickle, data_is_read)
{
    uint64_t count;
    const struct pickle_value *a, *b;

    cr_assert(READ("\x80\x04}\x94(\x8c\x01"
                   "a\x94]\x94(K\x01J\xfe\xff\xff\xffG\x40\x04\0\0\0\0\0\0N\x88"
                   "e\x8c\x01"
                   "b\x94\x8c\x01x\x94M\x2c\x01J\x70\x11\x01\0\x87\x94u.") == FSDP_OK,
              "%s", err.message);

    a = pickle_get(pickle.root, "a");
    b = pickle_get(pickle.root, "b");
    cr_assert(a != NULL && a->kind == PICKLE_LIST && a->n == 5);
    cr_expect(pickle_count(a->items[0], &count) && count == 1);
    cr_expect(a->items[1]->number == -2 && !pickle_count(a->items[1], &count));
    cr_expect(a->items[2]->kind == PICKLE_REAL && a->items[2]->real == 2.5);
    cr_expect(a->items[3]->kind == PICKLE_NONE && a->items[4]->kind == PICKLE_BOOL);
    cr_expect(eq(str, (char *)pickle_text(pickle_item(b, 0)), "x"));
    cr_expect(pickle_count(pickle_item(b, 2), &count) && count == 70000);
    cr_expect(pickle_item(b, 3) == NULL && pickle_get(pickle.root, "c") == NULL &&
              pickle_get(NULL, "a") == NULL);
}

Test(pickle, a_call_is_an_object_and_not_made)
{
    uint64_t count;

    cr_assert(READ("\x80\x02"
                   "ctorch\nSize\nq\x00K\x04K\x05\x86\x85R.") == FSDP_OK,
              "%s", err.message);

    cr_expect(eq(int, pickle_global(pickle.root), 0));
    cr_expect(pickle_count(pickle_item(pickle_item(pickle_arguments(pickle.root), 0), 1), &count) &&
              count == 5);
    cr_expect(pickle_state(pickle.root) == NULL);
}

/* What os.system, eval, getattr and others would do is not found out. */
Test(pickle, any_other_name_is_refused_and_named)
{
    cr_expect(eq(int,
                 READ("\x80\x02"
                      "cos\nsystem\nX\x04\0\0\0true\x85R."),
                 FSDP_ERR_FORMAT));
    cr_expect_not_null(strstr(err.message, "os.system"), "%s", err.message);
    cr_expect(eq(int,
                 READ("\x80\x04\x8c\x08"
                      "builtins\x8c\x04"
                      "eval\x93."),
                 FSDP_ERR_FORMAT));
    cr_expect_not_null(strstr(err.message, "builtins.eval"), "%s", err.message);
    cr_expect(eq(int,
                 READ("\x80\x02"
                      "ctorch\nSizes\n."),
                 FSDP_ERR_FORMAT));
    cr_expect(eq(int,
                 READ("\x80\x02"
                      "ctorch Size\n\n."),
                 FSDP_ERR_FORMAT));
    cr_expect(pickle.root == NULL && pickle.blocks == NULL);
}

/* Of 256 operations, those that are known: the others are refused by number, and INST and OBJ among them. */
Test(pickle, any_other_operation_is_refused)
{
    static const char known[] = "\x80\x95.(N\x88\x89JKM\x8aGX\x8c\x8d)t\x85\x86\x87]ae}suhjqr\x94"
                                "c\x93R\x81"
                                "bQ";

    for (int op = 0; op < 256; op++) {
        const char text[] = { (char)op, '.' };

        if (memchr(known, op, sizeof known - 1) != NULL)
            continue;
        cr_assert(eq(int, pickle_read(&pickle, text, 2, globals, 2, &err), FSDP_ERR_FORMAT), "0x%02x", op);
        cr_assert_not_null(strstr(err.message, "operation 0x"), "%s", err.message);
    }
}

Test(pickle, what_does_not_fit_is_refused)
{
    static const struct {
        const char *text;
        size_t length;
    } bad[] = {
#define BAD(TEXT) { TEXT, sizeof TEXT - 1 }
        BAD(""),
        BAD("."),
        BAD("N"),
        BAD("NN."),
        BAD("(N."),
        BAD("t."),
        BAD("(a."),
        BAD("Na."),
        BAD("]N(a."),
        BAD("}NNNs."),
        BAD("}(Nu."),
        BAD("}Ns."),
        BAD("\x86."),
        BAD("N\x86."),
        BAD("h\0."),
        BAD("Nq\1."),
        BAD("q\0."),
        BAD("\x94."),
        BAD("NR."),
        BAD("N)R."),
        BAD("Nb."),
        BAD("N)b."),
        BAD("Q."),
        BAD("(Q."),
        BAD("J\1\1."),
        BAD("X\xff\xff\xff\xff."),
        BAD("\x8c\2x."),
        BAD("\x8d\xff\xff\xff\xff\xff\xff\xff\xff."),
        BAD("\x8a\x09\1\1\1\1\1\1\1\1\1."),
        BAD("\x80\6N."),
        BAD("ctorch\nSize"),
        BAD("NN\x93."),
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        cr_expect(
            eq(int, pickle_read(&pickle, bad[i].text, bad[i].length, globals, 2, &err), FSDP_ERR_FORMAT),
            "number %zu", i);
}

/* A list that contains itself, and a text with a zero byte. */
Test(pickle, odd_values_do_no_harm)
{
    cr_assert(READ("]q\0h\0a.") == FSDP_OK, "%s", err.message);
    cr_expect(pickle_item(pickle.root, 0) == pickle.root);
    pickle_free(&pickle);

    cr_assert(READ("\x8c\3a\0b.") == FSDP_OK, "%s", err.message);
    cr_expect(pickle_text(pickle.root) == NULL);
}

#include "agent/arbiter/base64.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/parameterized.h>
#include <string.h>

/* RFC 4648, section 10 */
static const char *const examples[][2] = { { "", "" },
                                           { "f", "Zg==" },
                                           { "fo", "Zm8=" },
                                           { "foo", "Zm9v" },
                                           { "foob", "Zm9vYg==" },
                                           { "fooba", "Zm9vYmE=" },
                                           { "foobar", "Zm9vYmFy" } };
enum { N_EXAMPLES = sizeof examples / sizeof *examples };

Test(base64, the_examples_of_the_rfc_are_encoded)
{
    for (int i = 0; i < N_EXAMPLES; i++) {
        char out[BASE64_TEXT_BYTES(6)];

        base64_encode(out, examples[i][0], strlen(examples[i][0]));

        cr_assert(eq(str, out, (char *)examples[i][1]));
        cr_assert(strlen(out) < BASE64_TEXT_BYTES(strlen(examples[i][0])));
    }
}

Test(base64, every_length_of_any_bytes_comes_back)
{
    unsigned char bytes[256], out[256];
    char text[BASE64_TEXT_BYTES(256)];
    size_t n;

    for (int i = 0; i < 256; i++)
        bytes[i] = (unsigned char)(255 - i);
    for (size_t length = 0; length <= sizeof bytes; length++) {
        base64_encode(text, bytes, length);

        cr_assert(base64_decode(out, length, &n, text), "%zu bytes", length);

        cr_assert(n == length && memcmp(out, bytes, n) == 0, "%zu bytes", length);
        cr_assert(length == 0 || !base64_decode(out, length - 1, &n, text), "they fit in less");
    }
}

ParameterizedTestParameters(base64, what_is_not_base64_is_refused)
{
    static char texts[][16] = { "Z",    "Zg",   "Zg=",    "=",        "==",
                                "===",  "====", "Z===",   "Zg=v",     "Z=g=",
                                "Zm9-", "Zm9 ", "Zm9v\n", "Zg==Zg==", "\xff\xff\xff\xff",
                                "Zh==", "Zm9=" /* bits beyond the last byte */ };

    return cr_make_param_array(char[16], texts, sizeof texts / sizeof *texts);
}

ParameterizedTest(char (*text)[16], base64, what_is_not_base64_is_refused)
{
    unsigned char out[64];
    size_t n;

    cr_assert(not(base64_decode(out, sizeof out, &n, *text)), "\"%s\"", *text);
}

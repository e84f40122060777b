#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

#include "shard_runtime/objectstore/s3_account.h"

struct variables {
    const char *names[8], *values[8];
};

static const char *get(void *arg, const char *name)
{
    const struct variables *variables = arg;

    for (int i = 0; i < 8 && variables->names[i] != NULL; i++)
        if (strcmp(variables->names[i], name) == 0)
            return variables->values[i];
    return NULL;
}

static enum fsdp_status read_account(struct s3_account *out, struct variables variables, struct fsdp_err *err)
{
    return s3_account_read(out, get, &variables, err);
}

#define KEYS "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"

Test(s3_account, without_more_it_is_amazons)
{
    struct s3_account account;

    cr_assert(
        eq(int, read_account(&account, (struct variables){ { KEYS }, { "id", "se:cret" } }, NULL), FSDP_OK));
    cr_assert(eq(str, account.endpoint, "https://s3.us-east-1.amazonaws.com"));
    cr_assert(eq(str, account.secret, "se:cret"));
}

Test(s3_account, the_variables_are_those_of_other_tools_and_the_closer_one_counts)
{
    struct s3_account account;
    const struct variables variables = { { KEYS, "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_ENDPOINT_URL",
                                           "AWS_ENDPOINT_URL_S3", "AWS_SESSION_TOKEN" },
                                         { "id", "s", "eu-west-1", "eu-central-1", "http://a:1",
                                           "http://b:2//", "t" } };

    cr_assert(eq(int, read_account(&account, variables, NULL), FSDP_OK));
    cr_assert(eq(str, account.region, "eu-central-1"));
    cr_assert(eq(str, account.endpoint, "http://b:2"));
    cr_assert(eq(str, account.token, "t"));
}

Test(s3_account, what_is_wrong_is_named_without_a_secret)
{
    static const struct variables wrong[] = {
        { { "AWS_ACCESS_KEY_ID" }, { "hidden" } },
        { { "AWS_SECRET_ACCESS_KEY" }, { "hidden" } },
        { { KEYS }, { "", "hidden" } },
        { { KEYS }, { "id", "hidden\n" } },
        { { KEYS, "AWS_REGION" }, { "id", "hidden", "eu/west" } },
        { { KEYS, "AWS_ENDPOINT_URL" }, { "id", "hidden", "ftp://a" } },
        { { KEYS, "AWS_ENDPOINT_URL" }, { "id", "hidden", "https://" } },
        { { KEYS, "AWS_ENDPOINT_URL" }, { "id", "hidden", "https://a/path" } },
        { { KEYS, "AWS_ENDPOINT_URL" }, { "id", "hidden", "https://hidden@a" } },
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct s3_account account;
        struct fsdp_err err = { 0 };

        cr_assert(eq(int, read_account(&account, wrong[i], &err), FSDP_ERR_CONFIG), "case %zu", i);
        cr_assert_not_null(strstr(err.message, "AWS_"), "case %zu: %s", i, err.message);
        cr_assert_null(strstr(err.message, "hidden"), "case %zu: %s", i, err.message);
    }
}

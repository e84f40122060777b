#include <criterion/criterion.h>
#include <netinet/in.h>
#include <string.h>

#include "agent/wire/lookup.h"

static uv_loop_t loop;
static int n_done;
static bool found_one;
static char reason[128];

static void set_up(void)
{
    cr_assert(uv_loop_init(&loop) == 0);
}

static void tear_down(void)
{
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(uv_loop_close(&loop) == 0, "a handle was left open");
}

TestSuite(lookup, .init = set_up, .fini = tear_down, .timeout = 600);

static void on_done(void *arg, struct addrinfo *found, const char *why)
{
    cr_assert(arg == &loop);
    n_done++;
    found_one = found != NULL;
    if (found != NULL)
        freeaddrinfo(found);
    snprintf(reason, sizeof reason, "%s", why != NULL ? why : "");
}

static struct lookup *begin(const char *host, uint64_t within_ms)
{
    struct lookup *lookup;

    cr_assert(lookup_begin(&lookup, &loop, host, "29400", within_ms, on_done, &loop, NULL) == FSDP_OK);
    return lookup;
}

Test(lookup, an_address_is_found_and_a_wrong_name_is_not)
{
    begin("127.0.0.1", 50000);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(n_done == 1 && found_one && reason[0] == '\0');

    begin("not a name!", 50000);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(n_done == 2 && !found_one && reason[0] != '\0');
}

Test(lookup, one_that_is_cancelled_is_not_heard_of)
{
    for (int i = 0; i < 20; i++) {
        struct lookup *lookup = begin("127.0.0.1", 50000);

        if (i % 2 == 0)
            uv_run(&loop, UV_RUN_NOWAIT); /* it may have come by now, and then it is gone */
        if (n_done == 0)
            lookup_cancel(lookup);
        uv_run(&loop, UV_RUN_DEFAULT);
        n_done = 0;
    }
    lookup_cancel(NULL);
}

Test(lookup, the_bound_holds)
{
    begin("127.0.0.1", 0); /* already over: either comes first, and only one is told */
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert(n_done == 1);
}

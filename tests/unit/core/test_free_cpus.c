#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "shard_runtime/core/free_cpus.h"

/* Of a host where so many threads run. */
static int of_load(const char *text)
{
    char path[] = "/tmp/fsdp-loadavg.XXXXXX";
    const int fd = mkstemp(path);
    int n;

    cr_assert(fd >= 0 && dprintf(fd, "%s", text) > 0);
    close(fd);
    n = free_cpus(path);
    unlink(path);
    return n;
}

Test(free_cpus, they_are_those_that_no_thread_runs_on)
{
    const int all = (int)sysconf(_SC_NPROCESSORS_ONLN);
    char words[64];

    cr_expect(of_load("0.00 0.01 0.05 1/123 4567\n") >= 0);
    cr_expect(of_load("0.00 0.01 0.05 1/123 4567\n") < all, "the caller needs one");
    snprintf(words, sizeof words, "9.99 9.99 9.99 %d/999 4567\n", all);
    cr_expect(eq(int, of_load(words), 0));
    snprintf(words, sizeof words, "9.99 9.99 9.99 %d/999 4567\n", 10 * all);
    cr_expect(eq(int, of_load(words), 0));
}

Test(free_cpus, none_where_the_load_is_not_known)
{
    cr_expect(eq(int, of_load("no numbers\n"), 0));
    cr_expect(eq(int, free_cpus("/nonexistent/loadavg"), 0));
}

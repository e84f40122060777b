#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/process_memory.h"

Test(process_memory, anonymous_and_shared_pages_count_mapped_files_do_not)
{
    cr_assert(
        eq(u64,
           process_memory_of_status("Name:\tx\nVmRSS:\t  999 kB\nRssAnon:\t  100 kB\nRssFile:\t  50 kB\n"
                                    "RssShmem:\t      7 kB\nVmData: 5 kB\n"),
           107 * 1024));
    cr_assert(eq(u64, process_memory_of_status("RssAnon:\t3 kB"), 3 * 1024));
    cr_assert(eq(u64, process_memory_of_status("xRssAnon:\t3 kB\n"), 0));
    cr_assert(eq(u64, process_memory_of_status(""), 0));
}

Test(process_memory, touched_pages_show)
{
    enum { BYTES = 32 << 20 };
    const uint64_t before = process_memory_now();
    char *block = malloc(BYTES);

    cr_assert_not_null(block);
    memset(block, 1, BYTES);
    cr_assert(ge(u64, process_memory_now(), before + BYTES / 10 * 9));
    cr_assert(eq(chr, block[BYTES - 1], 1));
    free(block);
}

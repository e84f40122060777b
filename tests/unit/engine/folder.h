/* Temporary folders of tests. */
#ifndef TEST_ENGINE_FOLDER_H
#define TEST_ENGINE_FOLDER_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/** Makes a new folder under /tmp; its path goes to `out`. */
static inline void folder_make(char out[64])
{
    snprintf(out, 64, "/tmp/fsdp-unit.XXXXXX");
    cr_assert_not_null(mkdtemp(out));
}

/** Removes the folder and all that is in it. */
static inline void folder_remove(const char *folder)
{
    char command[96];

    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    cr_expect_eq(system(command), 0);
}

#endif

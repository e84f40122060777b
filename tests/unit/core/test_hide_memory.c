#include <criterion/criterion.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shard_runtime/core/hide_memory.h"

/* The system's own word for it: no core dump, and no other process of this user reads its memory. */
static int dumpable_of_child(void)
{
    const pid_t child = fork();
    int status;

    if (child == 0)
        _exit(prctl(PR_GET_DUMPABLE));
    cr_assert_eq(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
}

Test(hide_memory, is_for_this_process_and_those_that_it_forks)
{
#ifdef __SANITIZE_ADDRESS__
    cr_skip_test("the leak check reads the memory of this process");
#endif
    cr_assert_eq(dumpable_of_child(), 1);

    core_hide_memory();

    cr_assert_eq(prctl(PR_GET_DUMPABLE), 0);
    cr_assert_eq(dumpable_of_child(), 0);
}

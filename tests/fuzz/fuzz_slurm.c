/*
 * The texts in Slurm's variables under libFuzzer: lists of hosts, and tasks per node.
 */
#include <string.h>

#include "launcher/slurm.h"
#include "tests/fuzz/fuzz.h"

/* A list of n hosts has the hosts 0 to n - 1, unless a name is too long, and no other. */
static void check_hosts(const char *list)
{
    char name[HOSTLIST_NAME_BYTES];
    const int n = hostlist_count(list), step = n / 16 + 1;

    never(n < 0 || n > HOSTLIST_MOST);
    never(hostlist_name(list, n, name) || name[0] != '\0');
    for (int i = 0; i < n; i += step) {
        const bool is_named = hostlist_name(list, i, name);

        never(is_named && (name[0] == '\0' || strpbrk(name, "[],") != NULL));
        never(!is_named && (name[0] != '\0' || strlen(list) < HOSTLIST_NAME_BYTES));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = malloc(size + 1);

    if (text == NULL)
        return 0;
    if (size > 0)
        memcpy(text, data, size);
    text[size] = '\0';
    check_hosts(text);
    for (int node = 0; node < 4; node++)
        never(slurm_tasks_of(text, node) < 0);
    free(text);
    return 0;
}

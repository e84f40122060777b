/* Links libfsdp.
 *
 * A race on purpose, through the same door as the kernels: two threads add to one number. It must be
 * reported, or the other programs here prove nothing.
 */
#include <stdio.h>

#include "shard_runtime/numerics/parallel.h"

static void add_range(void *context, size_t begin, size_t end)
{
    long *sum = context;

    for (size_t i = begin; i < end; i++)
        *sum += (long)i;
}

int main(void)
{
    long sum = 0;

    for (int i = 0; i < 100; i++)
        parallel_for(2, 1000, 1, add_range, &sum);
    printf("%ld\n", sum);
    return 0;
}

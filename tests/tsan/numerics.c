/* Links libfsdp.
 *
 * Every operation of the numerics row `plain`, on two and four threads, under the thread sanitizer. That
 * reports races; this program compares the bits with those of one thread. A plain main(): the unit tests'
 * framework aborts under it.
 */
#include <stdio.h>

#include "tests/unit/numerics/every_op.h"

static float *run(int threads, size_t *n)
{
    const struct numerics_config config = { .threads = threads, .name = "plain" };
    struct fsdp_err err = { 0 };
    struct numerics numerics;
    float *out;

    if (numerics_open(&numerics, &config, &err) != FSDP_OK) {
        fprintf(stderr, "%s\n", err.message);
        exit(1);
    }
    out = every_op_run(&numerics, n);
    numerics_close(&numerics);
    return out;
}

int main(void)
{
    static const int threads[] = { 2, 4 };
    size_t n, n_alone;
    float *alone = run(1, &n_alone);
    int n_wrong = 0;

    for (size_t i = 0; i < sizeof threads / sizeof *threads; i++) {
        float *out = run(threads[i], &n);

        if (n != n_alone || memcmp(out, alone, n * sizeof *out) != 0) {
            fprintf(stderr, "%d threads give other bits than one\n", threads[i]);
            n_wrong++;
        }
        free(out);
    }
    free(alone);
    return n_wrong != 0;
}

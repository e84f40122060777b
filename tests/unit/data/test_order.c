#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <criterion/theories.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/data/order.h"

static void assert_bijection(const struct order *order, uint64_t epoch)
{
    unsigned char *seen = calloc(order->n_samples, 1);

    cr_assert_not_null(seen);
    for (uint64_t i = 0; i < order->n_samples; i++) {
        const uint64_t sample = order_in_epoch(order, epoch, i);

        cr_assert(lt(u64, sample, order->n_samples));
        cr_assert(eq(int, seen[sample], 0), "N %llu epoch %llu: %llu twice",
                  (unsigned long long)order->n_samples, (unsigned long long)epoch,
                  (unsigned long long)sample);
        seen[sample] = 1;
    }
    free(seen);
}

Test(order, every_epoch_is_a_permutation)
{
    static const uint64_t sizes[] = { 4095, 4096, 4097, 65535, 65537, 100003 };
    struct order order = { .seed = 1234, .shuffled = true };

    for (order.n_samples = 1; order.n_samples <= 300; order.n_samples++)
        for (uint64_t epoch = 0; epoch < 3; epoch++)
            assert_bijection(&order, epoch);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        order.n_samples = sizes[i];
        assert_bijection(&order, i);
    }
}

Test(order, stays_inside_for_sizes_no_test_can_walk)
{
    static const uint64_t sizes[] = { (1ull << 40) + 1, (1ull << 62) + 3, UINT64_MAX };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const struct order order = { .n_samples = sizes[i], .seed = 7, .shuffled = true };

        for (uint64_t p = 0; p < 200; p++)
            cr_assert(lt(u64, order_in_epoch(&order, 0, sizes[i] - 1 - p), sizes[i]));
    }
}

Test(order, epochs_and_seeds_differ)
{
    enum { N = 1000 };
    const struct order a = { .n_samples = N, .seed = 1, .shuffled = true };
    const struct order b = { .n_samples = N, .seed = 2, .shuffled = true };
    int same_epoch = 0, same_seed = 0, in_place = 0;

    for (uint64_t i = 0; i < N; i++) {
        same_epoch += order_in_epoch(&a, 0, i) == order_in_epoch(&a, 1, i);
        same_seed += order_in_epoch(&a, 0, i) == order_in_epoch(&b, 0, i);
        in_place += order_in_epoch(&a, 0, i) == i;
    }

    /* Two random permutations agree in one place in the mean; ten has a chance of one in ten million. */
    cr_assert(lt(int, same_epoch, 10));
    cr_assert(lt(int, same_seed, 10));
    cr_assert(lt(int, in_place, 10));
}

Test(order, positions_cross_epochs_and_sequential_is_the_identity)
{
    const struct order shuffled = { .n_samples = 6, .seed = 9, .shuffled = true };
    const struct order sequential = { .n_samples = 5, .seed = 9, .shuffled = false };

    for (uint64_t p = 0; p < 30; p++) {
        cr_assert(eq(u64, order_sample(&shuffled, p), order_in_epoch(&shuffled, p / 6, p % 6)));
        cr_assert(eq(u64, order_sample(&sequential, p), p % 5));
    }
}

/* The claim on which resuming at another world size stands: ranks and micro-steps only cut up one sequence.
 */
TheoryDataPoints(order, world_size_and_batch_only_cut_the_sequence) = {
    DataPoints(int, 1, 2, 3, 4, 6, 12),
    DataPoints(int, 1, 2),
    DataPoints(unsigned long, 5, 12, 17),
};

Theory((int W, int halve, unsigned long n_samples), order, world_size_and_batch_only_cut_the_sequence)
{
    enum { GLOBAL = 12, STEPS = 5 };
    const struct order order = { .n_samples = n_samples, .seed = 3, .shuffled = true };
    const uint64_t batch = (uint64_t)(GLOBAL / W) / (uint64_t)halve;
    uint64_t got[GLOBAL * STEPS], cursor = 0;
    size_t n = 0;

    cr_assume(batch * (uint64_t)W * (uint64_t)halve == GLOBAL);
    while (cursor < GLOBAL * STEPS) {
        for (int rank = 0; rank < W; rank++)
            for (uint64_t i = 0; i < batch; i++)
                got[n++] = order_sample(&order, order_first(cursor, rank, batch) + i);
        cursor = order_advance(cursor, W, batch);
    }

    cr_assert(eq(u64, cursor, GLOBAL * STEPS));
    for (uint64_t p = 0; p < GLOBAL * STEPS; p++)
        cr_assert(eq(u64, got[p], order_sample(&order, p)));
}

Test(order, the_permutation_is_fixed_for_good)
{
    /* From tests/parity/counter.py, written from the definition. Saved cursors stand on these numbers: never
     * adapt them to a change of the code. */
    const struct order order = { .n_samples = 10, .seed = 1234, .shuffled = true };
    char got[200] = "";

    for (uint64_t p = 0; p < 20; p++)
        snprintf(got + strlen(got), sizeof got - strlen(got), "%llu ",
                 (unsigned long long)order_sample(&order, p));
    cr_assert_str_eq(got, "3 0 6 1 2 9 4 8 7 5 0 2 6 9 4 7 3 8 5 1 ");
}

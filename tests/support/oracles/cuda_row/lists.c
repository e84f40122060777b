/*
 * Lists of tensors: the bits that each has alone, in one launch.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/device/cpu_cast.h"
#include "tests/support/oracles/cuda_row/row.h"

enum { N_LISTED = 40, LISTED_ELEMS = 700 };

static size_t listed_length(size_t i)
{
    return i == 4 ? 0 : i == 9 ? 9001 : 1 + i * 37 % LISTED_ELEMS;
}

static size_t listed_start(size_t i)
{
    size_t at = 0;

    for (size_t j = 0; j < i; j++)
        at += listed_length(j);
    return at;
}

static void check_updates(void)
{
    const size_t n = listed_start(N_LISTED);
    struct tensor of[4] = { make(n), make(n), make(n), make(n) };
    struct numerics_update updates[N_LISTED];
    const uint64_t before[2] = { tally_of("adamw_chunks"), tally_of("sgd_chunks") };

    for (size_t i = 0; i < n; i++)
        of[3].host[i] = fabsf(of[3].host[i]);
    device.ops->copy(stream, of[3].device, of[3].host, n * sizeof(float), DEVICE_COPY_TO);
    require(device.ops->synchronize(stream, &err));
    for (int sgd = 0; sgd < 2; sgd++) {
        for (int r = 0; r < 2; r++) {
            for (size_t i = 0; i < N_LISTED; i++) {
                const struct op_rates h = { .lr = 1e-3 * (double)(1 + i % 3),
                                            .weight_decay = i % 2 ? 0.1 : 0 };
                const size_t first = listed_start(i);

                updates[i] = op_update(at(of[0], r) + first, at(of[1], r) + first, at(of[2], r) + first,
                                       at(of[3], r) + first, listed_length(i), &h, i % 5 ? 0.5f : 1.0f);
            }
            if (sgd)
                OP(sgd, each_row[r], on(r), .updates = updates, .n_updates = N_LISTED, .momentum = 0.9,
                   .step = 2);
            else
                OP(adamw, each_row[r], on(r), .updates = updates, .n_updates = N_LISTED, .beta1 = 0.9,
                   .beta2 = 0.95, .eps = 1e-8, .step = 3);
        }
        compare(sgd ? "SGD over a list: parameters" : "AdamW over a list: parameters", of[0], 0);
        compare(sgd ? "SGD over a list: momentum" : "AdamW over a list: first moments", of[2], 0);
        compare("over a list: second moments", of[3], 0);
    }
    say_launches("AdamW over a list is one launch", "adamw_chunks", before[0], 1);
    say_launches("SGD over a list is one launch", "sgd_chunks", before[1], 1);
    for (int t = 0; t < 4; t++)
        drop(of[t]);
}

static void check_norms(void)
{
    struct tensor x = make(listed_start(N_LISTED));
    struct numerics_span ours[N_LISTED], theirs[N_LISTED];
    double together[N_LISTED], alone, sums[N_LISTED], most = 0;
    uint64_t before;
    int n_differ = 0;

    for (size_t i = 0; i < N_LISTED; i++) {
        ours[i] = (struct numerics_span){ x.device + listed_start(i), listed_length(i), FSDP_F32 };
        theirs[i] = (struct numerics_span){ x.host + listed_start(i), listed_length(i), FSDP_F32 };
    }
    before = tally_of("power_chunks");
    cuda.ops->sum_powers(&cuda, stream, &(struct numerics_sum_powers){ ours, N_LISTED, 2, together });
    say_launches("norms of a list are one launch", "power_chunks", before, 1);
    ref.ops->sum_powers(&ref, NULL, &(struct numerics_sum_powers){ theirs, N_LISTED, 2, sums });
    for (size_t i = 0; i < N_LISTED; i++) {
        const double far = fabs(together[i] - sums[i]) / (sums[i] + 1e-30);

        alone = op_sum_powers(&cuda, stream, ours[i].data, ours[i].n_elems, 2);
        n_differ += memcmp(&alone, &together[i], sizeof alone) != 0;
        most = far > most || isnan(far) ? far : most;
    }
    say("norms of a list: another order of sums in double", most, 1e-12);
    say("norms of a list: the bits that each has alone", n_differ, 0);
    drop(x);
}

/* As a group is packed: pieces, here converted and scaled, and zeros behind them. */
static void check_copies(void)
{
    const size_t n = listed_start(N_LISTED);
    struct tensor from = make(n), to = make(n);
    struct device_cast casts[N_LISTED];
    const uint64_t before = tally_of("cast_chunks");

    for (size_t i = 0; i < N_LISTED; i++) {
        const size_t at = listed_start(i), size_bytes = listed_length(i) * sizeof(float);

        casts[i] = (struct device_cast){ .to = to.device + at,
                                         .from = i % 4 == 3 ? NULL : from.device + at,
                                         .n_elems = listed_length(i) };
        if (i % 4 == 3)
            memset(to.host + at, 0, size_bytes);
        else
            cpu_cast_elems(to.host + at, FSDP_F32, from.host + at, FSDP_F32, listed_length(i), 0.25f, false);
    }
    device_cast_list(&device, stream, casts, N_LISTED, 0.25f, false);
    compare("copies of a list", to, 0);
    say_launches("copies of a list are one launch", "cast_chunks", before, 1);
    drop(from), drop(to);
}

void check_lists(void)
{
    check_updates();
    check_norms();
    check_copies();
}

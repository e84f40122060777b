/*
 * The residual sum.
 */
#include "shard_runtime/cuda/kernels/walk.h"

namespace
{

template <class T, int N>
__global__ void __launch_bounds__(FLAT_THREADS) add_elems(const T *a, const T *b, T *out, size_t n_elems)
{
    flat_each<N>(n_elems, [&](auto w, size_t i) {
        constexpr int M = decltype(w)::value;
        const group<T, M> x = load_group<M>(a + i), y = load_group<M>(b + i);
        group<T, M> sum;

        for (int k = 0; k < M; k++)
            narrow(widen(x.at[k]) + widen(y.at[k]), &sum.at[k]);
        store_group<M>(out + i, sum);
    });
}

} // namespace

int kernel_add(struct CUstream_st *stream, const void *a, const void *b, void *out, size_t n_elems,
               enum fsdp_dtype dtype)
{
    return by_dtype(dtype, [&](auto type) {
        using T = decltype(type);
        const T *x = static_cast<const T *>(a), *y = static_cast<const T *>(b);
        T *sum = static_cast<T *>(out);

        if (n_elems == 0)
            return static_cast<int>(KERNEL_OK);
        if (is_packed(a) && is_packed(b) && is_packed(out))
            return LAUNCH((add_elems<T, pack<T>::N>), blocks_of(n_elems, FLAT_THREADS * pack<T>::N),
                          FLAT_THREADS, 0, stream, x, y, sum, n_elems);
        return LAUNCH((add_elems<T, 1>), blocks_of(n_elems, FLAT_THREADS), FLAT_THREADS, 0, stream, x, y, sum,
                      n_elems);
    });
}

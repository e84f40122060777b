/*
 * Norms for clipping. A block sums a chunk of one tensor in double, and another adds the tensor's chunks. The
 * order of both depends only on the tensor's length.
 */
#include "shard_runtime/cuda/kernels/batch.h"
#include "shard_runtime/cuda/kernels/reduce.h"

namespace
{

constexpr size_t ROOM_BYTES = BATCH_THREADS / WARP * sizeof(double);

__device__ double power_of(double size, double p)
{
    if (p == 2)
        return size * size;
    return p == 1 || isinf(p) ? size : pow(size, p);
}

/* Takes one more number into a thread's sum, or into its largest number if p is infinite. */
__device__ double taken(double sum, double value, double p)
{
    return isinf(p) ? larger(sum, value) : sum + value;
}

__device__ double block_taken(double value, double p)
{
    double *room = block_shared<double>();

    return isinf(p) ? block_reduce(value, room, take_largest()) : block_reduce(value, room, take_sum());
}

/* `partial` has one element for each block, beginning with the first block of this launch. */
template <class List>
__global__ void __launch_bounds__(BATCH_THREADS) power_chunks(READ_ONLY(List) list, double p, double *partial)
{
    const unsigned entry = entry_of_block(list);
    size_t first, end;
    double sum = 0;

    chunk_of_block(list, entry, CUDA_SPAN_CHUNK_ELEMS, &first, &end);
    for (size_t i = first + threadIdx.x; i < end; i += BATCH_THREADS)
        sum = taken(
            sum,
            power_of(fabs(static_cast<double>(read_elem(list.at[entry].data, list.at[entry].dtype, i))), p),
            p);
    sum = block_taken(sum, p);
    if (threadIdx.x == 0)
        partial[blockIdx.x] = sum;
}

/* One block computes one tensor: the sum of its chunks. */
template <class List>
__global__ void __launch_bounds__(BATCH_THREADS)
    power_totals(READ_ONLY(List) list, double p, const double *partial, double *out)
{
    double sum = 0;

    for (size_t i = list.first_block[blockIdx.x] + threadIdx.x; i < list.first_block[blockIdx.x + 1];
         i += BATCH_THREADS)
        sum = taken(sum, partial[i], p);
    sum = block_taken(sum, p);
    if (threadIdx.x == 0)
        out[blockIdx.x] = sum;
}

} // namespace

int kernel_sum_powers(struct CUstream_st *stream, const struct numerics_span *spans, size_t n_spans, double p,
                      double *out, void *scratch)
{
    for (size_t i = 0; i < n_spans; i++)
        if (!is_float_dtype(spans[i].dtype))
            return KERNEL_INVALID;
    if (!(p >= 1))
        return KERNEL_INVALID;
    return each_batch<struct numerics_span>(
        n_spans, CUDA_SPAN_CHUNK_ELEMS, [&](size_t i) { return spans[i]; },
        [&](const auto &list, unsigned blocks, struct batch_place place) {
            typedef list_type<decltype(list)> List;
            double *partial = static_cast<double *>(scratch) + place.blocks;
            const int status = blocks == 0 ? KERNEL_OK
                                           : LAUNCH(power_chunks<List>, blocks, BATCH_THREADS, ROOM_BYTES,
                                                    stream, list, p, partial);

            return status != KERNEL_OK ? status
                                       : LAUNCH(power_totals<List>, list.n, BATCH_THREADS, ROOM_BYTES, stream,
                                                list, p, partial, out + place.entries);
        });
}

#include "shard_runtime/numerics/onednn_rehearse.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/numerics/parallel.h"

/*
 * Limit of the multiplications for one matrix of a rehearsal: 20 ms on one core with AVX-512. oneDNN packs
 * blocks of limited size, so a larger product needs little more memory than one of this size.
 */
#define MOST_WORK 0x1p29

bool onednn_needs_rehearsal(const dnnl_primitive_desc_t chosen)
{
    const char *name = NULL;

    return dnnl_primitive_desc_query(chosen, dnnl_query_impl_info_str, 0, &name) == dnnl_success &&
           name != NULL && strncmp(name, "gemm", 4) == 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t *largest_of(struct matmul_desc *desc)
{
    size_t *largest = desc->m > desc->n ? &desc->m : &desc->n;

    return desc->k > *largest ? &desc->k : largest;
}

/*
 * Returns a smaller product of the same kind as `desc`. The smaller product has one matrix per thread, or two
 * with a single thread, because oneDNN computes a single matrix in another way.
 */
static struct matmul_desc cut_down(const struct matmul_desc *desc, int threads)
{
    const size_t most = threads < 2 ? 2 : (size_t)threads;
    struct matmul_desc cut = *desc;

    cut.inner = least(desc->inner, most);
    cut.outer = least(desc->outer, (most + cut.inner - 1) / cut.inner);
    while ((double)cut.m * (double)cut.n * (double)cut.k > MOST_WORK)
        *largest_of(&cut) /= 2;
    return cut;
}

static size_t extent_bytes(const struct matmul_desc *desc, const struct matmul_view *view, size_t rows,
                           size_t cols, enum fsdp_dtype dtype)
{
    return fsdp_dtype_size(dtype) *
           ((desc->outer - 1) * view->outer_stride + (desc->inner - 1) * view->inner_stride +
            (rows - 1) * view->row_stride + (cols - 1) * view->col_stride + 1);
}

enum { A, B, BIAS, C, SCRATCH, N_BUFFERS };

/*
 * Runs the product twice on zeros. The operands are mapped, not allocated: the later behaviour of malloc
 * depends on the sizes that it has seen. Two runs are needed because malloc maps the first blocks of a size
 * separately. From the second run on it takes such blocks from its heap, which it keeps.
 */
static enum fsdp_status run_on_zeros(const struct matmul_desc *desc, struct matmul *matmul,
                                     size_t scratch_bytes, struct fsdp_err *err)
{
    const size_t bytes[N_BUFFERS] = { [A] = extent_bytes(desc, &desc->a, desc->m, desc->k, desc->dtype),
                                      [B] = extent_bytes(desc, &desc->b, desc->k, desc->n, desc->dtype),
                                      [BIAS] = desc->n * sizeof(float),
                                      [C] = extent_bytes(desc, &desc->c, desc->m, desc->n, desc->c_dtype),
                                      [SCRATCH] = scratch_bytes };
    enum fsdp_status status = FSDP_OK;
    void *buffers[N_BUFFERS] = { NULL };

    for (int i = 0; i < N_BUFFERS && status == FSDP_OK; i++) {
        void *zeros = bytes[i] == 0 ? NULL
                                    : mmap(NULL, bytes[i], PROT_READ | PROT_WRITE,
                                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

        if (zeros == MAP_FAILED)
            status = fsdp_fail(err, FSDP_ERR_NOMEM, "matmul: %zu bytes to rehearse a product: %s", bytes[i],
                               strerror(errno));
        else
            buffers[i] = zeros;
    }
    for (int run = 0; run < 2 && status == FSDP_OK; run++)
        status = onednn_matmul_run(matmul, NULL, buffers[A], buffers[B], buffers[BIAS], buffers[C],
                                   buffers[SCRATCH], err);
    for (int i = 0; i < N_BUFFERS; i++)
        if (buffers[i] != NULL)
            (void)munmap(buffers[i], bytes[i]);
    return status;
}

/*
 * For each thread, glibc keeps up to KEPT_BLOCKS freed blocks of each size (tcache). The sizes are multiples
 * of SIZE_STEP bytes.
 */
enum { KEPT_BLOCKS = 7, SIZE_STEP = 16, MOST_KEPT = 512 };

static void fill_kept_blocks(void *unused, size_t begin, size_t end)
{
    void *volatile blocks[KEPT_BLOCKS]; /* volatile: otherwise the compiler removes both calls */

    (void)unused, (void)begin, (void)end;
    for (size_t size = SIZE_STEP; size <= MOST_KEPT; size += SIZE_STEP) {
        for (int i = 0; i < KEPT_BLOCKS; i++)
            blocks[i] = malloc(size);
        for (int i = 0; i < KEPT_BLOCKS; i++)
            free(blocks[i]);
    }
}

/*
 * Fills the tcache of every thread, so that malloc reuses oneDNN's blocks. Without this, a thread may take
 * new memory up to seven times:
 *   1. oneDNN requests an aligned block. malloc cuts a few bytes off both ends.
 *   2. The thread's tcache keeps the first such pieces, so malloc does not join them with their block again.
 *   3. The freed block is then too small for the next request of the same size.
 *
 * With a full tcache, malloc joins the pieces with their block at once.
 */
static void settle_malloc(const struct numerics *numerics)
{
    parallel_for(numerics->threads, (size_t)numerics->threads, 1, fill_kept_blocks, NULL);
}

static bool same_sizes(const struct matmul_desc *a, const struct matmul_desc *b)
{
    return a->outer == b->outer && a->inner == b->inner && a->m == b->m && a->n == b->n && a->k == b->k;
}

enum fsdp_status onednn_rehearse(struct numerics *numerics, const struct matmul_desc *desc,
                                 struct matmul *matmul, size_t scratch_bytes, struct fsdp_err *err)
{
    const struct matmul_desc cut = cut_down(desc, numerics->threads);
    struct matmul *smaller;

    settle_malloc(numerics);
    if (same_sizes(&cut, desc))
        return run_on_zeros(desc, matmul, scratch_bytes, err);
    /* onednn_matmul_create() rehearses the smaller product itself, because that one is small enough. */
    OK_OR_RETURN(onednn_matmul_create(numerics, &cut, &smaller, &scratch_bytes, err));
    onednn_matmul_destroy(smaller);
    return FSDP_OK;
}

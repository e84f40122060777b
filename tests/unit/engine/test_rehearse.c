/*
 * A process that has rehearsed generates no more code for attention's float32 products, where oneDNN has no
 * kernels that it generates for one shape alone. So both tests limit it to AVX2.
 */
#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/engine/rehearse.h"
#include "shard_runtime/numerics/numerics.h"

/* Bytes of executable memory that no file holds: generated code. */
static unsigned long generated_bytes(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[4096], rights[8];
    unsigned long bytes = 0, begin, end, inode;

    cr_assert(ne(ptr, maps, NULL));
    while (fgets(line, sizeof line, maps) != NULL)
        if (sscanf(line, "%lx-%lx %7s %*s %*s %lu", &begin, &end, rights, &inode) == 4 && inode == 0 &&
            rights[2] == 'x' && strchr(line, '[') == NULL)
            bytes += end - begin;
    fclose(maps);
    return bytes;
}

static void create_product_of_attention(int threads)
{
    const struct matmul_desc desc = { .outer = 2,
                                      .inner = 4,
                                      .m = 64,
                                      .n = 64,
                                      .k = 32,
                                      .a = { 64 * 128, 32, 128, 1 },
                                      .b = { 64 * 128, 32, 1, 128 },
                                      .c = { 4 * 64 * 64, 64 * 64, 64, 1 },
                                      .dtype = FSDP_F32,
                                      .c_dtype = FSDP_F32,
                                      .alpha = 0.5f };
    struct numerics numerics;
    struct matmul *product;
    struct fsdp_err err = { 0 };
    size_t scratch_bytes;

    cr_assert(
        eq(int,
           numerics_open(&numerics, &(struct numerics_config){ .threads = threads, .name = "onednn" }, &err),
           FSDP_OK),
        "%s", err.message);
    cr_assert(eq(int, numerics.ops->matmul_create(&numerics, &desc, &product, &scratch_bytes, &err), FSDP_OK),
              "%s", err.message);
    numerics.ops->matmul_destroy(product);
    numerics_close(&numerics);
}

Test(rehearse, leaves_no_code_of_attention_to_generate)
{
    unsigned long before, rehearsed;

    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
    before = generated_bytes();
    engine_rehearse();
    rehearsed = generated_bytes();
    create_product_of_attention(2);
    cr_expect(eq(ulong, generated_bytes(), rehearsed), "%lu bytes before the rehearsal", before);
}

Test(rehearse, is_what_generates_it)
{
    unsigned long before = generated_bytes(), created;

    setenv("DNNL_MAX_CPU_ISA", "AVX2", 1);
    create_product_of_attention(2);
    created = generated_bytes() - before;
    if (created == 0)
        cr_skip("this oneDNN generates no code for such products here");
    engine_rehearse();
    cr_expect(eq(ulong, generated_bytes() - before, created), "it is the same code");
}

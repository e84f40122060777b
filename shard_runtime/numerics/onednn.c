#include "shard_runtime/numerics/onednn.h"

#include <stdio.h>
#include <stdlib.h>

enum fsdp_status onednn_status(dnnl_status_t status, const char *doing, struct fsdp_err *err)
{
    static const char *const words[] = {
        [dnnl_success] = "success",
        [dnnl_out_of_memory] = "out of memory",
        [dnnl_invalid_arguments] = "invalid arguments",
        [dnnl_unimplemented] = "not implemented",
        [dnnl_iterator_ends] = "no implementation left",
        [dnnl_runtime_error] = "runtime error",
        [dnnl_not_required] = "not required",
    };
    enum fsdp_status ours = FSDP_ERR_UNSUPPORTED;

    if (status == dnnl_success)
        return FSDP_OK;
    if (status == dnnl_out_of_memory)
        ours = FSDP_ERR_NOMEM;
    else if (status == dnnl_invalid_arguments)
        ours = FSDP_ERR_ARG;
    return fsdp_fail(err, ours, "matmul: oneDNN: %s: %s", doing,
                     (size_t)status < sizeof words / sizeof *words ? words[status] : "unknown status");
}

/* Returns the instruction set that oneDNN may use for products; DNNL_MAX_CPU_ISA can limit it. */
static enum ways_isa isa_of_products(void)
{
    const unsigned isa = (unsigned)dnnl_get_effective_cpu_isa(),
                   bf16 = (unsigned)dnnl_cpu_isa_avx512_core_bf16,
                   amx = (unsigned)dnnl_cpu_isa_avx512_core_amx;

    return (isa & amx) == amx     ? WAYS_ISA_AMX_BF16
           : (isa & bf16) == bf16 ? WAYS_ISA_AVX512_BF16
                                  : WAYS_ISA_ANY;
}

static void onednn_close(struct numerics *numerics)
{
    struct onednn *state = numerics->state;

    if (state == NULL)
        return;
    if (state->stream != NULL)
        (void)dnnl_stream_destroy(state->stream);
    if (state->engine != NULL)
        (void)dnnl_engine_destroy(state->engine);
    free(state);
    numerics->state = NULL;
}

static enum fsdp_status onednn_open(struct numerics *numerics, struct fsdp_err *err)
{
    enum fsdp_status status;
    struct onednn *state = calloc(1, sizeof *state);

    if (state == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "numerics onednn: no memory for its state");
    numerics->state = state;
    status = rows_init(&state->rows, err);
    if (status == FSDP_OK)
        status = onednn_status(dnnl_engine_create(&state->engine, dnnl_cpu, 0), "opening the cpu", err);
    if (status == FSDP_OK)
        status = onednn_status(dnnl_stream_create(&state->stream, state->engine, dnnl_stream_in_order),
                               "opening a stream", err);
    if (status != FSDP_OK) {
        onednn_close(numerics);
        return status;
    }
    numerics->isa = isa_of_products();
    numerics->bf16_products = ways_of(numerics->isa)->bf16_products;
    if (numerics->precision == FSDP_MATMUL_HIGH && ways_of(numerics->isa)->split_products)
        numerics->splits_products = true;
    return FSDP_OK;
}

/*
 * Returns the name of an instruction set of oneDNN. One that is not listed here is printed as a number into
 * `other`.
 */
static const char *isa_name(dnnl_cpu_isa_t isa, char other[16])
{
    switch (isa) {
    case dnnl_cpu_isa_sse41:
        return "sse41";
    case dnnl_cpu_isa_avx:
        return "avx";
    case dnnl_cpu_isa_avx2:
        return "avx2";
    case dnnl_cpu_isa_avx2_vnni:
        return "avx2_vnni";
    case dnnl_cpu_isa_avx512_core:
        return "avx512_core";
    case dnnl_cpu_isa_avx512_core_vnni:
        return "avx512_core_vnni";
    case dnnl_cpu_isa_avx512_core_bf16:
        return "avx512_core_bf16";
    case dnnl_cpu_isa_avx512_core_amx:
        return "avx512_core_amx";
    default:
        (void)snprintf(other, 16, "isa_%x", (unsigned)isa);
        return other;
    }
}

static void onednn_describe(const struct numerics *numerics, char *buffer, size_t size)
{
    const struct onednn *state = numerics->state;
    const dnnl_version_t *version = dnnl_version();
    const char *high = "";
    char other[16];

    if (numerics->precision == FSDP_MATMUL_HIGH)
        high = numerics->splits_products ? ", float32 as three products of bfloat16"
                                         : ", matmul_precision high without effect: no AMX";
    (void)snprintf(buffer, size, "%d.%d.%d (products %s, rows %s, bfloat16 %s%s)", version->major,
                   version->minor, version->patch, isa_name(dnnl_get_effective_cpu_isa(), other),
                   state->rows.kernels->isa, numerics->bf16_products ? "native" : "by float32 products",
                   high);
}

const struct numerics_ops numerics_onednn_ops = { .name = "onednn",
                                                  .open = onednn_open,
                                                  .close = onednn_close,
                                                  .describe = onednn_describe,
                                                  .matmul_create = onednn_matmul_create,
                                                  .matmul_destroy = onednn_matmul_destroy,
                                                  .matmul_run = onednn_matmul_run,
                                                  ROWS_SLOTS };

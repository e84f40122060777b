#include <fsdp/dtype.h>

#include <string.h>

static const struct {
    size_t size;
    const char *name;
    const char *safetensors_name;
} rows[FSDP_DTYPE_COUNT] = {
    [FSDP_F32] = { 4, "float32", "F32" }, [FSDP_BF16] = { 2, "bfloat16", "BF16" },
    [FSDP_F64] = { 8, "float64", "F64" }, [FSDP_I64] = { 8, "int64", "I64" },
    [FSDP_I32] = { 4, "int32", "I32" },   [FSDP_U8] = { 1, "uint8", "U8" },
    [FSDP_F16] = { 2, "float16", "F16" },
};

size_t fsdp_dtype_size(enum fsdp_dtype dtype)
{
    return (unsigned)dtype < FSDP_DTYPE_COUNT ? rows[dtype].size : 0;
}

const char *fsdp_dtype_name(enum fsdp_dtype dtype)
{
    return (unsigned)dtype < FSDP_DTYPE_COUNT ? rows[dtype].name : "unknown";
}

const char *fsdp_dtype_safetensors_name(enum fsdp_dtype dtype)
{
    return (unsigned)dtype < FSDP_DTYPE_COUNT ? rows[dtype].safetensors_name : "unknown";
}

bool fsdp_dtype_parse(const char *name, enum fsdp_dtype *out)
{
    for (int i = 0; name != NULL && out != NULL && i < FSDP_DTYPE_COUNT; i++) {
        if (strcmp(name, rows[i].name) == 0 || strcmp(name, rows[i].safetensors_name) == 0) {
            *out = (enum fsdp_dtype)i;
            return true;
        }
    }
    return false;
}

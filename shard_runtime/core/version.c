#include "shard_runtime/core/version.h"

const char *version_number(void)
{
    return FSDP_VERSION;
}

const char *version_commit(void)
{
    return FSDP_COMMIT;
}

const char *version_compiler(void)
{
#ifdef __clang__
    return "clang " __clang_version__;
#else
    return "gcc " __VERSION__;
#endif
}

#include "launcher/cmd_version.h"

#include <cjson/cJSON.h>
#include <openssl/opensslv.h>
#include <uv.h>
#include <yaml.h>

#include <fsdp/link.h>

#include "shard_runtime/core/version.h"

int cmd_version(FILE *out)
{
    fprintf(out, "fsdprun %s\n", version_number());
    fprintf(out, "commit %s\n", version_commit());
    fprintf(out, "compiler %s\n", version_compiler());
    fprintf(out, "features programs jobs cpu shm tcp tls1.3 restart checkpoint agent\n");
    fprintf(out, "by plug-in cuda nccl (libfsdp_cuda.so)\n");
    fprintf(out, "libraries libuv %s, libyaml %s, cJSON %s, %s\n", uv_version_string(),
            yaml_get_version_string(), cJSON_Version(), OPENSSL_VERSION_TEXT);
    return fflush(out) == 0 ? 0 : FSDP_EXIT_IO;
}

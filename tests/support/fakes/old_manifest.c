/* libfsdp: old_manifest STEP_DIRECTORY: rewrite its manifest as 0.1.0 wrote it, without `extra`. */
#include <stdio.h>
#include <stdlib.h>

#include "shard_runtime/shardfile/manifest.h"

int main(int argc, char **argv)
{
    char path[IO_PATH_BYTES], *head = NULL, *text = NULL;
    struct manifest manifest = { 0 };
    struct fsdp_err err = { 0 };
    size_t head_length, length;
    FILE *file;

    if (argc != 2 || manifest_read(&io_posix, argv[1], &manifest, &err) != FSDP_OK)
        goto failed;
    manifest.extra = NULL;
    if (manifest_head_text(&manifest, &head, &head_length, &err) != FSDP_OK ||
        manifest_compose(head, head_length, manifest.files, manifest.n_files, &text, &length, &err) !=
            FSDP_OK)
        goto failed;
    snprintf(path, sizeof path, "%s/" MANIFEST_FILE, argv[1]);
    file = fopen(path, "w");
    if (file == NULL || fwrite(text, 1, length, file) != length || fclose(file) != 0)
        goto failed;
    free(head);
    free(text);
    manifest_free(&manifest);
    return 0;
failed:
    fprintf(stderr, "old_manifest: %s\n", err.message);
    return 1;
}

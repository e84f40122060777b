/* What ranks exchange: a file for each call and rank. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/emulation/cuda/nccl/standin.h"

static void path_of(const struct nccl_communicator *comm, uint64_t number, int rank,
                    char path[PATH_BYTES + 64])
{
    snprintf(path, PATH_BYTES + 64, "%s.%llu.%d", comm->prefix, (unsigned long long)number, rank);
}

/* Whole or not at all: written under another name and renamed. */
void standin_publish(const struct nccl_communicator *comm, uint64_t number, const struct head *head,
                     const void *data, size_t size_bytes)
{
    char path[PATH_BYTES + 64], beside[PATH_BYTES + 72];
    FILE *file;

    path_of(comm, number, comm->rank, path);
    snprintf(beside, sizeof beside, "%s.new", path);
    file = fopen(beside, "wb");
    if (file == NULL || fwrite(head, sizeof *head, 1, file) != 1 ||
        (size_bytes > 0 && fwrite(data, size_bytes, 1, file) != 1) || fclose(file) != 0 ||
        rename(beside, path) != 0)
        abort();
}

bool standin_is_there(const struct nccl_communicator *comm, uint64_t number, int rank)
{
    char path[PATH_BYTES + 64];

    path_of(comm, number, rank, path);
    return access(path, R_OK) == 0;
}

/* Part of a rank's data behind its head, which must be ours. */
bool standin_fetch(const struct nccl_communicator *comm, uint64_t number, int rank, const struct head *mine,
                   size_t at, void *to, size_t size_bytes)
{
    char path[PATH_BYTES + 64];
    struct head head;
    FILE *file;
    bool same;

    path_of(comm, number, rank, path);
    file = fopen(path, "rb");
    if (file == NULL || fread(&head, sizeof head, 1, file) != 1)
        abort();
    same = head.what == mine->what && head.type == mine->type && head.op == mine->op &&
           head.root == mine->root && head.n_elems == mine->n_elems;
    if (same && size_bytes > 0 &&
        (fseek(file, (long)at, SEEK_CUR) != 0 || fread(to, size_bytes, 1, file) != 1))
        abort();
    (void)fclose(file);
    return same;
}

/* Everybody's `number` is there: nobody reads what came before it any more. */
void standin_forget(const struct nccl_communicator *comm, uint64_t number)
{
    char path[PATH_BYTES + 64];

    path_of(comm, number, comm->rank, path);
    (void)unlink(path);
}

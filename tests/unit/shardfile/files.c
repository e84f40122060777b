#include "tests/unit/shardfile/files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[256];

const char *files_begin(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(root, sizeof root, "%s/fsdp-unit.XXXXXX", tmp == NULL ? "/tmp" : tmp);
    cr_assert_not_null(mkdtemp(root));
    return root;
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *ftw)
{
    (void)stat, (void)type, (void)ftw;
    return remove(path);
}

void files_end(void)
{
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *files_path(const char *directory, const char *name)
{
    static char paths[8][IO_PATH_BYTES];
    static unsigned next;
    char *path = paths[next++ % 8];

    snprintf(path, IO_PATH_BYTES, "%s/%s", directory, name);
    return path;
}

unsigned char *files_read(const char *path, size_t *size_bytes)
{
    char *bytes;

    cr_assert(io_read_file(&io_posix, path, SIZE_MAX - 1, &bytes, size_bytes, NULL) == FSDP_OK, "%s", path);
    return (unsigned char *)bytes;
}

void files_write(const char *path, const void *bytes, size_t size_bytes)
{
    FILE *file = fopen(path, "w");

    cr_assert_not_null(file, "%s", path);
    cr_assert(fwrite(bytes, 1, size_bytes, file) == size_bytes);
    cr_assert(fclose(file) == 0);
}

bool files_exist(const char *path)
{
    return access(path, F_OK) == 0;
}

int files_no_locks(struct fsdp_io *io, int fd, int operation)
{
    (void)io, (void)fd, (void)operation;
    errno = EOPNOTSUPP;
    return -1;
}

int files_count(const char *path)
{
    struct io_names names;
    int n;

    if (io_posix.list(&io_posix, path, &names) < 0)
        return -1;
    n = (int)names.n;
    io_names_free(&names);
    return n;
}

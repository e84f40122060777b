/* File operations below a folder: the same as io_posix's, but never by a link of another user. */
#include "shard_runtime/shardfile/io_beneath.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char run[64], disk[64];
static struct fsdp_io *io;

static const char *in(const char *where, const char *name)
{
    static char paths[4][256];
    static int turn;
    char *path = paths[turn++ % 4];

    snprintf(path, sizeof paths[0], "%s/%s", where, name);
    return path;
}

static void set_up(void)
{
    int fd;

    snprintf(run, sizeof run, "/tmp/fsdp-run.XXXXXX");
    snprintf(disk, sizeof disk, "/tmp/fsdp-disk.XXXXXX");
    cr_assert(mkdtemp(run) != NULL && mkdtemp(disk) != NULL);
    fd = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    io = io_beneath_create(run, fd);
    cr_assert_not_null(io);
    close(fd);
}

static void tear_down(void)
{
    char command[256];

    io_beneath_destroy(io);
    snprintf(command, sizeof command, "rm -rf %s %s", run, disk);
    (void)!system(command);
}

TestSuite(io_beneath, .init = set_up, .fini = tear_down);

/* Every path operation once, below `folder` of the run directory; how many of them worked. */
static int work(const char *folder)
{
    char base[128];
    struct io_names names = { 0 };
    struct io_stat stat;
    int n = 0, fd;

    snprintf(base, sizeof base, "%s", in(run, folder));
    n += io->mkdir(io, in(base, "a"), 0777) == 0;
    n += io->mkdir(io, in(base, "b"), 0777) == 0;
    fd = io->open(io, in(base, "a/file"), O_WRONLY | O_CREAT | O_EXCL, 0666);
    n += fd >= 0;
    if (fd >= 0)
        io->close(io, fd);
    n += io->exchange(io, in(base, "a"), in(base, "b")) == 0;
    n += io->stat(io, in(base, "b/file"), &stat) == 0 && stat.kind == IO_FILE;
    n += io->rename(io, in(base, "b"), in(base, "c")) == 0;
    n += io->list(io, base, &names) == 0 && names.n == 2 && strcmp(names.names[1], "c") == 0;
    io_names_free(&names);
    n += io->unlink(io, in(base, "c/file")) == 0;
    n += io->rmdir(io, in(base, "c")) == 0;
    return n;
}

Test(io_beneath, every_operation_works_in_a_folder_and_by_a_link_of_ones_own)
{
    cr_assert(mkdir(in(run, "plain"), 0777) == 0 && symlink(disk, in(run, "checkpoints")) == 0);

    cr_expect_eq(work("plain"), 9);
    cr_expect_eq(work("checkpoints"), 9);
    cr_expect_eq(access(in(disk, "a"), F_OK), 0);
}

Test(io_beneath, no_operation_works_by_a_link_of_another_user)
{
    if (geteuid() != 0)
        cr_skip_test("needs root to make a link of another user");
    cr_assert(symlink(disk, in(run, "checkpoints")) == 0);
    cr_assert(lchown(in(run, "checkpoints"), 65533, 65533) == 0);

    cr_expect_eq(work("checkpoints"), 0);
    cr_expect_eq(rmdir(disk), 0, "nothing came there");
}

Test(io_beneath, the_folder_it_was_made_for_stays_the_one_that_is_used)
{
    char moved[80];

    snprintf(moved, sizeof moved, "%s.moved", run);
    cr_assert(rename(run, moved) == 0 && symlink(disk, run) == 0);

    cr_expect_eq(io->mkdir(io, in(run, "checkpoints"), 0777), 0);
    cr_expect_eq(access(in(disk, "checkpoints"), F_OK), -1);
    cr_expect_eq(access(in(moved, "checkpoints"), F_OK), 0);
    unlink(run);
    cr_expect(rename(moved, run) == 0);
}

Test(io_beneath, paths_elsewhere_are_left_alone)
{
    struct io_stat stat;

    cr_expect_eq(io->stat(io, disk, &stat), 0);
    cr_expect_eq(io->mkdir(io, in(disk, "x"), 0777), 0);
    cr_expect_eq(io->stat(io, run, &stat), 0);
    cr_expect_eq(stat.kind, IO_DIRECTORY);
}

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

#include "tests/unit/shardfile/files.h"

static char run[300], disk[300];
static struct fsdp_io *io;

static void set_up(void)
{
    const char *both = files_begin();
    int fd;

    snprintf(run, sizeof run, "%s/run", both);
    snprintf(disk, sizeof disk, "%s/disk", both);
    cr_assert(mkdir(run, 0777) == 0 && mkdir(disk, 0777) == 0);
    fd = open(run, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    io = io_beneath_create(run, fd);
    cr_assert_not_null(io);
    close(fd);
}

static void tear_down(void)
{
    io_beneath_destroy(io);
    files_end();
}

TestSuite(io_beneath, .init = set_up, .fini = tear_down);

/* Every path operation once, below `folder` of the run directory; how many of them worked. */
static int work(const char *folder)
{
    char base[400];
    struct io_names names = { 0 };
    struct io_stat stat;
    int n = 0, fd;

    snprintf(base, sizeof base, "%s", files_path(run, folder));
    n += io->mkdir(io, files_path(base, "a"), 0777) == 0;
    n += io->mkdir(io, files_path(base, "b"), 0777) == 0;
    fd = io->open(io, files_path(base, "a/file"), O_WRONLY | O_CREAT | O_EXCL, 0666);
    n += fd >= 0;
    if (fd >= 0)
        io->close(io, fd);
    n += io->exchange(io, files_path(base, "a"), files_path(base, "b")) == 0;
    n += io->stat(io, files_path(base, "b/file"), &stat) == 0 && stat.kind == IO_FILE;
    n += io->link(io, files_path(base, "b/file"), files_path(base, "b/also")) == 0;
    n += io->stat(io, files_path(base, "b/file"), &stat) == 0 && stat.n_links == 2;
    n += io->link(io, files_path(base, "b/file"), files_path(base, "b/also")) < 0 && errno == EEXIST;
    n += io->unlink(io, files_path(base, "b/also")) == 0;
    n += io->rename(io, files_path(base, "b"), files_path(base, "c")) == 0;
    n += io->list(io, base, &names) == 0 && names.n == 2 && strcmp(names.names[1], "c") == 0;
    io_names_free(&names);
    n += io->unlink(io, files_path(base, "c/file")) == 0;
    n += io->rmdir(io, files_path(base, "c")) == 0;
    return n;
}

Test(io_beneath, every_operation_works_in_a_folder_and_by_a_link_of_ones_own)
{
    cr_assert(mkdir(files_path(run, "plain"), 0777) == 0 &&
              symlink(disk, files_path(run, "checkpoints")) == 0);

    cr_expect_eq(work("plain"), 13);
    cr_expect_eq(work("checkpoints"), 13);
    cr_expect_eq(access(files_path(disk, "a"), F_OK), 0);
}

Test(io_beneath, no_operation_works_by_a_link_of_another_user)
{
    if (geteuid() != 0)
        cr_skip_test("needs root to make a link of another user");
    cr_assert(symlink(disk, files_path(run, "checkpoints")) == 0);
    cr_assert(lchown(files_path(run, "checkpoints"), 65533, 65533) == 0);

    cr_expect_eq(work("checkpoints"), 0);
    cr_expect_eq(rmdir(disk), 0, "nothing came there");
}

Test(io_beneath, the_folder_it_was_made_for_stays_the_one_that_is_used)
{
    char moved[320];

    snprintf(moved, sizeof moved, "%s.moved", run);
    cr_assert(rename(run, moved) == 0 && symlink(disk, run) == 0);

    cr_expect_eq(io->mkdir(io, files_path(run, "checkpoints"), 0777), 0);
    cr_expect_eq(access(files_path(disk, "checkpoints"), F_OK), -1);
    cr_expect_eq(access(files_path(moved, "checkpoints"), F_OK), 0);
    unlink(run);
    cr_expect(rename(moved, run) == 0);
}

Test(io_beneath, paths_elsewhere_are_left_alone)
{
    struct io_stat stat;

    cr_expect_eq(io->stat(io, disk, &stat), 0);
    cr_expect_eq(io->mkdir(io, files_path(disk, "x"), 0777), 0);
    cr_expect_eq(io->stat(io, run, &stat), 0);
    cr_expect_eq(stat.kind, IO_DIRECTORY);
}

/*
 * A folder that may be another user's: "mallory" owns the links that must not be followed. Most tests need
 * root, who can make links of any owner.
 */
#include "shard_runtime/core/beneath.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/unit/shardfile/files.h"

enum { MALLORY = 65533, OTHER = 65534 };

static char folder[300], outside[300];
static int root = -1;

static void need_root(void)
{
    if (geteuid() != 0)
        cr_skip_test("needs root to make links of two owners");
}

static void set_up(void)
{
    const char *both = files_begin();

    snprintf(folder, sizeof folder, "%s/folder", both);
    snprintf(outside, sizeof outside, "%s/outside", both);
    umask(0);
    cr_assert(chmod(both, 0711) == 0 && mkdir(folder, 0777) == 0 && mkdir(outside, 0777) == 0);
    umask(022);
    root = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    cr_assert_geq(root, 0);
}

static void tear_down(void)
{
    setfsuid(0);
    (void)!seteuid(0);
    files_end();
}

TestSuite(beneath, .init = set_up, .fini = tear_down);

static void make_link(const char *target, const char *name, uid_t owner)
{
    cr_assert(symlinkat(target, root, name) == 0);
    cr_assert(owner == geteuid() || fchownat(root, name, owner, (gid_t)-1, AT_SYMLINK_NOFOLLOW) == 0);
}

static bool opens(const char *path)
{
    const int fd = beneath_open(root, path, O_RDWR | O_CREAT | O_APPEND, 0666);

    if (fd >= 0)
        close(fd);
    return fd >= 0;
}

static bool is_in(const char *where, const char *name)
{
    return files_exist(files_path(where, name));
}

Test(beneath, own_links_are_followed)
{
    make_link(files_path(outside, "file"), "file", geteuid());
    make_link(outside, "disk", geteuid());
    cr_assert_eq(mkdirat(root, "real", 0777), 0);
    make_link("real/", "alias", geteuid());
    make_link("../alias", "real/up", geteuid());

    cr_assert(opens("file") && is_in(outside, "file"));
    cr_assert(opens("disk/second") && is_in(outside, "second"));
    cr_assert(opens("alias/third") && is_in(folder, "real/third"));
    cr_assert(opens("real//up/up/fourth") && is_in(folder, "real/fourth"));
}

Test(beneath, a_link_of_another_user_is_not_followed)
{
    static const char *const paths[] = { "file", "disk/file", "alias/disk/file", "hop" };

    need_root();
    make_link(files_path(outside, "file"), "file", MALLORY);
    make_link(outside, "disk", MALLORY);
    make_link(".", "alias", geteuid());
    make_link("disk/file", "hop", geteuid()); /* ours, by way of one that is not */
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        errno = 0;
        cr_assert_not(opens(paths[i]), "%s", paths[i]);
        cr_assert_eq(errno, ELOOP, "%s: %s", paths[i], strerror(errno));
    }

    cr_assert_eq(beneath_make_folders(root, "disk/logs"), -1);
    cr_assert_not(is_in(outside, "file") || is_in(outside, "logs"));
    cr_assert_not_null(strstr(beneath_words(ELOOP), "symbolic link of another user"));
}

Test(beneath, links_that_lead_in_a_circle_end)
{
    make_link("two", "one", geteuid());
    make_link("one", "two", geteuid());

    cr_assert_not(opens("one"));
    cr_assert_eq(errno, ELOOP);
}

Test(beneath, folders_are_made_where_they_are_missing)
{
    const char *name;
    int fd;

    make_link(outside, "logs", geteuid());
    for (int again = 0; again < 2; again++) {
        fd = beneath_make_folders(root, "logs/g0/rank0");
        cr_assert_geq(fd, 0, "%s", strerror(errno));
        close(fd);
    }
    cr_assert(is_in(outside, "g0/rank0"));
    fd = beneath_open_folder(root, "logs/g0/rank1", &name);
    cr_assert_geq(fd, 0);
    cr_assert_str_eq(name, "rank1");
    cr_assert_eq(faccessat(fd, "rank0", F_OK, 0), 0);
    close(fd);
    cr_assert(opens("file"));
    cr_assert_eq(beneath_make_folders(root, "file/x"), -1);
    cr_assert_eq(errno, ENOTDIR);
}

/* What beneath_open_root() says of a directory of this owner and mode. */
static enum fsdp_status judge(uid_t owner, mode_t mode, struct fsdp_err *err)
{
    enum fsdp_status status;
    int fd;

    cr_assert(chown(outside, owner, (gid_t)-1) == 0 && chmod(outside, mode) == 0);
    status = beneath_open_root(&fd, outside, err);
    if (fd >= 0)
        close(fd);
    return status;
}

Test(beneath, only_a_directory_of_another_user_that_everyone_may_write_to_is_refused)
{
    struct fsdp_err err = { 0 };

    need_root();
    cr_expect(eq(int, judge(MALLORY, 0777, &err), FSDP_ERR_CONFIG));
    cr_expect_not_null(strstr(err.message, "belongs to user 65533, and everyone may write to it"), "%s",
                       err.message);
    cr_expect(eq(int, judge(MALLORY, 01777, NULL), FSDP_ERR_CONFIG));
    cr_expect(eq(int, judge(MALLORY, 02775, NULL), FSDP_OK));
    cr_expect(eq(int, judge(0, 0777, NULL), FSDP_OK));
    cr_expect(eq(int, judge(0, 01777, NULL), FSDP_OK));
    cr_assert_eq(seteuid(OTHER), 0);
    cr_expect_eq(beneath_open_root(&(int){ -1 }, outside, NULL), FSDP_OK, "root's is trusted by any user");
}

/* As with an NFS server that squashes root: who asks is root, whose files are another's. */
Test(beneath, who_owns_what_we_create_is_this_user)
{
    struct stat info;

    need_root();
    setfsuid(OTHER);
    cr_assert_eq(symlinkat(outside, root, "disk"), 0);
    cr_assert(fstatat(root, "disk", &info, AT_SYMLINK_NOFOLLOW) == 0 && info.st_uid == OTHER &&
              geteuid() == 0);

    cr_expect(opens("disk/file"));
    setfsuid(0);
    cr_assert(chown(outside, OTHER, (gid_t)-1) == 0 && chmod(outside, 0777) == 0);
    setfsuid(OTHER);
    cr_expect(eq(int, beneath_open_root(&(int){ -1 }, outside, NULL), FSDP_OK));
    cr_expect_not(is_in(folder, ".fsdprun"), "nothing is left");
    setfsuid(0);
}

static enum fsdp_status open_record(const char *name)
{
    struct fsdp_err err = { 0 };
    int fd;
    const enum fsdp_status status = beneath_open_record(&fd, root, name, &err);

    if (fd >= 0)
        close(fd);
    cr_assert_eq(status == FSDP_OK, fd >= 0);
    cr_assert(status == FSDP_OK || strstr(err.message, name) != NULL);
    return status;
}

Test(beneath, a_record_is_a_file_or_a_device, .timeout = 100)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%.90s/socket", folder);
    cr_assert_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    cr_assert(mkfifoat(root, "fifo", 0666) == 0 && mkdirat(root, "folder", 0777) == 0);
    make_link("/dev/null", "null", geteuid());

    cr_expect(eq(int, open_record("metrics.jsonl"), FSDP_OK));
    cr_expect(eq(int, open_record("null"), FSDP_OK));
    cr_expect(eq(int, open_record("fifo"), FSDP_ERR_CONFIG));
    cr_expect(eq(int, open_record("socket"), FSDP_ERR_CONFIG));
    cr_expect(eq(int, open_record("folder"), FSDP_ERR_CONFIG));
    close(fd);
}

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/torchrun_link.h"

static char folder[64], called[96], said[TORCHRUN_LINK_SAID_BYTES];

static char *in_folder(const char *name)
{
    static char path[PATH_MAX];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void put(const char *name, const char *text)
{
    int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_TRUNC, 0755);

    cr_assert(ge(int, fd, 0));
    cr_assert(eq(long, write(fd, text, strlen(text)), (long)strlen(text)));
    close(fd);
}

/* What the name leads to: "link TARGET", the text of a file, or "none". */
static const char *content(const char *name)
{
    static char text[2][128];
    static int turn;
    char *out = text[turn++ % 2];
    ssize_t n = readlink(in_folder(name), out + 5, 100);
    int fd;

    if (n >= 0) {
        memcpy(out, "link ", 5);
        out[5 + n] = '\0';
        return out;
    }
    fd = open(in_folder(name), O_RDONLY);
    if (fd < 0)
        return "none";
    n = read(fd, out, 100);
    out[n < 0 ? 0 : n] = '\0';
    close(fd);
    return out;
}

static void make_folder(void)
{
    snprintf(folder, sizeof folder, "/tmp/fsdp-link-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(folder), NULL));
    put("fsdprun", "ours");
    snprintf(called, sizeof called, "%s/fsdprun", folder);
}

static void remove_folder(void)
{
    static const char *const names[] = { "fsdprun", "torchrun", "torchrun.before-fsdprun",
                                         ".torchrun.fsdprun-new" };

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unlink(in_folder(names[i]));
    rmdir(in_folder("torchrun"));
    cr_expect(eq(int, rmdir(folder), 0), "something is left in %s", folder);
}

TestSuite(torchrun_link, .init = make_folder, .fini = remove_folder);

Test(torchrun_link, every_state_of_the_two_names_has_its_step)
{
    for (int install = 0; install < 2; install++)
        for (int now = ENTRY_NONE; now < ENTRY_COUNT; now++)
            for (int before = ENTRY_NONE; before < ENTRY_COUNT; before++)
                for (int equal = 0; equal < 2; equal++) {
                    enum torchrun_step step = torchrun_link_step(install, now, before, equal);
                    const bool changes = step != STEP_FOLDER && step != STEP_CHANGED && step != STEP_HAVE &&
                                         step != STEP_NOTHING;

                    cr_expect(ne(int, step, STEP_UNSET));
                    if (now == ENTRY_FOLDER || before == ENTRY_FOLDER)
                        cr_expect(eq(int, step, STEP_FOLDER));
                    else if (now == ENTRY_OTHER && before != ENTRY_NONE && !equal)
                        cr_expect(eq(int, step, STEP_CHANGED), "of two programs of others, none is touched");
                    else if (now == ENTRY_OTHER && before == ENTRY_NONE)
                        cr_expect(eq(int, step, install ? STEP_KEEP : STEP_NOTHING));
                    if (install && now == ENTRY_LINK && before != ENTRY_FOLDER)
                        cr_expect(not(changes));
                }
}

Test(torchrun_link, install_keeps_the_old_one_and_uninstall_restores_it)
{
    put("torchrun", "theirs");

    cr_assert(eq(int, torchrun_link_install(called, said, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)content("torchrun"), "link fsdprun"));
    cr_assert(eq(str, (char *)content("torchrun.before-fsdprun"), "theirs"));
    cr_assert(eq(int, torchrun_link_install(called, said, NULL), FSDP_OK));
    cr_assert(ne(ptr, strstr(said, "is fsdprun already"), NULL));
    cr_assert(eq(str, (char *)content("torchrun.before-fsdprun"), "theirs"));

    cr_assert(eq(int, torchrun_link_uninstall(called, said, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)content("torchrun"), "theirs"));
    cr_assert(eq(str, (char *)content("torchrun.before-fsdprun"), "none"));
    cr_assert(eq(int, torchrun_link_uninstall(called, said, NULL), FSDP_OK));
    cr_assert(ne(ptr, strstr(said, "nothing to undo"), NULL));
    cr_assert(eq(str, (char *)content("torchrun"), "theirs"));
}

Test(torchrun_link, without_an_old_one_uninstall_leaves_none)
{
    cr_assert(eq(int, torchrun_link_install(called, said, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)content("torchrun"), "link fsdprun"));

    cr_assert(eq(int, torchrun_link_uninstall(called, said, NULL), FSDP_OK));

    cr_assert(eq(str, (char *)content("torchrun"), "none"));
}

Test(torchrun_link, an_old_one_that_is_a_link_comes_back_as_a_link)
{
    cr_assert(eq(int, symlink("elsewhere/torchrun", in_folder("torchrun")), 0));

    cr_assert(eq(int, torchrun_link_install(called, said, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)content("torchrun.before-fsdprun"), "link elsewhere/torchrun"));
    cr_assert(eq(int, torchrun_link_uninstall(called, said, NULL), FSDP_OK));

    cr_assert(eq(str, (char *)content("torchrun"), "link elsewhere/torchrun"));
}

Test(torchrun_link, a_torchrun_that_was_changed_since_is_left_alone)
{
    struct fsdp_err err = { 0 };

    put("torchrun", "theirs");
    cr_assert(eq(int, torchrun_link_install(called, said, NULL), FSDP_OK));
    unlink(in_folder("torchrun"));
    put("torchrun", "newer");

    cr_assert(eq(int, torchrun_link_uninstall(called, said, &err), FSDP_ERR_BUSY));
    cr_assert(ne(ptr, strstr(err.message, "was changed or removed since"), NULL), "%s", err.message);
    cr_assert(eq(int, torchrun_link_install(called, said, &err), FSDP_ERR_BUSY));
    cr_assert(eq(str, (char *)content("torchrun"), "newer"));
    cr_assert(eq(str, (char *)content("torchrun.before-fsdprun"), "theirs"));
}

Test(torchrun_link, a_call_that_was_cut_short_is_finished_by_the_next)
{
    char kept[PATH_MAX], torchrun[PATH_MAX];

    put("torchrun", "theirs");
    snprintf(kept, sizeof kept, "%s/torchrun.before-fsdprun", folder);
    snprintf(torchrun, sizeof torchrun, "%s/torchrun", folder);
    cr_assert(eq(int, link(torchrun, kept), 0)); /* the first half of an install */
    cr_assert(eq(int, symlink("fsdprun", in_folder(".torchrun.fsdprun-new")), 0));

    cr_assert(eq(int, torchrun_link_install(called, said, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)content("torchrun"), "link fsdprun"));
    cr_assert(eq(str, (char *)content("torchrun.before-fsdprun"), "theirs"));

    cr_assert(eq(int, torchrun_link_uninstall(called, said, NULL), FSDP_OK));
    cr_assert(eq(int, link(torchrun, kept), 0));
    cr_assert(eq(int, torchrun_link_uninstall(called, said, NULL), FSDP_OK));
    cr_assert(eq(str, (char *)content("torchrun"), "theirs"));
    cr_assert(eq(str, (char *)content("torchrun.before-fsdprun"), "none"));
}

Test(torchrun_link, a_folder_that_cannot_be_changed_is_named)
{
    struct fsdp_err err = { 0 };

    cr_assert(eq(int, torchrun_link_install("/proc/self/fsdprun", said, &err), FSDP_ERR_IO));
    cr_assert(ne(ptr, strstr(err.message, "/proc/self: "), NULL), "%s", err.message);
    cr_assert(eq(int, torchrun_link_install("/nowhere/fsdprun", said, &err), FSDP_ERR_IO));
    cr_assert(ne(ptr, strstr(err.message, "cannot open /nowhere: No such file"), NULL), "%s", err.message);
}

Test(torchrun_link, a_directory_of_that_name_is_left_alone)
{
    cr_assert(eq(int, mkdir(in_folder("torchrun"), 0700), 0));

    cr_assert(eq(int, torchrun_link_install(called, said, NULL), FSDP_ERR_BUSY));
    cr_assert(eq(int, torchrun_link_uninstall(called, said, NULL), FSDP_ERR_BUSY));
}

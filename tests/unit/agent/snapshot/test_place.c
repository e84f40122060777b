/* The place of snapshots in memory: made, removed, and taken over from runs that are gone. */
#include "agent/snapshot/place.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/unit/agent/scratch.h"

TestSuite(place, .init = scratch_make, .fini = scratch_remove);

static char folder[96];

/* How many names are in the folder of this user; -1: there is no folder. */
static int n_names(void)
{
    DIR *listing;
    int n = -2; /* . and .. */

    snprintf(folder, sizeof folder, "%s/fsdprun-%u", scratch, geteuid());
    listing = opendir(folder);
    if (listing == NULL)
        return -1;
    while (readdir(listing) != NULL)
        n++;
    closedir(listing);
    return n;
}

static struct place make(int64_t limit_bytes)
{
    struct place place;
    struct fsdp_err err = { 0 };

    cr_assert_eq(place_make_in(&place, scratch, limit_bytes, false, &err), FSDP_OK, "%s", err.message);
    return place;
}

static void put(const struct place *place)
{
    char path[PLACE_PATH_BYTES + 16];

    snprintf(path, sizeof path, "%s/step-1", place->path);
    cr_assert_eq(mkdir(path, 0700), 0);
}

Test(place, it_is_the_users_own_and_goes_with_all_that_is_in_it)
{
    struct place place = make(1 << 20);
    struct stat at;

    cr_assert_eq(stat(place.path, &at), 0);
    cr_expect_eq(at.st_mode & 07777, 0700);
    put(&place);
    place_remove(&place);
    cr_expect_eq(n_names(), -1);
    place_remove(&place);
}

Test(place, of_two_runs_each_has_its_own)
{
    struct place first = make(1 << 20), second = make(-1);

    put(&first);
    put(&second);
    cr_expect_str_neq(first.path, second.path);
    place_remove(&second);
    cr_expect_eq(access(first.path, F_OK), 0);
    place_remove(&first);
    cr_expect_eq(n_names(), -1);
}

Test(place, what_a_killed_run_left_is_removed_by_the_next)
{
    struct place killed = make(1 << 20), next;

    put(&killed);
    close(killed.lock_fd); /* as the end of all processes that have it does */
    next = make(1 << 20);
    cr_expect_neq(access(killed.path, F_OK), 0);
    cr_expect_eq(n_names(), 2, "the place and its lock");
    place_remove(&next);
}

Test(place, without_a_limit_there_is_none)
{
    const struct place place = make(0);

    cr_expect_str_empty(place.path);
    cr_expect_eq(n_names(), -1);
}

Test(place, more_than_the_file_system_holds_is_refused_with_the_remedy)
{
    struct place place;
    struct fsdp_err err = { 0 };

    cr_assert_eq(place_make_in(&place, scratch, INT64_MAX, false, &err), FSDP_ERR_CONFIG);
    cr_expect_not_null(strstr(err.message, "--shm-size"), "%s", err.message);
    cr_expect_eq(n_names(), -1, "nothing is left");
    cr_expect_str_empty(place.path);
}

Test(place, a_folder_of_others_is_refused_only_if_the_place_was_asked_for)
{
    struct place place;
    struct fsdp_err err = { 0 };

    snprintf(folder, sizeof folder, "%s/fsdprun-%u", scratch, geteuid());
    cr_assert_eq(mkdir(folder, 0777), 0);
    cr_assert_eq(chmod(folder, 0777), 0);
    cr_expect_eq(place_make_in(&place, scratch, 1 << 20, false, &err), FSDP_ERR_IO);
    cr_expect_not_null(strstr(err.message, "0700"), "%s", err.message);
    cr_expect_eq(place_make_in(&place, scratch, -1, false, &err), FSDP_OK);
    cr_expect_str_empty(place.path);
}

Test(place, a_file_system_of_its_own_is_full_at_its_limit)
{
    struct place place;
    char path[PLACE_PATH_BYTES + 16];
    static char bytes[2 << 20];
    FILE *file;

    cr_assert_eq(place_make_in(&place, scratch, 1 << 20, true, NULL), FSDP_OK);
    if (!place.is_mounted) {
        place_remove(&place);
        cr_skip_test("nothing may be mounted here");
    }
    snprintf(path, sizeof path, "%s/large", place.path);
    file = fopen(path, "w");
    cr_expect_lt(fwrite(bytes, 1, sizeof bytes, file) - (fflush(file) != 0) * sizeof bytes, sizeof bytes);
    fclose(file);
    place_remove(&place);
    cr_expect_eq(n_names(), -1);
}

/*
 * Snapshots of programs on one node: what counts as an entry, what is reported, what stays, and what the
 * files of other nodes may do. Real files in a directory of the test's.
 */
#include "agent/snapshot/entry_dir.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "agent/snapshot/entry_files.h"
#include "tests/unit/agent/scratch.h"

enum { REPORTS = 32 };

static uv_loop_t loop;
static struct entry_dir *dir;
static struct place place;
static struct snapshot_entry reports[REPORTS];
static char packed[REPORTS][4096];
static int n_reports, n_lines;
static char last_line[1024];
static const char *persist_to;
static struct persist_seat seat;

static void on_found(void *arg, const struct snapshot_entry *entry)
{
    cr_assert_lt(n_reports, REPORTS);
    reports[n_reports] = *entry;
    if (entry->files_bytes > 0 && entry->files_bytes <= sizeof packed[0])
        memcpy(packed[n_reports], entry->files, entry->files_bytes);
    reports[n_reports].files = packed[n_reports];
    n_reports++;
}

static void on_line(void *arg, const char *words)
{
    n_lines++;
    snprintf(last_line, sizeof last_line, "%s", words);
}

static void open_dir(uint64_t limit_bytes)
{
    const struct entry_dir_handlers handlers = { .found = on_found, .line = on_line };

    snprintf(place.path, sizeof place.path, "%s", scratch_path("place"));
    mkdir(place.path, 0700);
    place.limit_bytes = limit_bytes;
    cr_assert_eq(entry_dir_open(&dir, &loop, &place, persist_to, &handlers, NULL), FSDP_OK);
    entry_dir_begin(dir, "", 2, 4, &seat);
}

static void begin(void)
{
    scratch_make();
    uv_loop_init(&loop);
    n_reports = n_lines = 0;
    persist_to = NULL;
    seat = (struct persist_seat){ .n_nodes = 1 };
    open_dir(1 << 30);
}

static void end(void)
{
    entry_dir_close(dir);
    uv_run(&loop, UV_RUN_DEFAULT);
    cr_assert_eq(uv_loop_close(&loop), 0);
    scratch_remove();
}

TestSuite(entry_dir, .init = begin, .fini = end);

static void put(const char *path, const char *text)
{
    const int fd = open(scratch_path("place/%s", path), O_WRONLY | O_CREAT, 0600);

    cr_assert(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
}

/* A program's save: a directory with a file, renamed when it is whole. */
static void save(const char *name, const char *file, const char *text)
{
    char path[256], from[512];

    mkdir(scratch_path("place/.tmp"), 0700);
    snprintf(path, sizeof path, ".tmp/%s", file);
    put(path, text);
    snprintf(from, sizeof from, "%s", scratch_path("place/.tmp"));
    cr_assert_eq(rename(from, scratch_path("place/%s", name)), 0);
}

static bool is_there(const char *name)
{
    return access(scratch_path("place/%s", name), F_OK) == 0;
}

static struct snapshot_entry message(const char *name, bool complete, const char *files, size_t files_bytes)
{
    struct snapshot_entry entry = { .complete = complete, .files = files, .files_bytes = files_bytes };

    snprintf(entry.name, sizeof entry.name, "%s", name);
    return entry;
}

static void tell_complete(const char *name)
{
    const struct snapshot_entry entry = message(name, true, NULL, 0);

    entry_dir_take(dir, &entry);
}

Test(entry_dir, what_is_renamed_is_reported_with_its_seat_and_its_small_files)
{
    save("step-1", "a", "abc");
    uv_run(&loop, UV_RUN_ONCE);
    cr_assert_eq(n_reports, 1);
    cr_expect_str_eq(reports[0].name, "step-1");
    cr_expect(reports[0].first_rank == 2 && reports[0].world_size == 4 && reports[0].number == 1);
    cr_expect(!reports[0].complete && !reports[0].more);
    cr_assert_eq(reports[0].files_bytes, sizeof "step-1/a" + sizeof "3" + 3);
    cr_expect_arr_eq(reports[0].files, "step-1/a\0003\0abc", reports[0].files_bytes);
}

Test(entry_dir, what_is_only_written_is_no_entry)
{
    mkdir(scratch_path("place/growing"), 0700);
    put("growing/a", "abc");
    put("file", "abc");
    save(".hidden", "a", "abc");
    entry_dir_tell(dir);
    cr_expect_eq(n_reports, 0);
}

Test(entry_dir, the_last_word_of_a_generation_is_all_entries_in_order)
{
    save("step-9", "a", "1");
    save("step-10", "a", "2");
    entry_dir_tell(dir);
    cr_assert_eq(n_reports, 4, "two as they come, and both again");
    cr_expect_str_eq(reports[2].name, "step-9");
    cr_expect_str_eq(reports[3].name, "step-10");
    cr_expect_eq(reports[3].files_bytes, 0);
}

Test(entry_dir, an_entry_that_is_complete_takes_the_place_of_older_ones)
{
    save("step-1", "a", "1");
    save("step-2", "a", "2");
    save("step-3", "a", "3");
    tell_complete("step-2");
    cr_expect(!is_there("step-1") && is_there("step-2") && is_there("step-3"));
    entry_dir_tell(dir);
    cr_expect_eq(n_reports, 5);
    cr_expect(reports[3].complete && !reports[4].complete);
}

Test(entry_dir, only_the_chosen_entry_is_there_for_the_next_generation)
{
    save("step-1", "a", "1");
    save("step-2", "a", "2");
    mkdir(scratch_path("place/.tmp"), 0700);
    put(".tmp/half", "x");
    entry_dir_begin(dir, "step-1", 2, 4, &seat);
    cr_expect(is_there("step-1") && !is_there("step-2") && !is_there(".tmp"));
    uv_run(&loop, UV_RUN_NOWAIT);
    save("step-2", "a", "2");
    entry_dir_tell(dir);
    cr_expect_str_eq(reports[n_reports - 1].name, "step-2");
    cr_expect_eq(reports[n_reports - 1].number, 1, "as on a node that never had the one that went");
}

/* A save that is one file. */
static void save_file(const char *name)
{
    char from[512];

    put(".new", "1");
    snprintf(from, sizeof from, "%s", scratch_path("place/.new"));
    cr_assert_eq(rename(from, scratch_path("place/%s", name)), 0);
}

Test(entry_dir, what_is_saved_again_as_the_next_generation_begins_is_still_the_chosen_one)
{
    save_file("latest");
    save_file("other");
    entry_dir_tell(dir);
    save_file("latest");
    entry_dir_begin(dir, "latest", 2, 4, &seat);
    n_reports = 0;
    entry_dir_tell(dir);
    cr_assert_eq(n_reports, 1);
    cr_expect_str_eq(reports[0].name, "latest");
}

Test(entry_dir, a_name_that_is_used_again_counts_its_uses)
{
    for (int i = 1; i <= 2; i++) {
        save_file("latest");
        uv_run(&loop, UV_RUN_ONCE);
        cr_expect_eq(reports[n_reports - 1].number, i);
    }
    entry_dir_tell(dir);
    cr_expect_eq(n_reports, 3, "it is one entry");
}

Test(entry_dir, files_of_other_nodes_come_into_the_entry_once_it_is_complete)
{
    const char files[] = "step-1/.metadata\0003\0abcstep-1/sub/b\0001\0dstep-1/a\0001\0X";
    const struct snapshot_entry parcel = message("step-1", false, files, sizeof files - 1);

    entry_dir_take(dir, &parcel);
    cr_expect_not(is_there("step-1"), "the program is about to rename its own");
    save("step-1", "a", "own");
    tell_complete("step-1");
    cr_expect_str_eq(scratch_read(scratch_path("place/step-1/.metadata")), "abc");
    cr_expect_str_eq(scratch_read(scratch_path("place/step-1/sub/b")), "d");
    cr_expect_str_eq(scratch_read(scratch_path("place/step-1/a")), "own", "a file of this node stays");
    cr_expect_eq(n_lines, 0);
}

Test(entry_dir, files_of_an_earlier_use_of_the_name_are_forgotten)
{
    for (int use = 1; use <= 2; use++) {
        char files[] = "step-1/0\0001\0x";
        struct snapshot_entry parcel = message("step-1", false, files, sizeof files - 1);

        files[strlen("step-1/")] = (char)('0' + use);
        parcel.number = use;
        entry_dir_take(dir, &parcel);
    }
    save("step-1", "a", "own");
    tell_complete("step-1");
    cr_expect(!is_there("step-1/1") && is_there("step-1/2"));
}

Test(entry_dir, files_of_names_that_are_never_complete_do_not_add_up)
{
    for (int i = 0; i <= ENTRIES_MAX; i++) {
        char files[32], name[16];
        const int n = snprintf(files, sizeof files, "s-%d/b%c1%cx", i, '\0', '\0');
        struct snapshot_entry parcel;

        snprintf(name, sizeof name, "s-%d", i);
        parcel = message(name, false, files, (size_t)n);
        entry_dir_take(dir, &parcel);
    }
    save("s-0", "a", "own");
    tell_complete("s-0");
    cr_expect(!is_there("s-0/b"), "of 65 names the oldest was dropped");
    save("s-1", "a", "own");
    tell_complete("s-1");
    cr_expect(is_there("s-1/b"));
}

Test(entry_dir, files_that_would_go_elsewhere_are_refused)
{
    static const struct {
        const char *bytes;
        size_t n;
    } bad[] = {
#define BAD(text) { text, sizeof text - 1 }
        BAD("../x\0001\0a"),      BAD("step-1/../x\0001\0a"), BAD("step-1/./x\0001\0a"), BAD("/x\0001\0a"),
        BAD("step-12/x\0001\0a"), BAD("step-1/x\0002\0a"),    BAD("step-1/x\0"),         BAD("step-1/x"),
        BAD("step-1//x\0001\0a"), BAD("step-1/x\0-1\0a"),     BAD("step-1/\0001\0a"),
    };

    save("step-1", "a", "1");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const struct snapshot_entry parcel = message("step-1", true, bad[i].bytes, bad[i].n);
        const int before = n_lines;

        entry_dir_take(dir, &parcel);
        cr_expect_eq(n_lines, before + 1, "%zu", i);
    }
    cr_expect_not(is_there("x") || is_there("step-12") || is_there("../x"));
    entry_dir_tell(dir);
    cr_expect_not(reports[n_reports - 1].complete, "an entry without files that others have is not complete");
}

Test(entry_dir, what_a_link_points_to_is_not_removed)
{
    mkdir(scratch_path("elsewhere"), 0700);
    mkdir(scratch_path("elsewhere/kept"), 0700);
    mkdir(scratch_path("place/.tmp"), 0700);
    cr_assert_eq(symlink("../../elsewhere", scratch_path("place/.tmp/out")), 0);
    save("step-1", "a", "1");
    entry_dir_begin(dir, "", 0, 1, &seat);
    while (uv_run(&loop, UV_RUN_NOWAIT) != 0 && is_there(".removed-0"))
        continue;
    cr_expect_eq(access(scratch_path("elsewhere/kept"), F_OK), 0);
    cr_expect_not(is_there(".removed-0"));
}

Test(entry_dir, what_exceeds_the_limit_is_removed)
{
    char *text = calloc(1, 300001);

    entry_dir_close(dir);
    uv_run(&loop, UV_RUN_DEFAULT);
    open_dir(500000);
    memset(text, 'x', 300000);
    save("step-1", "a", text);
    entry_dir_tell(dir);
    save("step-2", "a", text);
    entry_dir_tell(dir);
    cr_expect(is_there("step-1") && !is_there("step-2"));
    cr_expect_eq(n_lines, 1);
    cr_expect_not_null(strstr(last_line, "--snapshot-memory"), "%s", last_line);
    free(text);
}

static size_t n_packs, n_bytes;

static void count_pack(void *arg, const char *files, size_t files_bytes, bool more)
{
    cr_expect_leq(files_bytes, ENTRY_PACKED_BYTES);
    cr_expect_eq(more, *(const size_t *)arg != ++n_packs);
    n_bytes += files_bytes;
}

Test(entry_dir, many_small_files_go_in_several_packs_and_a_large_one_in_none)
{
    const size_t want = 4;
    char *text = calloc(1, ENTRY_SMALL_BYTES + 1), name[16];
    const int fd = open(place.path, O_RDONLY | O_DIRECTORY);

    memset(text, 'x', ENTRY_SMALL_BYTES);
    mkdir(scratch_path("place/many"), 0700);
    put("many/large", text);
    text[ENTRY_SMALL_BYTES - 1] = '\0';
    for (int i = 0; i < 7; i++) {
        snprintf(name, sizeof name, "many/%d", i);
        put(name, text);
    }
    n_packs = n_bytes = 0;
    cr_expect_eq(entry_pack(fd, "many", count_pack, (void *)&want, NULL), FSDP_OK);
    cr_expect_eq(n_packs, want);
    cr_expect_eq(n_bytes, 7 * (ENTRY_SMALL_BYTES - 1 + sizeof "many/0" + sizeof "1048575"));
    close(fd);
    free(text);
}

/* Entries on the disk */

static char disk[128];

/* Opens the directory again, as that node of so many, with a disk that it shares with the others. */
static void open_as(int node_rank, int n_nodes)
{
    entry_dir_close(dir);
    uv_run(&loop, UV_RUN_DEFAULT);
    snprintf(disk, sizeof disk, "%s", scratch_path("disk"));
    persist_to = disk;
    seat = (struct persist_seat){ .token = "token", .node_rank = node_rank, .n_nodes = n_nodes };
    open_dir(1 << 30);
}

static void run_until(const char *path)
{
    while (access(path, F_OK) != 0 && n_lines == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

Test(entry_dir, what_is_complete_is_written_to_the_disk_before_older_entries_go)
{
    open_as(0, 1);
    save("step-1", "a", "1");
    save("step-2", "a", "two");
    tell_complete("step-2");
    cr_expect(is_there("step-1"), "the newer one is not on the disk yet");
    run_until(scratch_path("disk/step-2/a"));
    cr_expect_str_eq(scratch_read(scratch_path("disk/step-2/a")), "two");
    while (is_there("step-1"))
        uv_run(&loop, UV_RUN_ONCE);
    cr_expect_eq(n_lines, 0, "%s", last_line);
}

Test(entry_dir, the_program_may_remove_what_is_being_written)
{
    const int fd = open(scratch_path("place"), O_RDONLY | O_DIRECTORY);

    open_as(0, 1);
    save("step-1", "a", "1");
    tell_complete("step-1");
    entry_remove(fd, "step-1");
    close(fd);
    run_until(scratch_path("disk/step-1/a"));
    cr_expect_str_eq(scratch_read(scratch_path("disk/step-1/a")), "1");
    cr_expect_eq(n_lines, 0, "%s", last_line);
}

Test(entry_dir, the_last_of_the_nodes_gives_it_its_name)
{
    open_as(0, 2);
    save("step-1", "a", "1");
    tell_complete("step-1");
    open_as(1, 2); /* waits until the first is done */
    cr_expect_neq(access(scratch_path("disk/step-1"), F_OK), 0);
    entry_dir_begin(dir, "", 0, 1, &seat);
    save("step-1", "b", "2");
    tell_complete("step-1");
    run_until(scratch_path("disk/step-1"));
    cr_expect_str_eq(scratch_read(scratch_path("disk/step-1/a")), "1");
    cr_expect_str_eq(scratch_read(scratch_path("disk/step-1/b")), "2");
    cr_expect_neq(access(scratch_path("disk/step-1/.fsdprun-node-0"), F_OK), 0);
}

Test(entry_dir, an_equal_name_with_other_content_is_an_error)
{
    open_as(0, 1);
    mkdir(disk, 0700);
    mkdir(scratch_path("disk/step-1"), 0700);
    save("step-1", "a", "1");
    tell_complete("step-1");
    run_until(scratch_path("disk/step-1/a"));
    cr_expect_eq(n_lines, 1);
    cr_expect_neq(access(scratch_path("disk/step-1/a"), F_OK), 0, "what is there stays");
}

Test(entry_dir, what_a_killed_run_left_unfinished_on_the_disk_is_removed)
{
    open_as(0, 1);
    mkdir(disk, 0700);
    mkdir(scratch_path("disk/.fsdprun-part-0123-step-1"), 0700);
    seat.is_first = true;
    entry_dir_begin(dir, "", 0, 1, &seat);
    while (access(scratch_path("disk/.fsdprun-part-0123-step-1"), F_OK) == 0)
        uv_run(&loop, UV_RUN_ONCE);
}

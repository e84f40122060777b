#include "agent/os/small_file.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[] = "/tmp/fsdp-small-XXXXXX";

static void set_up(void)
{
    const int fd = mkstemp(path);

    cr_assert(fd >= 0 && write(fd, "one\ntwo\n", 8) == 8);
    close(fd);
}

static void tear_down(void)
{
    unlink(path);
}

Test(small_file, as_much_as_there_is_room_for, .init = set_up, .fini = tear_down)
{
    for (size_t size = 2; size < 12; size++) {
        char text[16];
        const size_t n = size - 1 < 8 ? size - 1 : 8;

        memset(text, '#', sizeof text);
        cr_assert(small_file_read(text, size, "%s", path), "size %zu", size);
        cr_expect(strlen(text) == n && strncmp(text, "one\ntwo\n", n) == 0, "size %zu: %s", size, text);
        cr_expect(text[size] == '#', "nothing behind the room");
    }
}

Test(small_file, what_cannot_be_read_leaves_an_empty_text)
{
    static char text[16], name[SMALL_FILE_PATH_BYTES + 1];

    memset(name, 'x', sizeof name - 1);
    name[0] = '/';
    for (int i = 0; i < 4; i++) {
        const char *const names[] = { "/tmp", "/nowhere/at/all", "", name };

        strcpy(text, "before");
        cr_expect_not(small_file_read(text, sizeof text, "%s", names[i]), "%.20s", names[i]);
        cr_expect_str_eq(text, "");
    }
    cr_expect_not(small_file_read(text, sizeof text, "/dev/null"), "an empty one says nothing");
    cr_expect(small_file_read(text, sizeof text, "/proc/%d/stat", (int)getpid()));
}

Test(small_file, a_directory_is_listed_by_name_without_what_is_hidden)
{
    static char root[] = "/tmp/fsdp-small-list-XXXXXX";
    static const char *const files[] = { "b", "a", ".hidden", "c" };
    char names[8][64], file[64];

    cr_assert(mkdtemp(root) != NULL);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", root, files[i]);
        fclose(fopen(file, "w"));
    }
    cr_expect_eq(small_file_list(root, "", names, 8), 3);
    cr_expect(strcmp(names[0], "a") == 0 && strcmp(names[1], "b") == 0 && strcmp(names[2], "c") == 0);
    cr_expect_eq(small_file_list(root, "", names, 2), 2, "no more than there is room for");
    cr_expect_eq(small_file_list(root, "/nowhere", names, 8), 0);
    for (int i = 0; i < 4; i++) {
        snprintf(file, sizeof file, "%s/%s", root, files[i]);
        unlink(file);
    }
    rmdir(root);
}

#include "agent/watch/python_with_torch.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[] = "/tmp/fsdp-python-XXXXXX";

/* The file `name` below the root, with the directories on the way. */
static void make(const char *name, mode_t mode)
{
    char path[256];
    int fd;

    snprintf(path, sizeof path, "%s/%s", root, name);
    for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')) != NULL; *slash++ = '/') {
        *slash = '\0';
        mkdir(path, 0755);
    }
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, mode);
    cr_assert(fd >= 0);
    close(fd);
}

static void make_pythons(void)
{
    cr_assert_not_null(mkdtemp(root));
    make("venv/bin/python3.11", 0755);
    make("venv/lib/python3.11/site-packages/torch/__init__.py", 0644);
    make("conda/bin/python3.12", 0755);
    make("conda/lib/python3.12/site-packages/torch/__init__.py", 0644);
    make("debian/bin/python3", 0755);
    make("debian/lib/python3/dist-packages/torch/__init__.py", 0644);
    make("bare/bin/python3.11", 0755);
    make("bare/lib/python3.11/site-packages/numpy/__init__.py", 0644);
    make("stale/bin/python3.12", 0755); /* the packages are another version's */
    make("stale/lib/python3.11/site-packages/torch/__init__.py", 0644);
}

static void remove_pythons(void)
{
    char command[64];

    snprintf(command, sizeof command, "rm -rf %s", root);
    cr_expect(eq(int, system(command), 0));
}

TestSuite(python_with_torch, .init = make_pythons, .fini = remove_pythons);

/* %s is the root: in VIRTUAL_ENV and PATH, in what has failed, and in what is to be found (NULL: nothing). */
static void find(const char *venv, const char *path, const char *used, const char *want)
{
    char variables[2][512], format[256], failed[256], expected[256] = "", found[256] = "";
    char *environment[] = { variables[0], variables[1], NULL };

    snprintf(format, sizeof format, "VIRTUAL_ENV=%s", venv);
    snprintf(variables[0], sizeof variables[0], format, root);
    snprintf(format, sizeof format, "PATH=%s", path);
    snprintf(variables[1], sizeof variables[1], format, root, root, root);
    snprintf(failed, sizeof failed, used, root);
    if (want != NULL)
        snprintf(expected, sizeof expected, want, root);

    cr_expect(python_with_torch(environment, failed, found, sizeof found) == (want != NULL), "%s, %s: %s",
              variables[0], variables[1], found);
    cr_expect(want == NULL || strcmp(found, expected) == 0, "%s, not %s", found, expected);
}

Test(python_with_torch, is_found_where_the_user_would_look)
{
    const char *used = "%s/bare/bin/python3.11";

    find("%s/venv", "%s/conda/bin", used, "%s/venv/bin/python3.11");
    find("", "/nowhere:relative::%s/bare/bin:%s/conda/bin/", used, "%s/conda/bin/python3.12");
    find("", "%s/debian/bin", used, "%s/debian/bin/python3");
    find("%s/bare", "%s/bare/bin:%s/stale/bin", used, NULL);
    find("", "", used, NULL);
    find("relative", "/:/bin/..:.", used, NULL);
}

Test(python_with_torch, is_never_the_one_that_has_failed)
{
    char link[64], to[64];

    find("%s/venv", "%s/venv/bin", "%s/venv/bin/python3.11", NULL);
    snprintf(link, sizeof link, "%s/venv/bin/python3", root);
    cr_assert(symlink("python3.11", link) == 0);
    find("%s/venv", "%s/venv/bin", "%s/venv/bin/python3", NULL);

    /* The Python of a virtual environment is a link to one that has not its packages. */
    snprintf(link, sizeof link, "%s/venv/bin/python3.11", root);
    snprintf(to, sizeof to, "%s/bare/bin/python3.11", root);
    cr_assert(unlink(link) == 0 && symlink(to, link) == 0);
    find("%s/venv", "", "%s/bare/bin/python3.11", "%s/venv/bin/python3.11");
}

Test(python_with_torch, is_wanted_by_the_message_or_the_last_lines_alone)
{
    struct errors_detail detail = { .message = "ModuleNotFoundError: No module named 'torch'" };

    cr_expect(python_lacks_torch(&detail));
    strcpy(detail.message, "ModuleNotFoundError: No module named 'torchvision'");
    cr_expect(python_lacks_torch(&detail) == false);
    detail.tail.n_lines = 2;
    detail.tail.lines[0] = "it says: No module named 'torch'";
    detail.tail.lines[1] = "bye";
    cr_expect(python_lacks_torch(&detail));
}

#include "agent/watch/python_with_torch.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/os/environment.h"

static const char missing[] = "No module named 'torch'";

bool python_lacks_torch(const struct errors_detail *detail)
{
    if (strstr(detail->message, missing) != NULL)
        return true;
    for (int i = 0; i < detail->tail.n_lines; i++)
        if (strstr(detail->tail.lines[i], missing) != NULL)
            return true;
    return false;
}

/*
 * Are these two names of one Python: the same file, reached through the same directory? The directory counts
 * because a virtual environment links to a Python file outside of it.
 */
static bool is_same_python(const char *a, const char *b)
{
    char real_a[PATH_MAX], real_b[PATH_MAX], folder_a[PATH_MAX], folder_b[PATH_MAX];
    const char *slash_a = strrchr(a, '/'), *slash_b = strrchr(b, '/');

    if (slash_a == NULL || slash_b == NULL)
        return strcmp(a, b) == 0;
    snprintf(folder_a, sizeof folder_a, "%.*s/", (int)(slash_a - a), a);
    snprintf(folder_b, sizeof folder_b, "%.*s/", (int)(slash_b - b), b);
    if (realpath(a, real_a) == NULL || realpath(b, real_b) == NULL || strcmp(real_a, real_b) != 0)
        return false;
    return realpath(folder_a, real_a) != NULL && realpath(folder_b, real_b) != NULL &&
           strcmp(real_a, real_b) == 0;
}

/*
 * Is torch below `prefix`/`lib`/`version`? `version` is the name of a folder, "python3.11", or Debian's
 * "python3".
 */
static bool has_torch(const char *prefix, int n_prefix, const char *lib, const char *version)
{
    static const char *const packages[] = { "site-packages", "dist-packages" };
    char file[PATH_MAX];

    for (size_t i = 0; i < sizeof packages / sizeof *packages; i++)
        if (snprintf(file, sizeof file, "%.*s/%s/%s/%s/torch/__init__.py", n_prefix, prefix, lib, version,
                     packages[i]) < (int)sizeof file &&
            access(file, F_OK) == 0)
            return true;
    return false;
}

/*
 * Find a Python with torch in a folder of programs: the first n_folder bytes of `folder`, usually
 * "PREFIX/bin". Its packages are below the same prefix.
 */
static bool look_in(const char *folder, int n_folder, const char *used, char *out, size_t size)
{
    static const char *const libs[] = { "lib", "lib64", "local/lib" };
    bool found = false;
    int n_prefix = n_folder;

    while (n_prefix > 0 && folder[n_prefix - 1] != '/')
        n_prefix--;
    for (size_t i = 0; i < sizeof libs / sizeof *libs && !found && n_prefix > 0; i++) {
        const struct dirent *entry;
        char path[PATH_MAX];
        DIR *directory;

        snprintf(path, sizeof path, "%.*s%s", n_prefix, folder, libs[i]);
        directory = opendir(path);
        while (directory != NULL && !found && (entry = readdir(directory)) != NULL)
            found = strncmp(entry->d_name, "python3", 7) == 0 &&
                    has_torch(folder, n_prefix - 1, libs[i], entry->d_name) &&
                    (size_t)snprintf(out, size, "%.*s/%s", n_folder, folder, entry->d_name) < size &&
                    access(out, X_OK) == 0 && !is_same_python(out, used);
        if (directory != NULL)
            closedir(directory);
    }
    return found;
}

bool python_with_torch(char *const *environment, const char *used, char *out, size_t size)
{
    const char *venv = environment_find(environment, "VIRTUAL_ENV"),
               *path = environment_find(environment, "PATH");
    char folder[PATH_MAX];

    if (venv != NULL && venv[0] == '/' &&
        snprintf(folder, sizeof folder, "%s/bin", venv) < (int)sizeof folder &&
        look_in(folder, (int)strlen(folder), used, out, size))
        return true;
    while (path != NULL && *path != '\0') {
        const int length = (int)strcspn(path, ":");
        int n = length;

        while (n > 1 && path[n - 1] == '/')
            n--;
        if (*path == '/' && look_in(path, n, used, out, size))
            return true;
        path += length + (path[length] == ':');
    }
    return false;
}

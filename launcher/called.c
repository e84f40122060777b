#include "launcher/called.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/what.h"

static bool are_same_file(const char *a, const char *b)
{
    struct stat info_a, info_b;

    return stat(a, &info_a) == 0 && stat(b, &info_b) == 0 && info_a.st_dev == info_b.st_dev &&
           info_a.st_ino == info_b.st_ino;
}

void called_path(const char *name, const char *own_path, char path[PATH_MAX])
{
    bool found;

    if (strchr(name, '/') != NULL)
        found = snprintf(path, PATH_MAX, "%s", name) < PATH_MAX;
    else
        found = what_find_on_path(name, path);
    if (!found || !are_same_file(path, own_path))
        snprintf(path, PATH_MAX, "%s", own_path);
}

const char *called_python(const char *path, bool as_torchrun, char python[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    const int folder = slash == NULL ? 0 : (int)(slash - path);

    if (slash == NULL)
        return NULL;
    if (!as_torchrun && (snprintf(python, PATH_MAX, "%.*s/../pyvenv.cfg", folder, path) >= PATH_MAX ||
                         access(python, F_OK) != 0))
        return NULL;
    if (snprintf(python, PATH_MAX, "%.*s/python3", folder, path) >= PATH_MAX || access(python, X_OK) != 0)
        return NULL;
    return python;
}

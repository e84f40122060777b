#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "launcher/called.h"

/* A virtual environment: bin/fsdprun, a link bin/torchrun to it, and bin/python3. */
static char root[64], bin[80], own[96], torchrun[96], python[96], cfg[96], found[PATH_MAX];

static void touch(const char *path)
{
    FILE *file = fopen(path, "w");

    cr_assert(ne(ptr, file, NULL));
    fclose(file);
    chmod(path, 0755);
}

static void make_environment(void)
{
    snprintf(root, sizeof root, "/tmp/fsdp-called-XXXXXX");
    cr_assert(ne(ptr, mkdtemp(root), NULL));
    snprintf(bin, sizeof bin, "%s/bin", root);
    snprintf(own, sizeof own, "%s/fsdprun", bin);
    snprintf(torchrun, sizeof torchrun, "%s/torchrun", bin);
    snprintf(python, sizeof python, "%s/python3", bin);
    snprintf(cfg, sizeof cfg, "%s/pyvenv.cfg", root);
    cr_assert(eq(int, mkdir(bin, 0700), 0));
    touch(own);
    touch(python);
    cr_assert(eq(int, symlink("fsdprun", torchrun), 0));
}

static void remove_environment(void)
{
    unlink(own);
    unlink(torchrun);
    unlink(python);
    unlink(cfg);
    rmdir(bin);
    rmdir(root);
}

TestSuite(called, .init = make_environment, .fini = remove_environment);

Test(called, a_path_is_kept_as_it_was_written)
{
    called_path(torchrun, own, found);

    cr_assert(eq(str, found, torchrun));
}

Test(called, a_name_is_looked_up_on_path)
{
    setenv("PATH", bin, 1);

    called_path("torchrun", own, found);

    cr_assert(eq(str, found, torchrun));
}

Test(called, a_name_that_leads_elsewhere_gives_the_programs_own_file)
{
    setenv("PATH", "/nonexistent", 1);

    called_path("torchrun", own, found);
    cr_assert(eq(str, found, own));
    called_path(python, own, found);
    cr_assert(eq(str, found, own));
}

Test(called, torchrun_means_the_python_in_its_folder)
{
    char out[PATH_MAX];

    cr_assert(eq(str, (char *)called_python(torchrun, true, out), python));
    unlink(python);
    cr_assert(eq(ptr, (void *)called_python(torchrun, true, out), NULL));
}

Test(called, fsdprun_means_that_python_only_in_a_virtual_environment)
{
    char out[PATH_MAX];

    cr_assert(eq(ptr, (void *)called_python(own, false, out), NULL));
    touch(cfg);
    cr_assert(eq(str, (char *)called_python(own, false, out), python));
}

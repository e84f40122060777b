/*
 * The process that NVML runs in. It executes the program again, so that its parent may have threads, and it
 * keeps none of the parent's descriptors open.
 */
#include "agent/placement/nvml_process.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "agent/placement/gpu_health.h"
#include "agent/placement/nvml.h"

#define LIBRARY BUILD_DIR "/test/fake_nvml"

/*
 * fsdprun and fsdp-agent call this first in main(). Here main() is Criterion's, and this program is executed
 * again as well.
 */
__attribute__((constructor)) static void be_the_process(int argc, char **argv)
{
    nvml_process_main(argc, argv);
}

static atomic_bool enough;

/* Holds the locks of malloc() and dlopen() most of the time. */
static void *hold_locks(void *arg)
{
    while (!atomic_load(&enough)) {
        void *library = dlopen("libm.so.6", RTLD_NOW);

        free(malloc(64));
        dlclose(library);
    }
    return NULL;
}

Test(nvml_process, answers_beside_threads_inside_dlopen, .timeout = 1200)
{
    struct nvml_list *list = calloc(1, sizeof *list);
    pthread_t thread;

    setenv("FAKE_NVML", "GPU-aa@3b;GPU-bb@5e", 1);
    cr_assert(pthread_create(&thread, NULL, hold_locks, NULL) == 0);
    for (int i = 0; i < 20; i++) {
        cr_assert(nvml_ask(LIBRARY, list, NULL) == FSDP_OK);
        cr_assert(list->n == 2 && strcmp(list->devices[1].uuid, "GPU-bb") == 0);
    }
    atomic_store(&enough, true);
    pthread_join(thread, NULL);
    free(list);
}

static int count_open(pid_t pid)
{
    char path[64];
    struct dirent *entry;
    DIR *directory;
    int n = 0;

    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    directory = opendir(path);
    cr_assert(directory != NULL);
    while ((entry = readdir(directory)) != NULL)
        n += entry->d_name[0] != '.';
    closedir(directory);
    return n;
}

/*
 * The library hangs in its first call: before that, the process was called so and had let go of everything.
 */
static bool has_come_up(pid_t pid)
{
    char path[64], name[32] = "", state[2] = "";
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    file = fopen(path, "re");
    if (file == NULL || fscanf(file, "%*d (%31[^)]) %1s", name, state) != 2)
        state[0] = '\0';
    if (file != NULL)
        fclose(file);
    return strcmp(name, "fsdp-gpu-watch") == 0 && state[0] == 'S';
}

Test(nvml_process, has_nothing_open_but_what_it_answers_on, .timeout = 600)
{
    const struct timespec slice = { .tv_nsec = 5 * 1000 * 1000 };
    int fd, inherited[2];
    pid_t pid;

    setenv("FAKE_NVML", "hang", 1);
    cr_assert(pipe(inherited) == 0); /* which exec would not close */

    cr_assert(nvml_process_start(NVML_WATCH, LIBRARY, &pid, &fd, NULL) == FSDP_OK);
    while (!has_come_up(pid))
        nanosleep(&slice, NULL);

    cr_expect(count_open(pid) == 3);
    kill(pid, SIGKILL);
    cr_expect(waitpid(pid, NULL, 0) == pid);
    close(fd);
}

Test(nvml_process, watches_until_it_is_killed, .timeout = 600)
{
    struct gpu_sample sample;
    int fd, status;
    pid_t pid;

    setenv("FAKE_NVML", "GPU-aa@3b", 1);
    cr_assert(nvml_process_start(NVML_WATCH, LIBRARY, &pid, &fd, NULL) == FSDP_OK);
    for (int i = 0; i < 2; i++) {
        cr_assert(read(fd, &sample, sizeof sample) == (ssize_t)sizeof sample);
        cr_expect(sample.index == 0 && strcmp(sample.pci, "0000:3b:00.0") == 0);
    }
    kill(pid, SIGKILL);
    cr_assert(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    while (read(fd, &sample, sizeof sample) > 0)
        ;
    cr_expect(read(fd, &sample, sizeof sample) == 0, "and the pipe ends with it");
    close(fd);
}

Test(nvml_process, samples_every_gpu_when_it_is_asked, .timeout = 600)
{
    struct gpu_sample sample = { 0 };
    int fd, n_ends = 0;
    pid_t pid;

    setenv("FAKE_NVML", "GPU-aa@3b;GPU-bb@5e", 1);
    cr_assert(nvml_process_start(NVML_WATCH, LIBRARY, &pid, &fd, NULL) == FSDP_OK);
    cr_assert(read(fd, &sample, sizeof sample) == (ssize_t)sizeof sample);
    cr_expect(sample.n_asked == 0 && !sample.ends_round, "the first of two GPUs");

    cr_assert(write(fd, "", 1) == 1);
    while (n_ends == 0) {
        cr_assert(read(fd, &sample, sizeof sample) == (ssize_t)sizeof sample);
        n_ends = sample.n_asked == 1 && sample.ends_round;
    }

    cr_expect(sample.index == 1, "the last GPU ends the round that was asked for");
    cr_assert(shutdown(fd, SHUT_WR) == 0);
    cr_expect(waitpid(pid, NULL, 0) == pid, "it ends when nobody can ask any more");
    close(fd);
}

Test(nvml_process, is_known_by_its_name_and_its_parent)
{
    char *program[] = { (char *)"fsdprun", (char *)"fsdp-gpu-ask", (char *)"1", NULL };
    char *few[] = { (char *)"fsdp-gpu-ask", (char *)"library", NULL };
    char *orphan[] = { (char *)"fsdp-gpu-ask", (char *)"/nowhere", (char *)"0", NULL };
    int status = 0;
    pid_t pid;

    nvml_process_main(3, program);
    nvml_process_main(2, few);
    pid = fork();
    if (pid == 0) {
        nvml_process_main(3, orphan);
        _exit(9);
    }
    cr_assert(waitpid(pid, &status, 0) == pid);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 1, "whoever started it is gone");
}

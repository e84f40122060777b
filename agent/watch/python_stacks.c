#include "agent/watch/python_stacks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "agent/os/descendants.h"
#include "agent/os/process_look.h"
#include "shard_runtime/core/clock.h"

enum { ANSWER_MS = 500, QUIET_MS = 60, POLL_MS = 10, PROCESSES = 1024, ARCHIVE_BYTES = 4096 };

int python_stacks_signal(void)
{
    return SIGRTMIN + 11;
}

int python_stacks_open(void)
{
    const int fd = memfd_create("fsdprun-stacks", MFD_CLOEXEC);

    if (fd >= 0 && fcntl(fd, F_SETFL, O_APPEND) != 0) {
        close(fd);
        return -1;
    }
    return fd;
}

/* The archive */

/*
 * The module `sitecustomize`. It removes its own traces from sys.path and PYTHONPATH, and runs the
 * sitecustomize that Python would have found without it. In a process that did not inherit the memfd it
 * registers no signal.
 */
static const char module[] = "import os, sys\n"
                             "def _fsdprun():\n"
                             "    here = os.path.dirname(__file__)\n"
                             "    sys.path[:] = [p for p in sys.path if p != here]\n"
                             "    path = os.environ.pop('PYTHONPATH', '').split(os.pathsep)\n"
                             "    path = os.pathsep.join(p for p in path if p != here)\n"
                             "    if path:\n"
                             "        os.environ['PYTHONPATH'] = path\n"
                             "    fd, inode, number = map(int, os.environ['FSDPRUN_STACKS'].split(':'))\n"
                             "    if os.fstat(fd).st_ino == inode:\n"
                             "        import faulthandler\n"
                             "        faulthandler.register(number, file=fd, all_threads=True, chain=False)\n"
                             "try:\n"
                             "    _fsdprun()\n"
                             "except Exception:\n"
                             "    pass\n"
                             "import importlib.machinery\n"
                             "_spec = importlib.machinery.PathFinder.find_spec('sitecustomize')\n"
                             "if _spec is not None and _spec.loader is not None:\n"
                             "    import importlib.util\n"
                             "    _next = importlib.util.module_from_spec(_spec)\n"
                             "    sys.modules['sitecustomize'] = _next\n"
                             "    _spec.loader.exec_module(_next)\n";
static const char module_name[] = "sitecustomize.py";
enum { MODULE_BYTES = sizeof module - 1, NAME_BYTES = sizeof module_name - 1, DATE_1980 = 1 << 5 | 1 };

static uint32_t crc_of(const char *bytes, size_t n)
{
    uint32_t crc = UINT32_MAX;

    for (size_t i = 0; i < n; i++) {
        crc ^= (unsigned char)bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ ((crc & 1) != 0 ? UINT32_C(0xEDB88320) : 0);
    }
    return ~crc;
}

struct archive {
    char bytes[ARCHIVE_BYTES];
    size_t n;
};

static void add(struct archive *archive, const void *bytes, size_t n)
{
    memcpy(archive->bytes + archive->n, bytes, n);
    archive->n += n;
}

/* Add a number of n_bytes bytes, the lowest first. */
static void add_number(struct archive *archive, uint32_t number, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        archive->bytes[archive->n++] = (char)(number >> 8 * i);
}

/*
 * Add the fields that the local and the central header of the archive's only member have in common: from the
 * needed version to the length of extra fields.
 */
static void add_member(struct archive *archive)
{
    add_number(archive, 10, 2);
    add_number(archive, 0, 2); /* flags */
    add_number(archive, 0, 2); /* stored, not compressed */
    add_number(archive, 0, 2); /* time */
    add_number(archive, DATE_1980, 2);
    add_number(archive, crc_of(module, MODULE_BYTES), 4);
    add_number(archive, MODULE_BYTES, 4);
    add_number(archive, MODULE_BYTES, 4);
    add_number(archive, NAME_BYTES, 2);
    add_number(archive, 0, 2);
}

/* See APPNOTE.TXT of PKWARE, 4.3: a local header with the data, the central directory, and its end. */
static void build(struct archive *archive)
{
    size_t directory;

    add(archive, "PK\3\4", 4);
    add_member(archive);
    add(archive, module_name, NAME_BYTES);
    add(archive, module, MODULE_BYTES);
    directory = archive->n;
    add(archive, "PK\1\2", 4);
    add_number(archive, 10, 2);
    add_member(archive);
    add_number(archive, 0, 2); /* comment */
    add_number(archive, 0, 2); /* disk */
    add_number(archive, 0, 2);
    add_number(archive, 0, 4); /* attributes */
    add_number(archive, 0, 4); /* where the local header is */
    add(archive, module_name, NAME_BYTES);
    add_number(archive, 0x06054b50, 4);
    add_number(archive, 0, 4);
    add_number(archive, 1, 2);
    add_number(archive, 1, 2);
    add_number(archive, (uint32_t)(archive->n - 12 - directory), 4);
    add_number(archive, (uint32_t)directory, 4);
    add_number(archive, 0, 2);
}

int python_stacks_archive(void)
{
    struct archive archive = { .n = 0 };
    const int fd = memfd_create("fsdprun-python", MFD_CLOEXEC);

    build(&archive);
    if (fd >= 0 && write(fd, archive.bytes, archive.n) != (ssize_t)archive.n) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Asking */

/* Does the process have the rank's memfd open, under the worker's descriptor number? */
static bool has_memfd(const struct python_ask *at, pid_t pid)
{
    struct stat ours, its;
    char path[64];

    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, at->worker_fd);
    return fstat(at->fd, &ours) == 0 && stat(path, &its) == 0 && its.st_ino == ours.st_ino &&
           its.st_dev == ours.st_dev;
}

/*
 * May the process be sent the signal: does it handle it, and has it the memfd? A handler alone proves
 * nothing, because programs in Go handle nearly all signals.
 */
static bool may_answer(const struct python_ask *at, pid_t pid)
{
    return process_catches("/proc", pid, python_stacks_signal()) && has_memfd(at, pid);
}

static pid_t find_python(const struct python_ask *at, const pid_t *pids, size_t n)
{
    if (may_answer(at, at->worker))
        return at->worker;
    for (size_t i = 0; i < n; i++)
        if (may_answer(at, pids[i]) && descendants_top(pids[i]) == at->worker)
            return pids[i];
    return 0;
}

void python_stacks_find(struct python_ask *asks, int n)
{
    pid_t pids[PROCESSES];
    size_t n_pids = descendants_living(pids, PROCESSES, NULL, 0);

    n_pids = n_pids < PROCESSES ? n_pids : PROCESSES;
    for (int i = 0; i < n; i++)
        if (asks[i].worker != 0 && asks[i].fd >= 0)
            asks[i].python = find_python(&asks[i], pids, n_pids);
}

/*
 * Send the signal to the process, if it may be asked. A pidfd keeps its process id from being reused
 * meanwhile.
 */
static bool ask(const struct python_ask *at)
{
    const int pidfd = (int)syscall(SYS_pidfd_open, at->python, 0);
    bool asked = false;

    if (pidfd < 0)
        return false;
    if (may_answer(at, at->python) && descendants_top(at->python) != 0 && ftruncate(at->fd, 0) == 0)
        asked = syscall(SYS_pidfd_send_signal, pidfd, python_stacks_signal(), NULL, 0) == 0;
    close(pidfd);
    return asked;
}

static off_t size_of(int fd)
{
    struct stat info;

    return fstat(fd, &info) == 0 ? info.st_size : 0;
}

/* Wait until each rank that was asked has written something, and then until no rank writes any more. */
static void wait_for_answers(const struct python_ask *asks, int n)
{
    const int64_t until_ms = clock_now_ms() + ANSWER_MS;
    int64_t grown_ms = clock_now_ms();
    off_t before = 0;

    while (clock_now_ms() < until_ms) {
        bool all = true;
        off_t total = 0;

        for (int i = 0; i < n; i++) {
            total += asks[i].fd >= 0 ? size_of(asks[i].fd) : 0;
            all = all && (!asks[i].asked || size_of(asks[i].fd) > 0);
        }
        if (total != before)
            grown_ms = clock_now_ms();
        before = total;
        if (all && clock_now_ms() - grown_ms >= QUIET_MS)
            return;
        poll(NULL, 0, POLL_MS);
    }
}

static void read_answer(struct python_ask *at, const char *directory)
{
    char *text = malloc(PYTHON_STACK_TEXT_BYTES);
    ssize_t n = text == NULL ? -1 : pread(at->fd, text, PYTHON_STACK_TEXT_BYTES, 0);

    if (n <= 0 || !python_stack_take(&at->stack, text, (size_t)n, directory))
        at->missing = "python: it did not answer";
    free(text);
}

void python_stacks_take(struct python_ask *asks, int n, const char *directory)
{
    bool any = false;

    for (int i = 0; i < n; i++) {
        if (asks[i].worker == 0 || asks[i].fd < 0)
            continue;
        asks[i].asked = asks[i].python != 0 && ask(&asks[i]);
        any = any || asks[i].asked;
        asks[i].missing = asks[i].asked ? NULL : "python: nothing handles the signal";
    }
    if (any)
        wait_for_answers(asks, n);
    for (int i = 0; i < n; i++)
        if (asks[i].asked)
            read_answer(&asks[i], directory);
}

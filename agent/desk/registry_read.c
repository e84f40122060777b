#include <cjson/cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "agent/desk/registry_impl.h"
#include "shard_runtime/core/files.h"
#include "shard_runtime/core/json.h"

/* Of a folder that an agent names, at most so many files are looked at: it may be another user's. */
enum { READ_OF_OTHERS = 4 * REGISTRY_MOST };

static bool ends_in(const char *name, const char *suffix)
{
    const size_t length = strlen(name), n = strlen(suffix);

    return length > n && strcmp(name + length - n, suffix) == 0;
}

/*
 * Set `socket` and `lost` to the other names of an entry "ID.RANDOM.json", ".ID.RANDOM.new" or
 * "ID.RANDOM.lost".
 */
static bool other_names(const char *name, char socket[REGISTRY_FILE_BYTES], char lost[REGISTRY_FILE_BYTES])
{
    const char *suffix = ends_in(name, ".json")   ? ".json"
                         : ends_in(name, ".new")  ? ".new"
                         : ends_in(name, ".lost") ? ".lost"
                                                  : NULL;
    int n;

    if (suffix == NULL || strlen(name) + sizeof ".sock" > REGISTRY_FILE_BYTES)
        return false;
    name += name[0] == '.';
    n = (int)(strlen(name) - strlen(suffix));
    snprintf(socket, REGISTRY_FILE_BYTES, "%.*s.sock", n, name);
    snprintf(lost, REGISTRY_FILE_BYTES, "%.*s.lost", n, name);
    return true;
}

static void copy_text(char *out, size_t size, const cJSON *object, const char *key)
{
    const cJSON *member = cJSON_GetObjectItemCaseSensitive(object, key);

    snprintf(out, size, "%s", cJSON_IsString(member) ? member->valuestring : "");
}

/* Read an entry that a run holds. Returns false if it is none. */
static bool read_entry(int fd, struct registry_job *job)
{
    size_t length;
    char *text;
    cJSON *object, *pid, *started;
    bool good;

    if (file_read(fd, REGISTRY_ENTRY_BYTES + 1, &text, &length) != FSDP_OK)
        return false;
    object = length <= REGISTRY_ENTRY_BYTES ? json_parse_object(text, length) : NULL;
    free(text);
    *job = (struct registry_job){ 0 };
    copy_text(job->id, sizeof job->id, object, "job");
    copy_text(job->name, sizeof job->name, object, "name");
    copy_text(job->run_dir, sizeof job->run_dir, object, "run_dir");
    pid = cJSON_GetObjectItemCaseSensitive(object, "pid");
    started = cJSON_GetObjectItemCaseSensitive(object, "started");
    good = job->id[0] != '\0' && cJSON_IsNumber(pid) && cJSON_IsNumber(started);
    if (good) {
        job->pid = (pid_t)pid->valuedouble;
        job->started_s = started->valuedouble;
    }
    cJSON_Delete(object);
    return good;
}

/* Add one more to the list. Returns false if there is no memory. */
static bool add(struct registry_list *list, const struct registry_job *job)
{
    if (list->n == list->capacity) {
        const size_t capacity = list->capacity == 0 ? 8 : list->capacity * 2;
        struct registry_job *jobs = realloc(list->jobs, capacity * sizeof *jobs);

        if (jobs == NULL)
            return false;
        list->jobs = jobs;
        list->capacity = capacity;
    }
    list->jobs[list->n++] = *job;
    return true;
}

/* Without files there is nothing to report: a job that was killed in the queue leaves none. */
static bool has_files(const char *path)
{
    DIR *files = opendir(path);
    const struct dirent *file;
    bool any = false;

    while (files != NULL && !any && (file = readdir(files)) != NULL)
        any = strcmp(file->d_name, ".") != 0 && strcmp(file->d_name, "..") != 0;
    if (files != NULL)
        closedir(files);
    return any;
}

/* While the folder is read, an entry that is renamed may show up a second time under its new name. */
static bool is_known(const struct registry_list *list, const struct registry_job *job)
{
    for (size_t i = 0; i < list->n_lost; i++)
        if (strcmp(list->lost[i].id, job->id) == 0 && strcmp(list->lost[i].run_dir, job->run_dir) == 0)
            return true;
    return false;
}

/*
 * Removes what a dead run has left: its socket at once. Its entry is renamed and stays for REGISTRY_LOST_S if
 * its run directory is known. If the run has just removed the entry itself, because it ended well, the rename
 * fails and nothing is reported.
 */
static bool take_lost(struct registry_list *list, int folder_fd, const char *name, const char *lost, int fd)
{
    struct registry_job job;
    struct stat at;

    if (fstat(fd, &at) < 0 || list->n_lost >= REGISTRY_LOST || time(NULL) - at.st_ctime > REGISTRY_LOST_S ||
        ends_in(name, ".new") || !read_entry(fd, &job) || !has_files(job.run_dir)) {
        unlinkat(folder_fd, name, 0);
        return true;
    }
    if (renameat(folder_fd, name, folder_fd, lost) < 0 || is_known(list, &job))
        return true;
    if (list->lost == NULL)
        list->lost = malloc(REGISTRY_LOST * sizeof *list->lost);
    if (list->lost == NULL)
        return false;
    list->lost[list->n_lost++] = job;
    return true;
}

static bool is_listed(const struct registry_list *list, const struct registry_job *job)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->jobs[i].folder == job->folder && strcmp(list->jobs[i].socket, job->socket) == 0)
            return true;
    return false;
}

/* The words may come from another user. A terminal would obey some of their bytes. */
static bool is_printable(const char *text)
{
    for (; *text != '\0'; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f ||
            ((unsigned char)text[0] == 0xc2 && (unsigned char)text[1] >= 0x80 &&
             (unsigned char)text[1] < 0xa0))
            return false;
    return true;
}

/*
 * Take one file of a folder: an entry goes to the list, what a dead run has left is removed.
 *   only  the only process whose entry is taken, and nothing is removed; 0: all
 */
static bool take_file(struct registry_list *list, size_t folder, pid_t only, const char *name)
{
    const int folder_fd = list->folders[folder].fd;
    const uid_t owner = list->folders[folder].owner;
    char socket[REGISTRY_FILE_BYTES], lost[REGISTRY_FILE_BYTES];
    struct registry_job job;
    struct stat at;
    bool taken = true;
    int fd;

    if (!other_names(name, socket, lost) || (only != 0 && (int)strtol(name, NULL, 10) != only))
        return true;
    fd = openat(folder_fd, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return true; /* a link, or gone meanwhile */
    if (fstat(fd, &at) < 0 || !S_ISREG(at.st_mode) || at.st_uid != owner) {
        close(fd);
        return true;
    }
    if (only != 0 && !registry_is_held(fd)) {
        taken = true;
    } else if (!registry_is_held(fd)) {
        unlinkat(folder_fd, socket, 0);
        taken = take_lost(list, folder_fd, name, lost, fd);
    } else if (ends_in(name, ".json") && read_entry(fd, &job)) {
        job.folder = folder;
        memcpy(job.socket, socket, sizeof socket);
        if (only == 0)
            taken = add(list, &job);
        else if (job.pid == only && is_printable(job.id) && is_printable(job.name) &&
                 is_printable(job.run_dir) && !is_listed(list, &job))
            taken = add(list, &job);
    }
    close(fd);
    return taken;
}

/*
 * Open the folder at `path` for the list, or find it among those that are open.
 *   at  receives its number; n_folders: there is no folder
 */
static enum fsdp_status open_folder(struct registry_list *list, const char *path, uid_t owner, size_t *at,
                                    struct fsdp_err *err)
{
    struct registry_folder *folders;
    struct stat one, other;
    enum fsdp_status status;
    int fd;

    *at = list->n_folders;
    status = registry_folder_open(path, false, owner, &fd, err);
    if (status != FSDP_OK || fd < 0)
        return status;
    for (size_t i = 0; i < list->n_folders; i++)
        if (fstat(fd, &one) == 0 && fstat(list->folders[i].fd, &other) == 0 && one.st_dev == other.st_dev &&
            one.st_ino == other.st_ino) {
            close(fd);
            *at = i;
            return FSDP_OK;
        }
    folders = realloc(list->folders, (list->n_folders + 1) * sizeof *folders);
    if (folders == NULL) {
        close(fd);
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the list of jobs");
    }
    list->folders = folders;
    folders[list->n_folders++] = (struct registry_folder){ .fd = fd, .owner = owner };
    return FSDP_OK;
}

/* `only` is that of take_file(). */
static enum fsdp_status read_folder(struct registry_list *list, const char *path, uid_t owner, pid_t only,
                                    struct fsdp_err *err)
{
    size_t folder, n_read = 0;
    enum fsdp_status status = open_folder(list, path, owner, &folder, err);
    const size_t before = list->n;
    struct dirent *file;
    DIR *files;
    int copy;

    if (status != FSDP_OK || folder == list->n_folders)
        return status;
    copy = openat(list->folders[folder].fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    files = copy < 0 ? NULL : fdopendir(copy);
    if (files == NULL) {
        if (copy >= 0)
            close(copy);
        return errno == ENOENT ? FSDP_OK : file_fail(err, "read", path); /* ENOENT: removed just now */
    }
    while (status == FSDP_OK && list->n - before < REGISTRY_MOST &&
           (only == 0 || n_read++ < READ_OF_OTHERS) && (file = readdir(files)) != NULL)
        if (!take_file(list, folder, only, file->d_name))
            status = fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the list of jobs");
    closedir(files);
    if (only == 0 && list->n == before)
        rmdir(path); /* fails unless it is empty */
    return status;
}

static int compare_age(const void *a, const void *b)
{
    const struct registry_job *one = a, *other = b;

    return (one->started_s > other->started_s) - (one->started_s < other->started_s);
}

enum fsdp_status registry_read(struct registry_list *list, struct fsdp_err *err)
{
    char path[REGISTRY_PATH_BYTES];
    enum fsdp_status status = FSDP_OK;

    *list = (struct registry_list){ 0 };
    for (int i = 0; i < REGISTRY_FOLDERS && (status == FSDP_OK || status == FSDP_ERR_CONFIG); i++) {
        const enum fsdp_status one =
            registry_folder_path(i, path) ? read_folder(list, path, geteuid(), 0, err) : FSDP_OK;

        if (one != FSDP_OK)
            status = one;
    }
    if (list->n > 1)
        qsort(list->jobs, list->n, sizeof *list->jobs, compare_age);
    if (list->n_lost > 1)
        qsort(list->lost, list->n_lost, sizeof *list->lost, compare_age);
    return status;
}

enum fsdp_status registry_add(struct registry_list *list, uid_t owner, pid_t pid, const char *runtime_dir,
                              const char *temporary, struct fsdp_err *err)
{
    char path[REGISTRY_PATH_BYTES];
    enum fsdp_status status = FSDP_OK;

    if (pid > 0 && registry_folder_of(owner, runtime_dir, temporary, path))
        status = read_folder(list, path, owner, pid, err);
    if (list->n > 1)
        qsort(list->jobs, list->n, sizeof *list->jobs, compare_age);
    return status;
}

void registry_list_fini(struct registry_list *list)
{
    for (size_t i = 0; i < list->n_folders; i++)
        close(list->folders[i].fd);
    free(list->folders);
    free(list->jobs);
    free(list->lost);
    *list = (struct registry_list){ 0 };
}

int registry_connect(const struct registry_list *list, const struct registry_job *job)
{
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    struct sockaddr_un address;
    struct ucred peer = { 0 };
    socklen_t size = sizeof peer;
    int error;

    if (fd < 0)
        return -1;
    if (!registry_address(&address, list->folders[job->folder].fd, job->socket))
        error = ENAMETOOLONG;
    else if (connect(fd, (struct sockaddr *)&address, sizeof address) < 0)
        error = errno;
    else if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0 ||
             peer.uid != list->folders[job->folder].owner)
        error = EPERM;
    else
        return fd;
    close(fd);
    errno = error;
    return -1;
}

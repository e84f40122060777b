#include "shard_runtime/state/save_files.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shard_runtime/core/require.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/directory_lock.h"
#include "shard_runtime/shardfile/io_beneath.h"

/*
 * Makes the path absolute, because the agent has another working directory. Removes slashes at the end,
 * because the agent compares the paths that the ranks send.
 */
static enum fsdp_status make_absolute(char out[IO_PATH_BYTES], const char *directory, struct fsdp_err *err)
{
    const bool is_absolute = directory[0] == '/' || io_is_remote(directory);
    char here[IO_PATH_BYTES] = "";
    size_t length = strlen(directory);

    while (length > 1 && directory[length - 1] == '/')
        length--;
    if (length == 0)
        return fsdp_fail(err, FSDP_ERR_ARG, "the directory of the checkpoints has an empty name");
    if (!is_absolute && getcwd(here, sizeof here) == NULL)
        return fsdp_fail(err, FSDP_ERR_IO, "the working directory: %s", strerror(errno));
    if (snprintf(out, IO_PATH_BYTES, "%s%s%.*s", here, is_absolute ? "" : "/", (int)length, directory) >=
        IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path of the checkpoints is too long");
    return FSDP_OK;
}

/*
 * Removes what an earlier run left unfinished in `directory`, unless a process holds the directory's lock.
 * There are two cases:
 *   - Our agent holds the lock. Then the agent cleans the directory itself.
 *   - Another run holds the lock. Then our agent will later refuse to publish.
 * A directory that another run is writing in its first save is not removed.
 */
static void clean(struct fsdp_context *context, const char *directory)
{
    struct fsdp_io *io = context_files(context);
    struct directory_lock *lock = NULL;
    bool held;

    if (directory_lock_share(&lock, io, directory, &held, NULL) == FSDP_OK && held)
        (void)commit_clean(io, directory, link_hello(context_link(context))->term, NULL, NULL);
    directory_lock_release(&lock, io);
}

static bool is_below(const char *path, const char *folder)
{
    const size_t length = strlen(folder);

    return length > 0 && strncmp(path, folder, length) == 0 && path[length] == '/';
}

enum fsdp_status save_files_open(struct save_files *files, struct fsdp_context *context,
                                 const char *directory, struct fsdp_err *err)
{
    const struct fsdp_link_hello *hello = link_hello(context_link(context));
    const char *root = directory != NULL ? files->directory : hello->checkpoint_dir;

    *files = (struct save_files){ .before = *context_files(context) };
    if (directory != NULL)
        OK_OR_RETURN(make_absolute(files->directory, directory, err));
    /* The trainer has already done this, for all files of its run directory. */
    if (root[0] == '\0' || io_beneath_covers(context_files(context), root))
        return FSDP_OK;
    if (is_below(root, hello->run_dir))
        root = hello->run_dir;
    else
        OK_OR_RETURN(io_make_directories(&io_posix, root, err));
    OK_OR_RETURN(io_beneath_open(&files->root, root, err));
    io_beneath_use(context_files(context), files->root);
    if (directory != NULL && !fsdp_context_alone(context) && context->rank == 0)
        clean(context, files->directory);
    return FSDP_OK;
}

void save_files_close(struct save_files *files, struct fsdp_context *context)
{
    if (files->root == NULL)
        return;
    io_beneath_use(context_files(context), &files->before);
    io_beneath_destroy(files->root);
    files->root = NULL;
}

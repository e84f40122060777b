#include "launcher/cmd_ckpt.h"

#include <string.h>

#include "launcher/ckpt_impl.h"
#include "launcher/cmd_jobs.h"
#include "launcher/json_table.h"
#include "launcher/say.h"
#include "shard_runtime/core/exit_status.h"
#include "shard_runtime/core/require.h"
#include "shard_runtime/core/spelling.h"
#include "shard_runtime/core/text.h"
#include "shard_runtime/shardfile/commit.h"
#include "shard_runtime/shardfile/io_anywhere.h"
#include "shard_runtime/shardfile/verify.h"
#include "shard_runtime/shardfile/weights.h"

static const struct {
    const char *name;
    int (*run)(const struct ckpt_words *words, FILE *out, struct fsdp_err *err);
} runs[] = {
    { "ckpt ls", ckpt_ls },       { "ckpt show", ckpt_show },     { "ckpt verify", ckpt_verify },
    { "ckpt diff", ckpt_diff },   { "ckpt export", ckpt_export }, { "ckpt import", ckpt_import },
    { "ckpt prune", ckpt_prune },
};

int ckpt_exit_status(enum fsdp_status status)
{
    return status == FSDP_ERR_UNSUPPORTED ? FSDP_EXIT_INPUT : exit_status_of(status);
}

/*
 * Sets *is_directory to whether `path` is a directory. A path that does not exist is not one, and no error.
 * It fails only if the host of an object store does not answer.
 */
static enum fsdp_status look_at(const char *path, bool *is_directory, struct fsdp_err *err)
{
    struct io_stat stat = { 0 };
    enum fsdp_status status;
    int fd;

    *is_directory = false;
    status = io_open_named(&io_anywhere, path, &fd, &stat, err);
    if (status == FSDP_OK) {
        io_anywhere.close(&io_anywhere, fd);
        *is_directory = stat.kind == IO_DIRECTORY;
        return FSDP_OK;
    }
    if (status == FSDP_ERR_IO && io_is_remote(path))
        return status;
    fsdp_err_clear(err);
    return FSDP_OK;
}

bool ckpt_has_manifest(const char *path)
{
    char manifest[IO_PATH_BYTES];
    struct io_stat stat;

    return io_join(manifest, path, MANIFEST_FILE, NULL) == FSDP_OK &&
           io_anywhere.stat(&io_anywhere, manifest, &stat) == 0;
}

enum fsdp_status ckpt_find_directory(const char *path, char out[IO_PATH_BYTES], struct fsdp_err *err)
{
    bool is_directory;

    OK_OR_RETURN(look_at(path, &is_directory, err));
    if (!is_directory)
        return fsdp_fail(err, FSDP_ERR_NOT_FOUND, "%s is no directory", path);
    OK_OR_RETURN(io_join(out, path, "checkpoints", err));
    OK_OR_RETURN(look_at(out, &is_directory, err));
    if (is_directory)
        return FSDP_OK;
    if (ckpt_has_manifest(path))
        return fsdp_fail(err, FSDP_ERR_FORMAT, "%s is one checkpoint, not the directory of a run", path);
    snprintf(out, IO_PATH_BYTES, "%s", path); /* the path fits: io_join() accepted a longer one above */
    return FSDP_OK;
}

enum fsdp_status ckpt_find_one(const char *path, char out[IO_PATH_BYTES], struct fsdp_err *err)
{
    char directory[IO_PATH_BYTES];
    bool is_directory;
    int64_t step;

    if (snprintf(out, IO_PATH_BYTES, "%s", path) >= IO_PATH_BYTES)
        return fsdp_fail(err, FSDP_ERR_ARG, "the path is too long");
    OK_OR_RETURN(look_at(path, &is_directory, err));
    if (!is_directory || ckpt_has_manifest(path))
        return FSDP_OK;
    OK_OR_RETURN(ckpt_find_directory(path, directory, err));
    OK_OR_RETURN(verify_newest(&io_anywhere, directory, VERIFY_SIZES, &step, NULL, err));
    return step < 0 ? FSDP_OK : commit_step_path(directory, step, out, err);
}

enum fsdp_status ckpt_list(const char *path, struct contents *out, char directory[IO_PATH_BYTES],
                           struct fsdp_err *err)
{
    char found[IO_PATH_BYTES];

    *out = (struct contents){ 0 };
    OK_OR_RETURN(ckpt_find_one(path, found, err));
    return weights_list(&io_anywhere, found, out, directory, err);
}

int cmd_ckpt_help(const char *name, FILE *out)
{
    if (name != NULL && ckpt_command(name) != NULL)
        return cmd_jobs_help(ckpt_command(name), out);
    fputs("fsdprun ckpt: checkpoints, without a job.\n\n", out);
    for (size_t i = 0; i < ckpt_commands_size; i++)
        fprintf(out, "  fsdprun %-12s %s\n", ckpt_commands[i].name, ckpt_commands[i].brief);
    text_fill(out,
              "\nfsdprun ckpt COMMAND --help: the page of one of them.\n\n"
              "Status: 0; 1 if verify finds damage, or diff a difference; 2 bad usage; 66 an input that is\n"
              "missing or unusable; 74 an I/O error; 78 a run that a live job holds.\n");
    return json_written(out);
}

/* Returns the name of the command that is spelled most like `name`, or NULL if none is close. */
static const char *meant(const char *name)
{
    const char *found = NULL;
    size_t best = (size_t)-1;

    for (size_t i = 0; i < ckpt_commands_size; i++)
        if (spelling_is_close(name, ckpt_word(&ckpt_commands[i]), &best))
            found = ckpt_commands[i].name;
    return found;
}

static int run(const struct ckpt_words *words, FILE *out, struct fsdp_err *err)
{
    size_t i = 0;

    while (strcmp(runs[i].name, words->command->name) != 0)
        i++; /* the loop ends: `runs` has each command of the table */
    return runs[i].run(words, out, err);
}

int cmd_ckpt(char *const *words, int n, FILE *out, FILE *err_out)
{
    const struct subcommand *command;
    struct ckpt_words said;
    struct fsdp_err err = { 0 };
    int status;

    if (n == 0) {
        cmd_ckpt_help(NULL, err_out);
        return FSDP_EXIT_USAGE;
    }
    if (strcmp(words[0], "--help") == 0 || strcmp(words[0], "-h") == 0)
        return cmd_ckpt_help(NULL, out);
    command = ckpt_command(words[0]);
    if (command == NULL) {
        const char *close = meant(words[0]);

        say(err_out, "fsdprun ckpt: %.60s is no command of it%s%s (see fsdprun ckpt --help)", words[0],
            close != NULL ? "; did you mean " : "", close != NULL ? close : "");
        return FSDP_EXIT_USAGE;
    }
    if (ckpt_words_read(&said, command, words + 1, n - 1, &err) != FSDP_OK)
        status = FSDP_EXIT_USAGE;
    else if (said.help)
        status = cmd_jobs_help(command, out);
    else
        status = run(&said, out, &err);
    if (status != 0 && err.status != FSDP_OK)
        say(err_out, "fsdprun %s: %s", command->name, err.message);
    return status;
}

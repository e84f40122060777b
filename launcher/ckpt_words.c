#include "launcher/ckpt_words.h"

#include <string.h>

#define JSON                                                                                                 \
    {                                                                                                        \
        0, "json", NULL, "for programs: one JSON value"                                                      \
    }
#define END                                                                                                  \
    {                                                                                                        \
        0                                                                                                    \
    }

enum { PREFIX_BYTES = sizeof "ckpt " - 1 };

const struct subcommand ckpt_commands[] = {
    { "ckpt ls", "the checkpoints of a run", "[--verify] [--json] RUN",
      (const struct subcommand_option[]){
          { 0, "verify", NULL, "read all of each, as verify does" }, JSON, END },
      "RUN is a run directory, or a directory of checkpoints. States: complete (the manifest holds, and\n"
      "all files have their sizes), broken, unfinished (a save that goes on, or was left by a crash);\n"
      "with --verify also verified and damaged.\n" },
    { "ckpt show", "what a checkpoint holds: state, tensors, files", "[--json] CKPT",
      (const struct subcommand_option[]){ JSON, END },
      "CKPT is the directory of a checkpoint, or a RUN, whose newest complete one is meant. It may also\n"
      "be weights of other programs: a safetensors file, its index, or a directory of them.\n" },
    { "ckpt verify", "read a checkpoint, or all of a run, and name damage", "[--watch] [--json] CKPT",
      (const struct subcommand_option[]){
          { 0, "watch", NULL, "go on with each checkpoint that the run publishes, at the lowest priority" },
          JSON,
          END },
      "CKPT is the directory of a checkpoint, or a RUN. File, tensor and byte range of damage are named.\n"
      "Status: 1 if damage was found. With --watch each checkpoint of RUN is read once, with a line (or a\n"
      "JSON value) for each; it ends when RUN is removed, or by a signal.\n" },
    { "ckpt diff", "which tensors differ, and by how much", "[--json] A B",
      (const struct subcommand_option[]){ JSON, END },
      "A and B are what `show` takes, saved by any numbers of ranks. Status: 1 if they differ.\n" },
    { "ckpt export", "write the weights as safetensors for other programs", "[--max-size SIZE] CKPT OUT",
      (const struct subcommand_option[]){
          { 0, "max-size", "SIZE",
            "bytes of a file, as 5G or 500M (default 5G); a larger tensor has one to itself" },
          END },
      "OUT is a new directory, with config.json if a job saved the checkpoint, or a new file "
      "OUT.safetensors.\n"
      "The names are those of the job's kind of model: transformers opens that of gpt2. The checkpoint is\n"
      "verified first. The optimizer's state stays behind.\n" },
    { "ckpt import", "make a checkpoint of weights that other programs wrote",
      "[--job FILE] [--step N] [--ranks N] [--prefix TEXT] SOURCE RUN",
      (const struct subcommand_option[]){
          { 0, "job", "FILE", "the job that will go on: its optimizer, seed, number of ranks and names" },
          { 0, "step", "N", "the step that the weights are of (default 0)" },
          { 0, "ranks", "N", "in how many files, as if so many ranks had saved" },
          { 0, "prefix", "TEXT", "what precedes the names in SOURCE, and is taken away" },
          END },
      "SOURCE is a safetensors file, an index, a directory of files (links of a Hugging Face cache too), or "
      "a\n"
      "directory of torch.distributed.checkpoint (.distcp), whose pickles are read as data. Floating-point\n"
      "types become float32. With --job, states of the optimizer that SOURCE lacks begin at zero, and\n"
      "`fsdprun FILE` goes on in RUN, if that is the run directory of the job.\n" },
    { "ckpt prune", "remove old checkpoints of a run", "--keep N [--json] RUN",
      (const struct subcommand_option[]){
          { 0, "keep", "N", "keep the N newest complete ones, at least 1" }, JSON, END },
      "The newest one whose bytes are sound is never removed: so the newest ones are read. A RUN that a "
      "live\n"
      "job holds is refused, with status 78.\n" },
};
const size_t ckpt_commands_size = sizeof ckpt_commands / sizeof *ckpt_commands;

const char *ckpt_word(const struct subcommand *command)
{
    return command->name + PREFIX_BYTES;
}

const struct subcommand *ckpt_command(const char *name)
{
    for (size_t i = 0; i < ckpt_commands_size; i++)
        if (strcmp(ckpt_word(&ckpt_commands[i]), name) == 0)
            return &ckpt_commands[i];
    return NULL;
}

/*
 * Returns how many paths the command takes: the words in capitals of its usage that are neither in brackets
 * nor the value of an option.
 */
static int paths_of(const struct subcommand *command)
{
    int n = 0;

    for (const char *at = command->usage; *at != '\0';) {
        const size_t length = strcspn(at, " ");

        if (*at == '[')
            at += strcspn(at, "]") + 1;
        else if (*at == '-') /* an option that the user must give, and its value */
            at += length + 1 + strcspn(at + length + 1, " ");
        else {
            n++;
            at += length;
        }
        at += strspn(at, " ");
    }
    return n;
}

/* Returns the index of the option called `name`, or -1 if the command has none. */
static int find(const struct subcommand *command, const char *name, size_t length)
{
    for (int i = 0; command->options[i].name != NULL; i++)
        if (strlen(command->options[i].name) == length &&
            strncmp(command->options[i].name, name, length) == 0)
            return i;
    return -1;
}

/* Reads the option in words[*i] and its value. If the value is the next word, *i moves to it. */
static enum fsdp_status read_option(struct ckpt_words *out, char *const *words, int n, int *i,
                                    struct fsdp_err *err)
{
    const char *word = words[*i];
    const size_t length = strcspn(word, "=");
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    const int k = strncmp(word, "--", 2) == 0 ? find(out->command, word + 2, length - 2) : -1;

    if (k < 0)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "%s has no option %.60s", out->command->name, word);
    if (out->command->options[k].argument == NULL) {
        if (value != NULL)
            return fsdp_fail(err, FSDP_ERR_CONFIG, "--%s takes no value", out->command->options[k].name);
        out->values[k] = "";
        return FSDP_OK;
    }
    if (value == NULL && ++*i == n)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "--%s needs a value", out->command->options[k].name);
    out->values[k] = value != NULL ? value : words[*i];
    return FSDP_OK;
}

enum fsdp_status ckpt_words_read(struct ckpt_words *out, const struct subcommand *command, char *const *words,
                                 int n, struct fsdp_err *err)
{
    const int most = paths_of(command);
    bool options_end = false;
    int n_paths = 0;

    *out = (struct ckpt_words){ .command = command };
    for (int i = 0; i < n; i++) {
        if (!options_end && strcmp(words[i], "--") == 0) {
            options_end = true;
        } else if (!options_end && (strcmp(words[i], "--help") == 0 || strcmp(words[i], "-h") == 0)) {
            out->help = true;
        } else if (!options_end && words[i][0] == '-' && words[i][1] != '\0') {
            if (read_option(out, words, n, &i, err) != FSDP_OK)
                return FSDP_ERR_CONFIG;
        } else if (n_paths == most) {
            return fsdp_fail(err, FSDP_ERR_CONFIG, "unexpected argument: %.60s", words[i]);
        } else {
            out->paths[n_paths++] = words[i];
        }
    }
    if (out->help)
        return FSDP_OK;
    for (int k = 0; k < n_paths; k++)
        if (out->paths[k][0] == '\0')
            n_paths = 0;
    if (n_paths < most)
        return fsdp_fail(err, FSDP_ERR_CONFIG, "a path is missing: fsdprun %s %s", command->name,
                         command->usage);
    return FSDP_OK;
}

const char *ckpt_words_value(const struct ckpt_words *words, const char *option)
{
    const int k = find(words->command, option, strlen(option));

    return k < 0 ? NULL : words->values[k];
}

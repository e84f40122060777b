/*
 * The table of the commands of `fsdprun ckpt`, and the reader of a user's command line: options, and one or
 * two paths. Pure.
 */
#ifndef LAUNCHER_CKPT_WORDS_H
#define LAUNCHER_CKPT_WORDS_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "launcher/what.h"

enum { CKPT_MOST_OPTIONS = 6, CKPT_MOST_PATHS = 2 };

/* The command line that a user gave to one of the commands. */
struct ckpt_words {
    const struct subcommand *command; /* the command, named "ckpt ls" and so on */
    /* one for each option of the command; "" for a flag; NULL: not given */
    const char *values[CKPT_MOST_OPTIONS];
    const char *paths[CKPT_MOST_PATHS];
    bool help;
};

/** All commands, in the order in which the help page lists them. */
extern const struct subcommand ckpt_commands[];
extern const size_t ckpt_commands_size;

/** Returns the name of the command without the word ckpt: "ls". */
const char *ckpt_word(const struct subcommand *command);

/** Returns the command called `name`, such as "ls", or NULL. */
const struct subcommand *ckpt_command(const char *name);

/**
 * Reads words[0] to words[n - 1], which are the words after the name of `command`. Options may be before and
 * after the paths.
 *   FSDP_ERR_CONFIG  wrong usage; `err` says what is wrong
 */
enum fsdp_status ckpt_words_read(struct ckpt_words *out, const struct subcommand *command, char *const *words,
                                 int n, struct fsdp_err *err);

/** Returns the value of `option`. For a flag that is "". NULL: the user did not give it. */
const char *ckpt_words_value(const struct ckpt_words *words, const char *option);

#endif

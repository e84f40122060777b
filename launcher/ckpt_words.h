/*
 * The commands of `fsdprun ckpt`, and the words after them: options, and one or two paths. Pure.
 */
#ifndef LAUNCHER_CKPT_WORDS_H
#define LAUNCHER_CKPT_WORDS_H

#include <stdbool.h>

#include <fsdp/status.h>

#include "launcher/what.h"

enum { CKPT_MOST_OPTIONS = 6, CKPT_MOST_PATHS = 2 };

/* The words that a user gave to a command. */
struct ckpt_words {
    const struct subcommand *command;      /* the command, named "ckpt ls" and so on */
    const char *values[CKPT_MOST_OPTIONS]; /* of each option of the command; a flag has ""; NULL: not given */
    const char *paths[CKPT_MOST_PATHS];
    bool help;
};

/** The commands, in the order of the help page. */
extern const struct subcommand ckpt_commands[];
extern const size_t ckpt_commands_size;

/** Returns the name of the command without the word ckpt: "ls". */
const char *ckpt_word(const struct subcommand *command);

/** Returns the command called `name`, such as "ls", or NULL. */
const struct subcommand *ckpt_command(const char *name);

/**
 * Reads words[0..n), which follow the name of `command`. Options may stand before and after the paths.
 *   FSDP_ERR_CONFIG  bad usage; the message says what is wrong
 */
enum fsdp_status ckpt_words_read(struct ckpt_words *out, const struct subcommand *command, char *const *words,
                                 int n, struct fsdp_err *err);

/** Returns the value of the option, "" for a flag, or NULL if it was not given. */
const char *ckpt_words_value(const struct ckpt_words *words, const char *option);

#endif

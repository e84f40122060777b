/* The command `fsdprun ckpt`: what a user does with checkpoints while no job runs. */
#ifndef LAUNCHER_CMD_CKPT_H
#define LAUNCHER_CMD_CKPT_H

#include <stdio.h>

#include "launcher/ckpt_words.h"

/**
 * Runs `fsdprun ckpt` with words[0] to words[n - 1]: the name of a command, and its arguments. Returns the
 * exit status.
 */
int cmd_ckpt(char *const *words, int n, FILE *out, FILE *err_out);

/** Prints the help page of the command `name`, or that of `fsdprun ckpt` if `name` is NULL. */
int cmd_ckpt_help(const char *name, FILE *out);

#endif

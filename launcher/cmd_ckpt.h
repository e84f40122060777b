/*
 * fsdprun ckpt: what is done with checkpoints when no job runs.
 */
#ifndef LAUNCHER_CMD_CKPT_H
#define LAUNCHER_CMD_CKPT_H

#include <stdio.h>

#include "launcher/ckpt_words.h"

/** The words after `ckpt`: the name of a command, and its words. Returns the exit status. */
int cmd_ckpt(char *const *words, int n, FILE *out, FILE *err_out);

/** Print the page of `fsdprun ckpt`, or of one of its commands (`name`, else NULL). */
int cmd_ckpt_help(const char *name, FILE *out);

#endif

/*
 * Shared by the files of completion.h. completion_bash.c, completion_zsh.c and completion_fish.c print the
 * scripts of one shell each. completion.c has what they ask of the tables. Pure.
 */
#ifndef LAUNCHER_COMPLETION_IMPL_H
#define LAUNCHER_COMPLETION_IMPL_H

#include <stdbool.h>
#include <stdio.h>

#include "launcher/options.h"
#include "shard_runtime/job/schema.h"

struct subcommand;

void completion_bash(FILE *out, const char *program);
void completion_zsh(FILE *out, const char *program);
void completion_fish(FILE *out, const char *program);

/** Returns whether the option is offered. One whose value would always be refused is not. */
bool completion_offers(const struct option *option);
/** Returns whether the option's argument has that name, such as "DIR". */
bool completion_takes(const struct option *option, const char *argument);
bool completion_takes_file(const struct option *option);
/** Print the option's choices, with spaces between. */
void completion_put_choices(FILE *out, const struct option *option);

/** Returns whether the program has subcommands: torchrun has none. */
bool completion_has_subcommands(const char *program);
/** Print the commands over jobs: "ps|status|logs" with `between` "|". */
void completion_put_job_commands(FILE *out, const char *between);
/** Print the commands of ckpt, without that word before them: "ls show verify". */
void completion_put_ckpt_commands(FILE *out);
/** Print the options of one of these: "--json --help". */
void completion_put_ckpt_options(FILE *out, const struct subcommand *command);

/** Returns whether --set takes the key. One that no code reads would always be refused. */
bool completion_sets(const struct job_key *key);
/** Returns whether the key takes a word of a fixed list. */
bool completion_has_words(const struct job_key *key);
/** Print these words, with spaces between. */
void completion_put_words(FILE *out, const struct job_key *key);

#endif

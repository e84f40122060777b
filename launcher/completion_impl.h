/*
 * Shared by the files that implement completion.h. completion_bash.c, completion_zsh.c and completion_fish.c
 * print the script of one shell each. completion.c has the helpers that read the tables of options and keys.
 * Pure.
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

/** Returns whether the script offers the option. An option without a single accepted value is not offered. */
bool completion_offers(const struct option *option);
/** Returns whether the name of the option's argument is `argument`, such as "DIR". */
bool completion_takes(const struct option *option, const char *argument);
bool completion_takes_file(const struct option *option);
/** Returns whether an argument of that name is the path of a file. */
bool completion_is_path(const char *argument);
/** Prints the option's choices, separated by spaces. */
void completion_put_choices(FILE *out, const struct option *option);

/** Returns whether the program has subcommands: fsdprun has, torchrun has not. */
bool completion_has_subcommands(const char *program);
/** Prints the names of the commands over jobs, separated by `between`: "ps|status|logs". */
void completion_put_job_commands(FILE *out, const char *between);
/** Prints the names of the commands of `fsdprun ckpt`, separated by spaces: "ls show verify". */
void completion_put_ckpt_commands(FILE *out);
/** Prints the options of one command of `fsdprun ckpt`: "--json --help". */
void completion_put_ckpt_options(FILE *out, const struct subcommand *command);

/** Returns whether --set accepts the key. It refuses keys that no code reads. */
bool completion_sets(const struct job_key *key);
/** Returns whether the key's value is one of a fixed list of words. */
bool completion_has_words(const struct job_key *key);
/** Prints the words that the key's value can be, separated by spaces. */
void completion_put_words(FILE *out, const struct job_key *key);

#endif

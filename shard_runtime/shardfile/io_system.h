/*
 * Functions that the two tables of real system calls share: io_posix.c and io_beneath.c.
 */
#ifndef SHARDFILE_IO_SYSTEM_H
#define SHARDFILE_IO_SYSTEM_H

#include <sys/stat.h>

#include "shard_runtime/shardfile/io.h"

/** Fills *out from the system's struct stat. */
void io_stat_of(const struct stat *stat, struct io_stat *out);

/**
 * Change the errno of a failed system call to the value that io.h promises. io_rename_result() is for
 * rename(2), io_exchange_result() for renameat2(2) with RENAME_EXCHANGE. `result` is what the call returned,
 * and they return it.
 */
int io_rename_result(int result);
int io_exchange_result(int result);

/** Lists the names in the open directory `fd`, as the slot `list` does. Always closes `fd`. */
int io_list_open(int fd, struct io_names *out);

#endif

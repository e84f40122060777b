/*
 * What the two tables of real system calls share: io_posix.c and io_beneath.c.
 */
#ifndef SHARDFILE_IO_SYSTEM_H
#define SHARDFILE_IO_SYSTEM_H

#include <sys/stat.h>

#include "shard_runtime/shardfile/io.h"

void io_stat_of(const struct stat *stat, struct io_stat *out);

/** The result of rename(2), and of renameat2(2) with RENAME_EXCHANGE, with errno as io.h promises it. */
int io_rename_result(int result);
int io_exchange_result(int result);

/** The names in an open directory; `fd` is closed in any case. */
int io_list_open(int fd, struct io_names *out);

#endif

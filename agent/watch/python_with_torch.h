/*
 * Finds a Python with PyTorch on this host, for a hint to a user whose worker found none. It only looks at
 * files.
 */
#ifndef AGENT_PYTHON_WITH_TORCH_H
#define AGENT_PYTHON_WITH_TORCH_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/record/errors.h"

/** Does the detail of a failed worker say that it could not import torch? */
bool python_lacks_torch(const struct errors_detail *detail);

/**
 * Find a Python whose packages contain torch, in $VIRTUAL_ENV/bin or in a directory of PATH of `environment`.
 * It is not `used`, the program that has just failed. True: its path is in `out`.
 */
bool python_with_torch(char *const *environment, const char *used, char *out, size_t size);

#endif

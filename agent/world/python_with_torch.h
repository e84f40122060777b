/*
 * Which Python on this host has PyTorch, for the user whose worker found none. It looks at files and runs nothing.
 */
#ifndef AGENT_PYTHON_WITH_TORCH_H
#define AGENT_PYTHON_WITH_TORCH_H

#include <stdbool.h>
#include <stddef.h>

#include "agent/record/errors.h"

/** Did this worker end because it could not import torch? */
bool python_lacks_torch(const struct errors_detail *detail);

/**
 * Find a Python in $VIRTUAL_ENV/bin or in a directory of PATH, both as `environment` has them, whose packages hold
 * torch, and which is not `used`, the program that has just failed. False: there is none; else its path is in `out`.
 */
bool python_with_torch(char *const *environment, const char *used, char *out, size_t size);

#endif

/*
 * MUST_CHECK before a declaration makes the compiler warn if a caller ignores the result (a cast to void does
 * not silence gcc). A result that may be ignored is written IGNORED(name, call), see ignored.h.
 */
#ifndef CUDA_MUST_CHECK_H
#define CUDA_MUST_CHECK_H

#define MUST_CHECK __attribute__((warn_unused_result))

#endif

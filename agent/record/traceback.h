/*
 * Finds, in the last bytes of a program's stderr, what the Python interpreter wrote about the exception that
 * ended the program. Pure.
 *
 * A program may log an exception that it caught, and end for another reason. So the newest traceback is the
 * cause only if nothing else was written after it. These may follow it:
 *   - blank lines
 *   - lines that belong to it: more lines of its message, its notes, the parts of an exception group
 *   - lines of an interpreter that is about to exit: "Exception ignored in", warnings, the logger of
 *     PyTorch's C++ code
 *
 * An indented line after the exception belongs to it. A line that is not indented may belong to the message
 * or to something else, and the bytes do not say which. It is taken as part of the message if both hold:
 *   1. The traceback begins at the program's top, as one of an uncaught exception does.
 *   2. The line directly above the traceback is no log record, as logging.exception() writes one.
 *
 * Known forms: a traceback, a chain of tracebacks, an exception group, and a SyntaxError of the program
 * itself, which has no header. In each form all lines may have the same prefix. "[rank0]: " is the prefix of
 * torch.distributed's excepthook, which is called only for an uncaught exception: such a traceback is the
 * cause whatever follows it.
 */
#ifndef AGENT_TRACEBACK_H
#define AGENT_TRACEBACK_H

#include <stdbool.h>
#include <stddef.h>

enum { TRACEBACK_BYTES = 16384 };

/**
 * Search the last TRACEBACK_BYTES of bytes[0..n), the end of a stream that may be cut anywhere and contain
 * any byte. Colours of a terminal are removed.
 *
 *   text     receives the traceback with its chain: a newline after every line, prefixes removed. If it is
 *            too long, its end, from the beginning of a line.
 *   message  receives the message of the newest exception, "ValueError: x": newlines between its lines and
 *            none at the end. If it is too long, its beginning, in whole characters of UTF-8.
 *
 * Returns false, and changes nothing, if no traceback is the cause.
 */
bool traceback_take(const char *bytes, size_t n, char *text, size_t text_size, char *message,
                    size_t message_size);

#endif

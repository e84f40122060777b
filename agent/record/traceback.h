/*
 * What the Python interpreter wrote of the exception that ended it, among the last bytes of its stderr. Pure.
 *
 * A program may log what it caught and end for another reason, so the newest traceback is the cause only where it is the
 * last thing said: what follows is blank, belongs to it (the further lines of its message, its notes, the parts of a
 * group), or is known to come from an interpreter that is on its way out ("Exception ignored in", warnings, the logger of
 * PyTorch's C++ side). An indented line belongs to it. One that is not could be the message's or another's, and the
 * bytes do not tell: it is taken for the message's where the traceback begins at the program's top, as one that nobody
 * caught does, and no log record stands right above it, as one does above what logging.exception() writes.
 *
 * Known forms: a traceback, a chain of them, an exception group, a SyntaxError of the program itself (it has no header);
 * each also with one beginning in front of all its lines. "[rank0]: " is what torch.distributed's excepthook puts there,
 * which is called for nothing but an uncaught exception: that one is the cause whatever follows.
 */
#ifndef AGENT_TRACEBACK_H
#define AGENT_TRACEBACK_H

#include <stdbool.h>
#include <stddef.h>

enum { TRACEBACK_BYTES = 16384 };

/**
 * Find it in the last TRACEBACK_BYTES of bytes[0..n), the end of a stream that may be cut anywhere and hold any byte.
 * The colours of a terminal are left out.
 *
 *   text     the traceback with its chain, newline after every line, beginnings left out; of a long one its end, from
 *            the beginning of a line
 *   message  of the newest exception, "ValueError: x", with a newline between its lines and none at the end; of a long
 *            one its beginning, whole characters of UTF-8
 *
 * False, and neither is touched: there is none that is the cause.
 */
bool traceback_take(const char *bytes, size_t n, char *text, size_t text_size, char *message,
                    size_t message_size);

#endif

#include "launcher/say.h"

#include <stdarg.h>
#include <unistd.h>

#include "launcher/terminal.h"
#include "shard_runtime/core/text.h"

enum { INDENT = 2 };

void say(FILE *out, const char *format, ...)
{
    const int fd = fileno(out);
    char text[SAY_BYTES];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (fd >= 0 && isatty(fd) != 0)
        text_wrap(out, text, 0, INDENT, terminal_look(fd).columns);
    else
        fprintf(out, "%s\n", text);
}

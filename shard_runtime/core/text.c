#include "shard_runtime/core/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { WRAP_COLUMNS = 100 };

char *text_of(void (*print)(FILE *out, const void *subject), const void *subject)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    bool failed;

    if (out == NULL)
        return NULL;
    print(out, subject);
    failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}

void text_wrap(FILE *out, const char *text, int indent)
{
    const size_t room = (size_t)(WRAP_COLUMNS - indent);

    while (strlen(text) > room) {
        size_t n = room;

        while (n > 0 && text[n] != ' ')
            n--;
        if (n == 0) /* a single word longer than a line */
            n = strcspn(text, " ");
        fprintf(out, "%.*s\n%*s", (int)n, text, indent, "");
        text += n + (text[n] == ' ');
    }
    fprintf(out, "%s\n", text);
}

void text_roff(FILE *out, const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", out);
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            fputs("\\e", out);
        else if (*text == '-')
            fputs("\\-", out);
        else
            fputc(*text, out);
    }
}

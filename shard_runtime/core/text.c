#include "shard_runtime/core/text.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { PARAGRAPH_BYTES = 4096 /* more than any page of help has */, MESSAGE_INDENT = 2 };

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

void text_wrap(FILE *out, const char *text, int begin, int indent, int columns)
{
    int room = columns - begin;

    while ((int)strlen(text) > room) {
        int n = room > 0 ? room : 0;

        while (n > 0 && text[n] != ' ')
            n--;
        if (n == 0) /* a single word longer than a line */
            n = (int)strcspn(text, " ");
        if (text[n] == '\0')
            break;
        fprintf(out, "%.*s\n%*s", n, text, indent, "");
        text += n + 1;
        room = columns - indent;
    }
    fprintf(out, "%s\n", text);
}

void text_wrap_messages(FILE *out, const char *text, int columns)
{
    while (*text != '\0') {
        const size_t n = strcspn(text, "\n");
        char *message = strncmp(text, "fsdp", 4) == 0 ? strndup(text, n) : NULL;

        if (message != NULL)
            text_wrap(out, message, 0, MESSAGE_INDENT, columns);
        else
            fprintf(out, "%.*s\n", (int)n, text);
        free(message);
        text += n + (text[n] == '\n');
    }
}

/*
 * Returns the length of the first paragraph of `text`. It ends before a line that begins with a space or is
 * empty.
 */
static size_t paragraph(const char *text)
{
    size_t n = strcspn(text, "\n");

    /* strchr() also finds the final zero, so the loop ends there */
    while (text[n] == '\n' && strchr(" \n", text[n + 1]) == NULL)
        n += 1 + strcspn(text + n + 1, "\n");
    return n;
}

void text_fill(FILE *out, const char *text)
{
    char filled[PARAGRAPH_BYTES];

    while (*text != '\0') {
        const bool is_whole = *text == ' ' || *text == '\n';
        const size_t n = is_whole ? strcspn(text, "\n") : paragraph(text);

        snprintf(filled, sizeof filled, "%.*s", (int)n, text);
        for (char *at = filled; (at = strchr(at, '\n')) != NULL;)
            *at = ' ';
        if (is_whole)
            fprintf(out, "%s\n", filled);
        else
            text_wrap(out, filled, 0, 0, TEXT_COLUMNS);
        text += n + (text[n] == '\n');
    }
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

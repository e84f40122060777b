/*
 * libfsdp (for its cJSON). json_check [-l] FILE: is the file one JSON value, or (-l) one on every line?
 * Another reader than the one that wrote it is not needed here: what is held is that the text is whole and
 * strict.
 */
#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_json(const char *text, size_t length)
{
    const char *end = NULL;
    cJSON *value = cJSON_ParseWithLengthOpts(text, length, &end, 0);
    bool whole = value != NULL;

    while (whole && end < text + length)
        whole = strchr(" \t\r\n", *end++) != NULL;
    cJSON_Delete(value);
    return whole;
}

int main(int argc, char **argv)
{
    const bool lines = argc == 3 && strcmp(argv[1], "-l") == 0;
    FILE *file = argc < 2 ? NULL : fopen(argv[argc - 1], "r");
    char *text = NULL;
    size_t capacity = 0;
    ssize_t length;
    int n = 0;

    if (file == NULL) {
        fprintf(stderr, "json_check: no file\n");
        return 2;
    }
    while ((length = getdelim(&text, &capacity, lines ? '\n' : EOF, file)) > 0) {
        n++;
        if (is_json(text, (size_t)length))
            continue;
        fprintf(stderr, "json_check: value %d is no JSON: %.200s\n", n, text);
        return 1;
    }
    free(text);
    fclose(file);
    return n > 0 ? 0 : 1;
}

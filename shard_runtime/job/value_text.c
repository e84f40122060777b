#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/job/rules.h"
#include "shard_runtime/job/value.h"

const char *job_limit_text(double limit, char out[JOB_VALUE_TEXT_BYTES])
{
    snprintf(out, JOB_VALUE_TEXT_BYTES, limit < 1e16 && limit == floor(limit) ? "%.0f" : "%g", limit);
    return out;
}

const char *job_number_text(double number, char out[JOB_VALUE_TEXT_BYTES])
{
    char digits[JOB_VALUE_TEXT_BYTES];
    size_t mantissa;

    for (int precision = 1; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, number);
        if (strtod(digits, NULL) == number)
            break;
    }
    /* 600.0, not 6.0e+02: enough digits that everyday numbers need no exponent. */
    if (fabs(number) >= 10 && fabs(number) < 1e6 && strchr(digits, 'e') != NULL)
        snprintf(digits, sizeof digits, "%.6g", number);
    /* YAML 1.1 readers take 1e-08 for text: always a point. */
    mantissa = strcspn(digits, "e");
    snprintf(out, JOB_VALUE_TEXT_BYTES, "%.*s%s%s", (int)mantissa, digits,
             memchr(digits, '.', mantissa) == NULL ? ".0" : "", digits + mantissa);
    return out;
}

/* Text that reads back as text when it stands alone after "key: " in YAML. */
static bool is_plain_text(const char *text)
{
    struct job_atom atom;
    size_t n = strlen(text);

    job_atom_plain(&atom, text);
    return atom.kind == ATOM_TEXT && n > 0 &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                        "0123456789_./-") == n &&
           text[0] != '-';
}

static char *quoted(const char *text)
{
    char *out = malloc(strlen(text) * 6 + 3), *at = out;

    if (out == NULL)
        return NULL;
    *at++ = '"';
    for (; *text != '\0'; text++) {
        unsigned char c = (unsigned char)*text;

        if (c == '"' || c == '\\')
            at += sprintf(at, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            at += sprintf(at, "\\u%04x", c); /* an escape that JSON and YAML share */
        else
            *at++ = (char)c;
    }
    *at++ = '"';
    *at = '\0';
    return out;
}

char *job_value_text(const struct job_key *key, const struct job_value *value, bool json)
{
    char word[JOB_KEY_PATH_BYTES], one[JOB_VALUE_TEXT_BYTES], two[JOB_VALUE_TEXT_BYTES];
    char *text = NULL;

    switch (key->type) {
    case JOB_BOOL:
        return strdup(value->flag ? "true" : "false");
    case JOB_COUNT:
        if (value->count == 0 && key->zero != NULL)
            return strcmp(key->zero, "null") == 0 || !json ? strdup(key->zero) : quoted(key->zero);
        return asprintf(&text, "%" PRIu64, value->count) < 0 ? NULL : text;
    case JOB_NUMBER:
        return strdup(job_number_text(value->number[0], one));
    case JOB_PAIR:
        return asprintf(&text, "[%s, %s]", job_number_text(value->number[0], one),
                        job_number_text(value->number[1], two)) < 0
                   ? NULL
                   : text;
    case JOB_TEXT:
        if (value->text[0] == '\0' && key->zero != NULL)
            return strdup(key->zero);
        return !json && is_plain_text(value->text) ? strdup(value->text) : quoted(value->text);
    case JOB_NAMES:
    case JOB_RULES:
        return job_list_text(key, value->list, json);
    default:
        if (key->is_number_too && value->choice >= JOB_CHOICE_NUMBER)
            return asprintf(&text, "%d", value->choice - JOB_CHOICE_NUMBER) < 0 ? NULL : text;
        if (!job_list_word(key->choices, value->choice, word))
            return NULL;
        /* true, false and null are values of their own in both languages. */
        return !json || strcmp(word, "true") == 0 || strcmp(word, "false") == 0 || strcmp(word, "null") == 0
                   ? strdup(word)
                   : quoted(word);
    }
}

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
    /* Write 600.0, not 6.0e+02: give everyday numbers enough digits to need no exponent. */
    if (fabs(number) >= 10 && fabs(number) < 1e6 && strchr(digits, 'e') != NULL)
        snprintf(digits, sizeof digits, "%.6g", number);
    /* Always write a point: YAML 1.1 readers take 1e-08 for text. */
    mantissa = strcspn(digits, "e");
    snprintf(out, JOB_VALUE_TEXT_BYTES, "%.*s%s%s", (int)mantissa, digits,
             memchr(digits, '.', mantissa) == NULL ? ".0" : "", digits + mantissa);
    return out;
}

/* Returns true if YAML reads the text after "key: " as the same text without quotes. */
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

void job_value_text(const struct job_key *key, const struct job_value *value, bool json,
                    struct json_text *out)
{
    char word[JOB_KEY_PATH_BYTES], one[JOB_VALUE_TEXT_BYTES], two[JOB_VALUE_TEXT_BYTES];
    const char *text = key->zero;
    bool quoted = json;

    switch (key->type) {
    case JOB_BOOL:
        text = value->flag ? "true" : "false";
        quoted = false;
        break;
    case JOB_COUNT:
        if (value->count == 0 && text != NULL) {
            quoted = json && strcmp(text, "null") != 0;
            break;
        }
        json_add(out, "%" PRIu64, value->count);
        return;
    case JOB_NUMBER:
        json_add(out, "%s", job_number_text(value->number[0], one));
        return;
    case JOB_PAIR:
        json_add(out, "[%s, %s]", job_number_text(value->number[0], one),
                 job_number_text(value->number[1], two));
        return;
    case JOB_TEXT:
        quoted = value->text[0] != '\0' || text == NULL;
        if (quoted) {
            text = value->text;
            quoted = json || !is_plain_text(text);
        }
        break;
    case JOB_NAMES:
    case JOB_RULES:
        job_list_text(key, value->list, json, out);
        return;
    default:
        if (key->is_number_too && value->choice >= JOB_CHOICE_NUMBER) {
            json_add(out, "%d", value->choice - JOB_CHOICE_NUMBER);
            return;
        }
        if (!job_list_word(key->choices, value->choice, word)) {
            out->failed = true;
            return;
        }
        text = word;
        /* true, false and null are typed values in both languages, so they get no quotes. */
        quoted = json && strcmp(word, "true") != 0 && strcmp(word, "false") != 0 && strcmp(word, "null") != 0;
        break;
    }
    if (quoted)
        json_add_string(out, text);
    else
        json_add(out, "%s", text);
}

#include "shard_runtime/job/value.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/job/job.h"
#include "shard_runtime/job/rules.h"

/*
 * Atoms follow the core schema of YAML 1.2, without the forms that people misread: octal, hex, .inf, yes, on,
 * 1_000
 */

static size_t n_digits(const char *text)
{
    return strspn(text, "0123456789");
}

static bool is_integer(const char *text)
{
    text += *text == '-' || *text == '+';
    if (n_digits(text) == 0 || text[n_digits(text)] != '\0')
        return false;
    return text[0] != '0' || text[1] == '\0';
}

/*
 * Matches [-+]? ( \.[0-9]+ | [0-9]+(\.[0-9]*)? ) ([eE][-+]?[0-9]+)? without a leading zero before another
 * digit.
 */
static bool is_number(const char *text)
{
    size_t whole, fraction = 0;

    text += *text == '-' || *text == '+';
    whole = n_digits(text);
    if (whole > 1 && text[0] == '0')
        return false;
    text += whole;
    if (*text == '.') {
        fraction = n_digits(++text);
        text += fraction;
    }
    if (whole + fraction == 0)
        return false;
    if (*text == 'e' || *text == 'E') {
        text++;
        text += *text == '-' || *text == '+';
        if (n_digits(text) == 0)
            return false;
        text += n_digits(text);
    }
    return *text == '\0';
}

void job_atom_text(struct job_atom *atom, const char *text)
{
    *atom = (struct job_atom){ .kind = ATOM_TEXT, .text = text };
}

void job_atom_plain(struct job_atom *atom, const char *text)
{
    job_atom_text(atom, text);
    if (strcmp(text, "") == 0 || strcmp(text, "null") == 0 || strcmp(text, "~") == 0) {
        atom->kind = ATOM_NULL;
    } else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
        atom->kind = ATOM_BOOL;
        atom->flag = text[0] == 't';
    } else if (is_integer(text)) {
        atom->kind = ATOM_INTEGER;
        atom->negative = text[0] == '-';
        errno = 0;
        atom->count = strtoull(text + (*text == '-' || *text == '+'), NULL, 10);
        atom->too_large = errno == ERANGE;
        atom->number = strtod(text, NULL);
    } else if (is_number(text)) {
        atom->kind = ATOM_NUMBER;
        atom->number = strtod(text, NULL);
    }
}

/* From atoms to the key's type */

/*
 * Returns a value as messages show it: as written, shortened, and without characters that a terminal would
 * interpret.
 */
static const char *shown(const struct job_atom *atom, char out[JOB_VALUE_TEXT_BYTES])
{
    struct job_atom plain;
    size_t n = 0;

    if (atom->kind == ATOM_NULL)
        return "null";
    for (; n < 40 && atom->text[n] != '\0'; n++) {
        unsigned char c = (unsigned char)atom->text[n];

        out[n] = (char)(c < 0x20 || c == 0x7f ? '?' : c);
    }
    /* Do not end in the middle of a character. */
    while (atom->text[n] != '\0' && n > 0 && ((unsigned char)atom->text[n] & 0xc0) == 0x80)
        n--;
    snprintf(out + n, JOB_VALUE_TEXT_BYTES - n, "%s", atom->text[n] == '\0' ? "" : "...");
    /* Show the quotes if the type depends on them: "4" is text, 4 is a number. */
    job_atom_plain(&plain, atom->text);
    if (plain.kind != atom->kind) {
        n = strlen(out);
        memmove(out + 1, out, n);
        out[0] = '"';
        memcpy(out + 1 + n, "\"", 2);
    }
    return out;
}

static enum fsdp_status must_be(struct fsdp_err *why, const char *what, const struct job_atom *atom)
{
    char text[JOB_VALUE_TEXT_BYTES];

    return fsdp_fail(why, FSDP_ERR_CONFIG, "must be %s, not %s", what, shown(atom, text));
}

/* Returns the word that an atom means. A plain true is the word true; a quoted "true" is no word. */
static const char *atom_word(const struct job_atom *atom)
{
    bool is_typed_word = strcmp(atom->text, "true") == 0 || strcmp(atom->text, "false") == 0 ||
                         strcmp(atom->text, "null") == 0;

    if (atom->kind == ATOM_NULL)
        return "null";
    if (atom->kind == ATOM_BOOL)
        return atom->flag ? "true" : "false";
    return atom->kind == ATOM_TEXT && !is_typed_word ? atom->text : "";
}

static enum fsdp_status read_count(const struct job_key *key, const struct job_atom *atom,
                                   struct job_value *out, struct fsdp_err *why)
{
    char range[JOB_VALUE_TEXT_BYTES + 64];
    const char *word = atom_word(atom);

    if (key->zero != NULL && strcmp(word, key->zero) == 0) {
        out->count = 0;
        return FSDP_OK;
    }
    snprintf(range, sizeof range, "%s%sa whole number from %.0f to %.0f", key->zero == NULL ? "" : key->zero,
             key->zero == NULL ? "" : " or ", key->low, key->high);
    if (atom->kind != ATOM_INTEGER || atom->negative || atom->too_large || atom->number < key->low ||
        atom->number > key->high)
        return must_be(why, range, atom);
    out->count = atom->count;
    return FSDP_OK;
}

static enum fsdp_status read_number(const struct job_key *key, const struct job_atom *atom, double *out,
                                    struct fsdp_err *why)
{
    char range[JOB_VALUE_TEXT_BYTES * 3], low[JOB_VALUE_TEXT_BYTES], high[JOB_VALUE_TEXT_BYTES];

    snprintf(range, sizeof range, "a number from %s %s %s", job_limit_text(key->low, low),
             key->high_open ? "to below" : "to", job_limit_text(key->high, high));
    if ((atom->kind != ATOM_INTEGER && atom->kind != ATOM_NUMBER) || !isfinite(atom->number) ||
        atom->number < key->low || atom->number > key->high || (key->high_open && atom->number == key->high))
        return must_be(why, range, atom);
    *out = atom->number == 0 ? 0.0 : atom->number; /* turn -0 into 0 */
    return FSDP_OK;
}

static enum fsdp_status read_text(const struct job_key *key, const struct job_atom *atom,
                                  struct job_value *out, struct fsdp_err *why)
{
    if (key->zero != NULL && atom->kind == ATOM_NULL) {
        out->text = "";
        return FSDP_OK;
    }
    if (atom->kind != ATOM_TEXT)
        return must_be(
            why, atom->kind == ATOM_NULL ? "text" : "text (in quotes if it looks like something else)", atom);
    if (atom->text[0] == '\0')
        return fsdp_fail(why, FSDP_ERR_CONFIG, "must not be empty");
    if (strlen(atom->text) > (key->is_name ? 200 : 4000))
        return fsdp_fail(why, FSDP_ERR_CONFIG, "is too long (%zu bytes, at most %d)", strlen(atom->text),
                         key->is_name ? 200 : 4000);
    for (const char *c = atom->text; *c != '\0'; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f)
            return must_be(why, "text without control characters", atom);
    if (key->is_name && (strchr(atom->text, '/') != NULL || atom->text[0] == '.' || atom->text[0] == '-'))
        return must_be(why, "the name of a directory, without / and not starting with . or -", atom);
    out->text = atom->text;
    return FSDP_OK;
}

static enum fsdp_status read_choice(const struct job_key *key, const struct job_atom *atom,
                                    struct job_value *out, struct fsdp_err *why)
{
    const char *word = atom_word(atom);
    char built[256], later[256], text[JOB_VALUE_TEXT_BYTES];
    bool is_later;

    out->choice = job_list_index(key->choices, word);
    if (out->choice >= 0)
        return FSDP_OK;
    job_list_spell(key->choices, " or ", built, sizeof built);
    if (key->is_number_too && atom->kind == ATOM_INTEGER && !atom->negative && !atom->too_large &&
        atom->number >= key->low && atom->number <= key->high) {
        out->choice = JOB_CHOICE_NUMBER + (int)atom->count;
        return FSDP_OK;
    }
    if (key->is_number_too)
        snprintf(built + strlen(built), sizeof built - strlen(built), ", or a whole number from %.0f to %.0f",
                 key->low, key->high);
    if (key->never != NULL && job_list_index(key->never, word) >= 0)
        return fsdp_fail(why, FSDP_ERR_CONFIG, "%s is not supported: %s; use %s", shown(atom, text),
                         key->never_why, built);
    if (key->later == NULL)
        return must_be(why, built, atom);
    is_later = job_list_index(key->later, word) >= 0 || (key->later[0] == '*' && atom->kind == ATOM_TEXT) ||
               (strcmp(key->later, "<int>") == 0 && atom->kind == ATOM_INTEGER);
    if (is_later)
        return fsdp_fail(why, FSDP_ERR_UNSUPPORTED, "%s is not supported yet; use %s", shown(atom, text),
                         built);
    if (key->later[0] == '*')
        return must_be(why, built, atom);
    job_list_spell(key->later, " or ", later, sizeof later);
    return fsdp_fail(why, FSDP_ERR_CONFIG, "must be %s (not supported yet: %s), not %s", built, later,
                     shown(atom, text));
}

static bool same_value(const struct job_key *key, const struct job_value *a, const struct job_value *b)
{
    return key->type == JOB_COUNT ? a->count == b->count : a->number[0] == b->number[0];
}

enum fsdp_status job_value_read(const struct job_key *key, const struct job_atom *atoms, size_t n_atoms,
                                bool is_list, struct job_value *out, struct fsdp_err *why)
{
    enum fsdp_status status = FSDP_OK;
    struct job_value built = { 0 };
    char text[JOB_VALUE_TEXT_BYTES];

    *out = (struct job_value){ 0 };
    if (key->type == JOB_PAIR) {
        if (!is_list || n_atoms != 2)
            return fsdp_fail(why, FSDP_ERR_CONFIG, "must be a list of two numbers, like %s",
                             job_key_example(key));
        for (int i = 0; i < 2 && status == FSDP_OK; i++)
            status = read_number(key, &atoms[i], &out->number[i], why);
        return status;
    }
    if (is_list)
        return fsdp_fail(why, FSDP_ERR_CONFIG, "must be one value, not a list");
    if (job_key_is_list(key)) /* job_list_read() reads lists */
        return atoms->kind == ATOM_NULL
                   ? FSDP_OK
                   : fsdp_fail(why, FSDP_ERR_CONFIG, "must be a list, like %s", job_key_example(key));
    switch (key->type) {
    case JOB_BOOL:
        out->flag = atoms->flag;
        return atoms->kind == ATOM_BOOL ? FSDP_OK : must_be(why, "true or false", atoms);
    case JOB_COUNT:
        status = read_count(key, atoms, out, why);
        break;
    case JOB_NUMBER:
        status = read_number(key, atoms, &out->number[0], why);
        break;
    case JOB_TEXT:
        return read_text(key, atoms, out, why);
    default:
        return read_choice(key, atoms, out, why);
    }
    if (status == FSDP_OK && key->later != NULL && job_value_fallback(key, &built) &&
        !same_value(key, out, &built))
        return fsdp_fail(why, FSDP_ERR_UNSUPPORTED, "%s is not supported yet; use %s", shown(atoms, text),
                         key->fallback);
    return status;
}

bool job_value_fallback(const struct job_key *key, struct job_value *out)
{
    struct job_atom atom;
    struct job_key plain = *key;

    *out = (struct job_value){ 0 };
    if (key->fallback == NULL)
        return false;
    if (key->type == JOB_PAIR) {
        char *end;

        out->number[0] = strtod(key->fallback + 1, &end); /* "[0.9, 0.95]" */
        out->number[1] = strtod(end + 1, NULL);
        return *end == ',';
    }
    job_atom_plain(&atom, key->fallback);
    if (key->type == JOB_COUNT || key->type == JOB_NUMBER)
        plain.later =
            NULL; /* with `later` set, the call would look up the default, and so call this function again */
    return job_value_read(&plain, &atom, 1, false, out, NULL) == FSDP_OK;
}

/* Into and out of struct job */

/* Where struct job_value keeps a value of each type that the job stores unchanged. Size 0 for other types. */
#define PART(member)                                                                                         \
    {                                                                                                        \
        offsetof(struct job_value, member), sizeof((struct job_value *)NULL)->member                         \
    }
static const struct {
    size_t at, size;
} parts[] = {
    [JOB_BOOL] = PART(flag),   [JOB_COUNT] = PART(count),   [JOB_NUMBER] = PART(number[0]),
    [JOB_PAIR] = PART(number), [JOB_CHOICE] = PART(choice), [JOB_RULES] = { 0, 0 },
};

/*
 * Makes the copy of a text, word or list that the job will own in *copy. NULL with FSDP_ERR_NOMEM: there is
 * no memory.
 */
static enum fsdp_status copy_owned(const struct job_key *key, const struct job_value *value, void **copy)
{
    char word[JOB_KEY_PATH_BYTES];
    const char *text = value->text;

    if (job_key_is_list(key))
        return job_list_copy(key, value->list, copy);
    if (key->type == JOB_WORD)
        text = job_list_word(key->choices, value->choice, word) ? word : NULL;
    *copy = text != NULL ? strdup(text) : NULL;
    return *copy != NULL ? FSDP_OK : FSDP_ERR_NOMEM;
}

enum fsdp_status job_value_store(const struct job_key *key, const struct job_value *value, struct job *job)
{
    char *field;
    void *copy;

    if (key->field == JOB_NO_FIELD)
        return FSDP_OK;
    field = (char *)job + key->field;
    memcpy(field, (const char *)value + parts[key->type].at, parts[key->type].size);
    if (parts[key->type].size > 0)
        return FSDP_OK;
    if (copy_owned(key, value, &copy) != FSDP_OK)
        return FSDP_ERR_NOMEM;
    free(*(void **)(void *)field);
    memcpy(field, &copy, sizeof copy);
    return FSDP_OK;
}

void job_value_load(const struct job_key *key, const struct job *job, struct job_value *out)
{
    const char *field;

    *out = (struct job_value){ 0 };
    if (key->field == JOB_NO_FIELD) {
        (void)job_value_fallback(key, out);
        return;
    }
    field = (const char *)job + key->field;
    memcpy((char *)out + parts[key->type].at, field, parts[key->type].size);
    if (job_key_is_list(key))
        memcpy(&out->list, field, sizeof out->list);
    else if (parts[key->type].size == 0)
        memcpy(&out->text, field, sizeof out->text);
    if (key->type == JOB_WORD)
        out->choice = job_list_index(key->choices, out->text);
}

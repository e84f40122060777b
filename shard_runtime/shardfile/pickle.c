#include "shard_runtime/shardfile/pickle.h"

#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"
#include "shard_runtime/core/require.h"

/* Operations, by their names in Python's pickletools. */
enum {
    OP_PROTO = 0x80,
    OP_FRAME = 0x95,
    OP_STOP = '.',
    OP_MARK = '(',
    OP_NONE = 'N',
    OP_NEWTRUE = 0x88,
    OP_NEWFALSE = 0x89,
    OP_BININT = 'J',
    OP_BININT1 = 'K',
    OP_BININT2 = 'M',
    OP_LONG1 = 0x8a,
    OP_BINFLOAT = 'G',
    OP_BINUNICODE = 'X',
    OP_SHORT_BINUNICODE = 0x8c,
    OP_BINUNICODE8 = 0x8d,
    OP_EMPTY_TUPLE = ')',
    OP_TUPLE = 't',
    OP_TUPLE1 = 0x85,
    OP_TUPLE2 = 0x86,
    OP_TUPLE3 = 0x87,
    OP_EMPTY_LIST = ']',
    OP_APPEND = 'a',
    OP_APPENDS = 'e',
    OP_EMPTY_DICT = '}',
    OP_SETITEM = 's',
    OP_SETITEMS = 'u',
    OP_BINGET = 'h',
    OP_LONG_BINGET = 'j',
    OP_BINPUT = 'q',
    OP_LONG_BINPUT = 'r',
    OP_MEMOIZE = 0x94,
    OP_GLOBAL = 'c',
    OP_STACK_GLOBAL = 0x93,
    OP_REDUCE = 'R',
    OP_NEWOBJ = 0x81,
    OP_BUILD = 'b',
    OP_BINPERSID = 'Q',
};

enum { BLOCK_VALUES = 512, OBJECT_PARTS = 3, HIGHEST_PROTOCOL = 5 };

struct pickle_block {
    struct pickle_block *next;
    size_t n;
    struct pickle_value values[BLOCK_VALUES];
};

struct machine {
    const unsigned char *bytes;
    size_t length, at;
    const char *const *globals;
    size_t n_globals;
    struct pickle *pickle;
    struct pickle_value **stack;
    size_t n_stack, stack_room;
    size_t *marks; /* (n_marks) height of the stack at each mark */
    size_t n_marks, marks_room;
    struct pickle_value **memo;
    size_t n_memo, memo_room;
    struct fsdp_err *err;
};

static enum fsdp_status refuse(const struct machine *m, const char *what)
{
    return fsdp_fail(m->err, FSDP_ERR_FORMAT, "byte %zu of the pickle: %s", m->at, what);
}

static enum fsdp_status no_memory(const struct machine *m)
{
    return fsdp_fail(m->err, FSDP_ERR_NOMEM, "memory for a pickle of %zu bytes", m->length);
}

/* Values */

static struct pickle_value *create(struct machine *m, enum pickle_kind kind)
{
    struct pickle_block *block = m->pickle->blocks;
    struct pickle_value *value;

    if (block == NULL || block->n == BLOCK_VALUES) {
        block = calloc(1, sizeof *block);
        if (block == NULL)
            return NULL;
        block->next = m->pickle->blocks;
        m->pickle->blocks = block;
    }
    value = &block->values[block->n++];
    value->kind = kind;
    return value;
}

static bool has_items(const struct pickle_value *value)
{
    return value->kind == PICKLE_TUPLE || value->kind == PICKLE_LIST || value->kind == PICKLE_DICT ||
           value->kind == PICKLE_OBJECT || value->kind == PICKLE_PERSISTENT;
}

void pickle_free(struct pickle *pickle)
{
    for (struct pickle_block *block = pickle->blocks, *next; block != NULL; block = next) {
        next = block->next;
        for (size_t i = 0; i < block->n; i++) {
            if (has_items(&block->values[i]))
                free(block->values[i].items);
            if (block->values[i].kind == PICKLE_TEXT)
                free((void *)(uintptr_t)block->values[i].text);
        }
        free(block);
    }
    *pickle = (struct pickle){ 0 };
}

/* The stack */

static enum fsdp_status push(struct machine *m, struct pickle_value *value)
{
    if (value == NULL || !alloc_room(&m->stack, &m->stack_room, m->n_stack, sizeof *m->stack))
        return no_memory(m);
    m->stack[m->n_stack++] = value;
    return FSDP_OK;
}

/* Returns how many values are above the newest mark. */
static size_t above_mark(const struct machine *m)
{
    return m->n_stack - (m->n_marks == 0 ? 0 : m->marks[m->n_marks - 1]);
}

/* Removes the top value and returns it. NULL: there is none above the newest mark. */
static struct pickle_value *pop(struct machine *m)
{
    return above_mark(m) == 0 ? NULL : m->stack[--m->n_stack];
}

static enum fsdp_status push_number(struct machine *m, enum pickle_kind kind, int64_t number)
{
    struct pickle_value *value = create(m, kind);

    if (value != NULL)
        value->number = number;
    return push(m, value);
}

/* Moves the top `n` values of the stack to the end of the items of `to`. */
static enum fsdp_status move(struct machine *m, struct pickle_value *to, size_t n)
{
    if (n > above_mark(m))
        return refuse(m, "too few values");
    for (size_t i = 0; i < n; i++) {
        if (!alloc_room(&to->items, &to->room, to->n, sizeof *to->items))
            return no_memory(m);
        to->items[to->n++] = m->stack[m->n_stack - n + i];
    }
    m->n_stack -= n;
    return FSDP_OK;
}

static enum fsdp_status push_tuple(struct machine *m, size_t n)
{
    struct pickle_value *tuple = create(m, PICKLE_TUPLE);

    if (tuple == NULL)
        return no_memory(m);
    OK_OR_RETURN(move(m, tuple, n));
    return push(m, tuple);
}

/*
 * Removes the newest mark. Moves the values above it to the list or dict just below the mark, or to a new
 * tuple.
 */
static enum fsdp_status close_mark(struct machine *m, enum pickle_kind kind)
{
    const size_t n = above_mark(m);
    struct pickle_value *to;

    if (m->n_marks == 0)
        return refuse(m, "no mark");
    if (kind == PICKLE_TUPLE) {
        to = create(m, kind);
        if (to == NULL)
            return no_memory(m);
        OK_OR_RETURN(move(m, to, n));
        m->n_marks--;
        return push(m, to);
    }
    m->n_marks--;
    if (above_mark(m) <= n || (to = m->stack[m->n_stack - n - 1])->kind != kind)
        return refuse(m, "no list or dict for these items");
    if (kind == PICKLE_DICT && n % 2 != 0)
        return refuse(m, "a key without a value");
    return move(m, to, n);
}

static enum fsdp_status add_items(struct machine *m, enum pickle_kind kind, size_t n)
{
    struct pickle_value *to;

    if (above_mark(m) <= n || (to = m->stack[m->n_stack - n - 1])->kind != kind)
        return refuse(m, "no list or dict for an item");
    return move(m, to, n);
}

/* Operands */

static bool take(struct machine *m, size_t n, const unsigned char **bytes)
{
    if (n > m->length - m->at)
        return false;
    *bytes = m->bytes + m->at;
    m->at += n;
    return true;
}

static bool take_number(struct machine *m, size_t n_bytes, uint64_t *out)
{
    const unsigned char *bytes;

    if (!take(m, n_bytes, &bytes))
        return false;
    *out = 0;
    for (size_t i = n_bytes; i-- > 0;)
        *out = *out << 8 | bytes[i];
    return true;
}

static enum fsdp_status push_text(struct machine *m, size_t length_bytes)
{
    const unsigned char *bytes;
    struct pickle_value *value;
    uint64_t length;
    char *text;

    if (!take_number(m, length_bytes, &length) || length > m->length || !take(m, (size_t)length, &bytes))
        return refuse(m, "a text that is cut short");
    value = create(m, PICKLE_NONE);
    text = value == NULL ? NULL : malloc((size_t)length + 1);
    if (text == NULL)
        return no_memory(m);
    memcpy(text, bytes, (size_t)length);
    text[length] = '\0';
    value->kind = PICKLE_TEXT;
    value->text = text;
    value->n = (size_t)length;
    return push(m, value);
}

/* Reads a whole number of up to 8 bytes, in two's complement, and pushes it. */
static enum fsdp_status push_long(struct machine *m)
{
    const unsigned char *bytes;
    uint64_t n, number;

    if (!take_number(m, 1, &n) || !take(m, (size_t)n, &bytes))
        return refuse(m, "a number that is cut short");
    if (n > 8)
        return refuse(m, "a number of more than 64 bits");
    number = n > 0 && (bytes[n - 1] & 0x80) != 0 ? UINT64_MAX : 0;
    for (size_t i = (size_t)n; i-- > 0;)
        number = number << 8 | bytes[i];
    return push_number(m, PICKLE_INT, (int64_t)number);
}

static enum fsdp_status push_float(struct machine *m)
{
    struct pickle_value *value = create(m, PICKLE_REAL);
    const unsigned char *bytes;
    uint64_t bits = 0;

    if (!take(m, 8, &bytes))
        return refuse(m, "a number that is cut short");
    for (int i = 0; i < 8; i++) /* most significant byte first */
        bits = bits << 8 | bytes[i];
    if (value != NULL)
        memcpy(&value->real, &bits, sizeof bits);
    return push(m, value);
}

/* The memo */

static enum fsdp_status put(struct machine *m, uint64_t place)
{
    /*
     * Python numbers places from 0 on. A larger jump is refused: it would make this table as large as it
     * says.
     */
    if (above_mark(m) == 0 || place > m->n_memo)
        return refuse(m, "a place of the memo that does not follow the others");
    if (place == m->n_memo) {
        if (!alloc_room(&m->memo, &m->memo_room, m->n_memo, sizeof *m->memo))
            return no_memory(m);
        m->n_memo++;
    }
    m->memo[place] = m->stack[m->n_stack - 1];
    return FSDP_OK;
}

static enum fsdp_status put_numbered(struct machine *m, size_t n_bytes)
{
    uint64_t place;

    return take_number(m, n_bytes, &place) ? put(m, place) : refuse(m, "it is cut short");
}

static enum fsdp_status get(struct machine *m, size_t n_bytes)
{
    uint64_t place;

    if (!take_number(m, n_bytes, &place) || place >= m->n_memo)
        return refuse(m, "a place of the memo without a value");
    return push(m, m->memo[place]);
}

/* Names and objects */

static enum fsdp_status push_global(struct machine *m, const char *module, size_t module_length,
                                    const char *name, size_t name_length)
{
    for (size_t i = 0; i < m->n_globals; i++) {
        const char *known = m->globals[i];

        if (strlen(known) == module_length + 1 + name_length && known[module_length] == ' ' &&
            memcmp(known, module, module_length) == 0 &&
            memcmp(known + module_length + 1, name, name_length) == 0)
            return push_number(m, PICKLE_GLOBAL, (int64_t)i);
    }
    return fsdp_fail(m->err, FSDP_ERR_FORMAT,
                     "byte %zu of the pickle: it names %.*s.%.*s, which is no part of a checkpoint", m->at,
                     (int)(module_length < 80 ? module_length : 80), module,
                     (int)(name_length < 80 ? name_length : 80), name);
}

/* Reads a name written as two lines of text, the module and the name in it. */
static enum fsdp_status read_global(struct machine *m)
{
    const char *begin = (const char *)m->bytes + m->at, *ends[2] = { NULL, NULL };

    for (size_t i = m->at; i < m->length && ends[1] == NULL; i++)
        if (m->bytes[i] == '\n')
            ends[ends[0] != NULL] = (const char *)m->bytes + i;
    if (ends[1] == NULL)
        return refuse(m, "a name that is cut short");
    m->at = (size_t)(ends[1] + 1 - (const char *)m->bytes);
    return push_global(m, begin, (size_t)(ends[0] - begin), ends[0] + 1, (size_t)(ends[1] - ends[0] - 1));
}

static enum fsdp_status stack_global(struct machine *m)
{
    const struct pickle_value *name = pop(m), *module = pop(m);

    if (module == NULL || module->kind != PICKLE_TEXT || name->kind != PICKLE_TEXT)
        return refuse(m, "a name that is no text");
    return push_global(m, module->text, module->n, name->text, name->n);
}

static enum fsdp_status make_object(struct machine *m)
{
    struct pickle_value *arguments = pop(m), *class = pop(m), *object;

    if (class == NULL || class->kind != PICKLE_GLOBAL || arguments->kind != PICKLE_TUPLE)
        return refuse(m, "an object of no class that may be there");
    object = create(m, PICKLE_NONE);
    if (object == NULL || (object->items = calloc(OBJECT_PARTS, sizeof *object->items)) == NULL)
        return no_memory(m);
    object->kind = PICKLE_OBJECT;
    object->items[0] = class;
    object->items[1] = arguments;
    return push(m, object);
}

static enum fsdp_status build(struct machine *m)
{
    struct pickle_value *state = pop(m);

    if (state == NULL || above_mark(m) == 0 || m->stack[m->n_stack - 1]->kind != PICKLE_OBJECT)
        return refuse(m, "a state of no object");
    m->stack[m->n_stack - 1]->items[2] = state;
    return FSDP_OK;
}

static enum fsdp_status make_persistent(struct machine *m)
{
    struct pickle_value *value;

    if (above_mark(m) == 0)
        return refuse(m, "too few values");
    value = create(m, PICKLE_PERSISTENT);
    if (value == NULL)
        return no_memory(m);
    OK_OR_RETURN(move(m, value, 1));
    return push(m, value);
}

static enum fsdp_status set_mark(struct machine *m)
{
    if (!alloc_room(&m->marks, &m->marks_room, m->n_marks, sizeof *m->marks))
        return no_memory(m);
    m->marks[m->n_marks++] = m->n_stack;
    return FSDP_OK;
}

static enum fsdp_status push_int(struct machine *m, size_t n_bytes)
{
    uint64_t number;

    if (!take_number(m, n_bytes, &number))
        return refuse(m, "a number that is cut short");
    return push_number(m, PICKLE_INT, n_bytes == 4 ? (int64_t)(int32_t)(uint32_t)number : (int64_t)number);
}

static enum fsdp_status skip_operand(struct machine *m, size_t n_bytes)
{
    const unsigned char *bytes;

    if (!take(m, n_bytes, &bytes) || (n_bytes == 1 && *bytes > HIGHEST_PROTOCOL))
        return refuse(m, "another protocol, or cut short");
    return FSDP_OK;
}

static enum fsdp_status run_one(struct machine *m, unsigned char op)
{
    switch (op) {
    case OP_PROTO:
        return skip_operand(m, 1);
    case OP_FRAME:
        return skip_operand(m, 8);
    case OP_MARK:
        return set_mark(m);
    case OP_NONE:
        return push(m, create(m, PICKLE_NONE));
    case OP_NEWTRUE:
    case OP_NEWFALSE:
        return push_number(m, PICKLE_BOOL, op == OP_NEWTRUE);
    case OP_BININT:
        return push_int(m, 4);
    case OP_BININT1:
        return push_int(m, 1);
    case OP_BININT2:
        return push_int(m, 2);
    case OP_LONG1:
        return push_long(m);
    case OP_BINFLOAT:
        return push_float(m);
    case OP_SHORT_BINUNICODE:
        return push_text(m, 1);
    case OP_BINUNICODE:
        return push_text(m, 4);
    case OP_BINUNICODE8:
        return push_text(m, 8);
    case OP_EMPTY_TUPLE:
        return push_tuple(m, 0);
    case OP_TUPLE1:
    case OP_TUPLE2:
    case OP_TUPLE3:
        return push_tuple(m, op - OP_TUPLE1 + 1u);
    case OP_TUPLE:
        return close_mark(m, PICKLE_TUPLE);
    case OP_EMPTY_LIST:
        return push(m, create(m, PICKLE_LIST));
    case OP_APPEND:
        return add_items(m, PICKLE_LIST, 1);
    case OP_APPENDS:
        return close_mark(m, PICKLE_LIST);
    case OP_EMPTY_DICT:
        return push(m, create(m, PICKLE_DICT));
    case OP_SETITEM:
        return add_items(m, PICKLE_DICT, 2);
    case OP_SETITEMS:
        return close_mark(m, PICKLE_DICT);
    case OP_BINGET:
        return get(m, 1);
    case OP_LONG_BINGET:
        return get(m, 4);
    case OP_BINPUT:
        return put_numbered(m, 1);
    case OP_LONG_BINPUT:
        return put_numbered(m, 4);
    case OP_MEMOIZE:
        return put(m, m->n_memo);
    case OP_GLOBAL:
        return read_global(m);
    case OP_STACK_GLOBAL:
        return stack_global(m);
    case OP_REDUCE:
    case OP_NEWOBJ:
        return make_object(m);
    case OP_BUILD:
        return build(m);
    case OP_BINPERSID:
        return make_persistent(m);
    default:
        return fsdp_fail(m->err, FSDP_ERR_FORMAT,
                         "byte %zu of the pickle: operation 0x%02x is no part of a checkpoint", m->at - 1,
                         op);
    }
}

enum fsdp_status pickle_read(struct pickle *out, const char *bytes, size_t length, const char *const *globals,
                             size_t n_globals, struct fsdp_err *err)
{
    struct machine m = { .bytes = (const unsigned char *)bytes,
                         .length = length,
                         .globals = globals,
                         .n_globals = n_globals,
                         .pickle = out,
                         .err = err };
    enum fsdp_status status = FSDP_OK;

    *out = (struct pickle){ 0 };
    while (status == FSDP_OK && m.at < length && m.bytes[m.at] != OP_STOP)
        status = run_one(&m, m.bytes[m.at++]);
    if (status == FSDP_OK && (m.at == length || m.n_stack != 1 || m.n_marks != 0))
        status = refuse(&m, m.at == length ? "it has no end" : "it is not one value");
    if (status == FSDP_OK)
        out->root = m.stack[0];
    else
        pickle_free(out);
    free(m.stack);
    free(m.marks);
    free(m.memo);
    return status;
}

/* Functions that look at values */

const struct pickle_value *pickle_item(const struct pickle_value *value, size_t i)
{
    return value != NULL &&
                   (value->kind == PICKLE_TUPLE || value->kind == PICKLE_LIST || value->kind == PICKLE_DICT ||
                    value->kind == PICKLE_PERSISTENT) &&
                   i < value->n
               ? value->items[i]
               : NULL;
}

const char *pickle_text(const struct pickle_value *value)
{
    return value != NULL && value->kind == PICKLE_TEXT && strlen(value->text) == value->n ? value->text
                                                                                          : NULL;
}

const struct pickle_value *pickle_get(const struct pickle_value *dict, const char *name)
{
    if (dict == NULL || dict->kind != PICKLE_DICT)
        return NULL;
    for (size_t i = dict->n; i >= 2; i -= 2) {
        const char *key = pickle_text(dict->items[i - 2]);

        if (key != NULL && strcmp(key, name) == 0)
            return dict->items[i - 1];
    }
    return NULL;
}

int pickle_global(const struct pickle_value *value)
{
    if (value != NULL && value->kind == PICKLE_OBJECT)
        value = value->items[0];
    return value != NULL && value->kind == PICKLE_GLOBAL ? (int)value->number : -1;
}

const struct pickle_value *pickle_arguments(const struct pickle_value *object)
{
    return object != NULL && object->kind == PICKLE_OBJECT ? object->items[1] : NULL;
}

const struct pickle_value *pickle_state(const struct pickle_value *object)
{
    return object != NULL && object->kind == PICKLE_OBJECT ? object->items[2] : NULL;
}

bool pickle_count(const struct pickle_value *value, uint64_t *out)
{
    if (value == NULL || value->kind != PICKLE_INT || value->number < 0)
        return false;
    *out = (uint64_t)value->number;
    return true;
}

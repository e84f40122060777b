#include "shard_runtime/job/tree.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <yaml.h>

#include "shard_runtime/core/checked.h"
#include "shard_runtime/core/utf8.h"

/* Memory: blocks that are freed with the tree */

enum { BLOCK_BYTES = 8192 };

struct tree_block {
    struct tree_block *next;
    size_t used, size;
    max_align_t bytes[];
};

static void *tree_take(struct tree *tree, size_t size)
{
    struct tree_block *block = tree->blocks;
    size_t step = round_up(size, sizeof(max_align_t));
    void *out;

    if (block == NULL || block->size - block->used < step) {
        size_t room = step > BLOCK_BYTES ? step : BLOCK_BYTES;

        block = calloc(1, sizeof *block + room);
        if (block == NULL)
            return NULL;
        block->size = room;
        block->next = tree->blocks;
        tree->blocks = block;
    }
    out = (char *)block->bytes + block->used;
    block->used += step;
    return out;
}

void tree_fini(struct tree *tree)
{
    while (tree->blocks != NULL) {
        struct tree_block *next = tree->blocks->next;

        free(tree->blocks);
        tree->blocks = next;
    }
    tree->root = NULL;
}

/* Returns line and column, counted from 1, of the byte at `offset`. Columns count characters. */
static struct job_place place_of(const char *source, const char *text, size_t offset)
{
    struct job_place place = { source, 1, 1 };

    for (size_t i = 0; i < offset; i++) {
        if (text[i] == '\n') {
            place.line++;
            place.column = 1;
        } else if (((unsigned char)text[i] & 0xc0) != 0x80) {
            place.column++;
        }
    }
    return place;
}

/* The reader */

struct frame {
    struct tree_node *node;
    struct tree_node **end;  /* pointer to set to the next child */
    struct tree_node *key;   /* maps: key whose value comes next */
    struct tree_node *label; /* maps: key whose value is being read, for messages */
    int n_children;
};

struct reader {
    struct tree *tree;
    struct job_report *report;
    const char *source, *text;
    size_t length;
    struct frame frames[TREE_MAX_DEPTH];
    int depth, n_documents;
    bool no_memory, stopped;
};

static struct job_place at_mark(const struct reader *reader, yaml_mark_t mark)
{
    return (struct job_place){ reader->source, (int)mark.line + 1, (int)mark.column + 1 };
}

/* Writes the path of the value that comes next, such as "model.dim" or "optimizer.betas[1]". */
static const char *path_here(const struct reader *reader, char *out, size_t size)
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < reader->depth && used < size; i++) {
        const struct frame *frame = &reader->frames[i];

        if (frame->node->kind == TREE_LIST) /* an open entry is already counted */
            used += (size_t)snprintf(out + used, size - used, "[%d]",
                                     frame->n_children - (i + 1 < reader->depth));
        else if (frame->label != NULL && frame->label->text != NULL)
            used += (size_t)snprintf(out + used, size - used, "%s%.64s", used == 0 ? "" : ".",
                                     frame->label->text);
    }
    return out;
}

static void problem(struct reader *reader, yaml_mark_t mark, const char *words)
{
    char path[256];

    job_report_add(reader->report, at_mark(reader, mark), path_here(reader, path, sizeof path), "%s", words);
}

static const struct tree_node *find_entry(const struct tree_node *map, const char *text)
{
    for (const struct tree_node *entry = map->children; entry != NULL; entry = entry->next)
        if (entry->key != NULL && entry->key->kind == TREE_SCALAR && strcmp(entry->key->text, text) == 0)
            return entry;
    return NULL;
}

/* Checks a key that was just read, and stores it until its value comes. */
static void take_key(struct reader *reader, struct frame *frame, struct tree_node *node, yaml_mark_t mark)
{
    const struct tree_node *first = node->kind == TREE_SCALAR ? find_entry(frame->node, node->text) : NULL;
    char words[96];

    frame->key = frame->label = node;
    if (node->kind == TREE_MAP || node->kind == TREE_LIST) {
        node->kind = TREE_BAD;
        problem(reader, mark, "a key must be text");
    } else if (node->kind == TREE_SCALAR && node->plain && strcmp(node->text, "<<") == 0) {
        problem(reader, mark, "merge keys are not allowed: write the keys out");
        node->kind = TREE_BAD;
    } else if (first != NULL) {
        snprintf(words, sizeof words, "is there twice (first in line %d)", first->key->line);
        problem(reader, mark, words);
        node->kind = TREE_BAD;
    }
}

/* Adds `node` to the tree at the current position: as root, list entry, key or value. */
static void attach(struct reader *reader, struct tree_node *node, yaml_mark_t mark)
{
    struct frame *frame;

    if (reader->depth == 0) {
        reader->tree->root = node;
        return;
    }
    frame = &reader->frames[reader->depth - 1];
    if (frame->node->kind != TREE_LIST && frame->key == NULL) {
        take_key(reader, frame, node, mark);
        return;
    }
    node->key = frame->key;
    if (node->key != NULL && node->key->kind == TREE_BAD && node->kind == TREE_SCALAR)
        node->kind = TREE_BAD;
    frame->key = NULL;
    if (node->kind == TREE_SCALAR)
        frame->label = NULL;
    frame->n_children++;
    *frame->end = node;
    frame->end = &node->next;
}

static struct tree_node *new_node(struct reader *reader, enum tree_kind kind, yaml_mark_t mark)
{
    struct tree_node *node = tree_take(reader->tree, sizeof *node);

    if (node == NULL) {
        reader->no_memory = true;
        return NULL;
    }
    *node = (struct tree_node){ .kind = kind, .line = (int)mark.line + 1, .column = (int)mark.column + 1 };
    return node;
}

static void refuse_anchor_and_tag(struct reader *reader, const yaml_event_t *event, const yaml_char_t *anchor,
                                  const yaml_char_t *tag)
{
    if (anchor != NULL)
        problem(reader, event->start_mark, "anchors (&) are not allowed");
    if (tag != NULL)
        problem(reader, event->start_mark, "tags (!) are not allowed");
}

static void read_scalar(struct reader *reader, const yaml_event_t *event)
{
    struct tree_node *node = new_node(reader, TREE_SCALAR, event->start_mark);
    size_t length = event->data.scalar.length;
    char *text = node == NULL ? NULL : tree_take(reader->tree, length + 1);

    if (text == NULL) {
        reader->no_memory = true;
        return;
    }
    memcpy(text, event->data.scalar.value, length);
    text[length] = '\0';
    node->text = text;
    node->plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    refuse_anchor_and_tag(reader, event, event->data.scalar.anchor, event->data.scalar.tag);
    if (strlen(text) != length) {
        problem(reader, event->start_mark, "text must not hold a zero byte");
        node->kind = TREE_BAD;
    }
    attach(reader, node, event->start_mark);
}

static void read_alias(struct reader *reader, const yaml_event_t *event)
{
    struct tree_node *node = new_node(reader, TREE_BAD, event->start_mark);

    if (node == NULL)
        return;
    problem(reader, event->start_mark, "aliases (*) are not allowed: a name that begins with * needs quotes");
    attach(reader, node, event->start_mark);
}

static void open_container(struct reader *reader, const yaml_event_t *event, enum tree_kind kind)
{
    struct tree_node *node;

    if (reader->depth == TREE_MAX_DEPTH) {
        problem(reader, event->start_mark, "is nested too deeply");
        reader->stopped = true;
        return;
    }
    node = new_node(reader, kind, event->start_mark);
    if (node == NULL)
        return;
    if (kind == TREE_MAP)
        refuse_anchor_and_tag(reader, event, event->data.mapping_start.anchor, event->data.mapping_start.tag);
    else
        refuse_anchor_and_tag(reader, event, event->data.sequence_start.anchor,
                              event->data.sequence_start.tag);
    attach(reader, node, event->start_mark);
    reader->frames[reader->depth++] = (struct frame){ .node = node, .end = &node->children };
}

static void read_document_start(struct reader *reader, const yaml_event_t *event)
{
    if (event->data.document_start.version_directive != NULL ||
        event->data.document_start.tag_directives.start != event->data.document_start.tag_directives.end)
        problem(reader, event->start_mark, "directives (%) are not allowed");
    if (++reader->n_documents > 1) {
        problem(reader, event->start_mark, "a job file is one document: this is a second one");
        reader->stopped = true;
    }
}

static void read_event(struct reader *reader, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        read_document_start(reader, event);
        break;
    case YAML_SCALAR_EVENT:
        read_scalar(reader, event);
        break;
    case YAML_ALIAS_EVENT:
        read_alias(reader, event);
        break;
    case YAML_MAPPING_START_EVENT:
        open_container(reader, event, TREE_MAP);
        break;
    case YAML_SEQUENCE_START_EVENT:
        open_container(reader, event, TREE_LIST);
        break;
    case YAML_MAPPING_END_EVENT:
    case YAML_SEQUENCE_END_EVENT:
        /* libyaml closes only what it opened. A container that we did not open has stopped the reader. */
        assert(reader->depth > 0);
        if (--reader->depth > 0)
            reader->frames[reader->depth - 1].label = NULL;
        break;
    case YAML_STREAM_END_EVENT:
        reader->stopped = true;
        break;
    default:
        break;
    }
}

/* libyaml's messages for the most frequent mistakes, and ours instead. */
static const struct {
    const char *theirs, *ours;
} wordings[] = {
    { "did not find expected ',' or '}'", "expected , or }: a brace is not closed, or a comma is missing" },
    { "did not find expected ',' or ']'", "expected , or ]: a bracket is not closed, or a comma is missing" },
    { "found a tab character that violates indentation", "a tab: indent with spaces" },
    { "found a tab character where an indentation space is expected", "a tab: indent with spaces" },
    { "mapping values are not allowed in this context", "a second ': ' in one line, or a wrong indentation" },
    { "could not find expected ':'", "expected ':' after a key" },
    { "found unexpected end of stream", "a quote is not closed" },
    { "did not find expected key", "the indentation does not fit the lines above" },
    { "did not find expected <document start>", "nothing may follow the job" },
    { "found character that cannot start any token", "no value starts with this character: use quotes" },
    { "did not find expected alphabetic or numeric character",
      "a value that begins with * or & needs quotes" },
    { "found undefined tag handle", "tags (!) are not allowed" },
};

/*
 * Returns true if the character at `mark` is a tab in the indentation of its line. Marks count characters,
 * not bytes.
 */
static bool is_tab(const struct reader *reader, yaml_mark_t mark)
{
    const char *line = reader->text;

    for (size_t i = 0; i < mark.line && line != NULL; i++)
        line = strchr(line, '\n') == NULL ? NULL : strchr(line, '\n') + 1;
    return line != NULL && strspn(line, " \t") > mark.column && line[mark.column] == '\t';
}

static void syntax_error(struct reader *reader, const yaml_parser_t *parser)
{
    const char *words = parser->problem == NULL ? "cannot be read" : parser->problem;
    struct job_place place = at_mark(reader, parser->problem_mark);

    if (parser->error == YAML_READER_ERROR)
        place = place_of(reader->source, reader->text,
                         parser->problem_offset < reader->length ? parser->problem_offset : reader->length);
    for (size_t i = 0; i < sizeof wordings / sizeof *wordings; i++)
        if (strcmp(words, wordings[i].theirs) == 0)
            words = wordings[i].ours;
    if (strncmp(words, "no value starts", 15) == 0 && is_tab(reader, parser->problem_mark))
        words = "a tab: indent with spaces";
    if (parser->context != NULL && parser->context_mark.line != parser->problem_mark.line &&
        strstr(words, "is not closed") != NULL)
        job_report_add(reader->report, place, NULL, "%s (begun in line %zu)", words,
                       parser->context_mark.line + 1);
    else
        job_report_add(reader->report, place, NULL, "%s", words);
}

static void read_events(struct reader *reader)
{
    yaml_parser_t parser;
    yaml_event_t event;

    if (!yaml_parser_initialize(&parser)) {
        reader->no_memory = true;
        return;
    }
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)reader->text, reader->length);
    while (!reader->stopped && !reader->no_memory) {
        if (!yaml_parser_parse(&parser, &event)) {
            if (parser.error == YAML_MEMORY_ERROR)
                reader->no_memory = true;
            else
                syntax_error(reader, &parser);
            break;
        }
        read_event(reader, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
}

enum fsdp_status tree_read(struct tree *tree, const char *source, const char *text, size_t length,
                           struct job_report *report)
{
    struct reader reader = { .tree = tree, .report = report, .source = source };
    const struct job_place start = { source, 1, 1 };
    size_t sound;
    char *copy;

    *tree = (struct tree){ 0 };
    if (length >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
        text += 3; /* skip a byte order mark: UTF-8 is the only encoding anyway */
        length -= 3;
    }
    if (length > TREE_MAX_BYTES) {
        job_report_add(report, start, NULL, "is too large for a job file (%zu bytes)", length);
        return FSDP_OK;
    }
    sound = utf8_prefix(text, length);
    if (sound != length) {
        job_report_add(report, place_of(source, text, sound), NULL, "is not UTF-8 text (byte 0x%02x)",
                       (unsigned)(unsigned char)text[sound]);
        return FSDP_OK;
    }
    if (memchr(text, '\0', length) != NULL) {
        sound = (size_t)((const char *)memchr(text, '\0', length) - text);
        job_report_add(report, place_of(source, text, sound), NULL, "holds a zero byte");
        return FSDP_OK;
    }
    copy = tree_take(tree, length + 1); /* zero-terminated, because is_tab() searches it for lines */
    if (copy == NULL)
        return FSDP_ERR_NOMEM;
    memcpy(copy, text, length);
    copy[length] = '\0';
    reader.text = copy;
    reader.length = length;
    read_events(&reader);
    return reader.no_memory || report->no_memory ? FSDP_ERR_NOMEM : FSDP_OK;
}

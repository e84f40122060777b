#include "shard_runtime/objectstore/s3_message.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shard_runtime/core/alloc.h"

/* The longest text is an address with a key of 1,024 bytes, escaped by three each. */
enum { DEPTH_MAX = 8, NAME_BYTES = 64, TEXT_BYTES = 4096, ENTRIES_MAX = 1 << 20 };

/* Queries */

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct s3_parameter *)a)->name, ((const struct s3_parameter *)b)->name);
}

static void add_escaped(struct json_text *url, const char *text)
{
    for (; *text != '\0'; text++) {
        const unsigned char byte = (unsigned char)*text;

        if (isascii(byte) && (isalnum(byte) || strchr("-._~", byte) != NULL))
            json_add_bytes(url, text, 1);
        else
            json_add(url, "%%%02X", byte);
    }
}

void s3_add_query(struct json_text *url, struct s3_parameter *parameters, size_t n_parameters)
{
    if (n_parameters > 1)
        qsort(parameters, n_parameters, sizeof *parameters, by_name);
    for (size_t i = 0; i < n_parameters; i++) {
        json_add(url, i == 0 ? "?" : "&");
        add_escaped(url, parameters[i].name);
        json_add(url, "=");
        add_escaped(url, parameters[i].value == NULL ? "" : parameters[i].value);
    }
}

/* Headers */

bool s3_read_etag(const char *value, size_t length, char etag[S3_ETAG_BYTES])
{
    etag[0] = '\0';
    for (; length > 0 && isspace((unsigned char)value[0]); length--)
        value++;
    while (length > 0 && isspace((unsigned char)value[length - 1]))
        length--;
    if (length == 0 || length >= S3_ETAG_BYTES)
        return false;
    for (size_t i = 0; i < length; i++)
        if (!isascii((unsigned char)value[i]) || !isprint((unsigned char)value[i]))
            return false;
    memcpy(etag, value, length);
    etag[length] = '\0';
    return true;
}

/* XML */

struct xml {
    const char *at, *end;
    char names[DEPTH_MAX][NAME_BYTES];
    size_t depth;
    char text[TEXT_BYTES]; /* since the last tag */
    size_t n_text;
    bool is_leaf; /* the last tag was the beginning of an element */
};

static bool begins(const struct xml *xml, const char *words)
{
    const size_t length = strlen(words);

    return (size_t)(xml->end - xml->at) >= length && memcmp(xml->at, words, length) == 0;
}

static bool add_text(struct xml *xml, char byte)
{
    if (xml->n_text + 1 >= sizeof xml->text)
        return false;
    xml->text[xml->n_text++] = byte;
    return true;
}

/* "&#x41;" and "&#65;", of ASCII alone: no key of ours has other characters. */
static bool take_number(struct xml *xml)
{
    const int base = begins(xml, "&#x") ? 16 : 10;
    const char *digits = xml->at + (base == 16 ? 3 : 2), *at = digits;
    unsigned value = 0;

    while (at < xml->end && at < digits + 4 && isxdigit((unsigned char)*at) &&
           (base == 16 || isdigit((unsigned char)*at))) {
        const int digit = isdigit((unsigned char)*at) ? *at - '0' : tolower((unsigned char)*at) - 'a' + 10;

        value = value * (unsigned)base + (unsigned)digit;
        at++;
    }
    if (at == digits || at == xml->end || *at != ';' || value == 0 || value > 0x7e)
        return false;
    xml->at = at + 1;
    return add_text(xml, (char)value);
}

static bool take_entity(struct xml *xml)
{
    static const struct {
        const char *words;
        char byte;
    } entities[] = {
        { "&amp;", '&' }, { "&lt;", '<' }, { "&gt;", '>' }, { "&quot;", '"' }, { "&apos;", '\'' }
    };

    for (size_t i = 0; i < sizeof entities / sizeof *entities; i++)
        if (begins(xml, entities[i].words)) {
            xml->at += strlen(entities[i].words);
            return add_text(xml, entities[i].byte);
        }
    return begins(xml, "&#") && take_number(xml);
}

/* Moves past '>' and sets *empty for "<name/>". Attributes are passed over: stores send only name spaces. */
static bool take_tag_end(struct xml *xml, bool *empty)
{
    char quote = '\0';

    *empty = false;
    for (; xml->at < xml->end; xml->at++) {
        const char byte = *xml->at;

        if (quote != '\0') {
            quote = byte == quote ? '\0' : quote;
        } else if (byte == '"' || byte == '\'') {
            quote = byte;
        } else if (byte == '>') {
            *empty = xml->at[-1] == '/';
            xml->at++;
            return true;
        } else if (byte == '<' || byte == '\0') {
            return false;
        }
    }
    return false;
}

static size_t name_length(const struct xml *xml)
{
    size_t n = 0;

    while (xml->at + n < xml->end &&
           (isalnum((unsigned char)xml->at[n]) || strchr(":_-.", xml->at[n]) != NULL) && xml->at[n] != '\0')
        n++;
    return n;
}

struct walk {
    bool (*found)(void *arg, const char *parent, const char *name, const char *text);
    void *arg;
};

static bool end_element(struct xml *xml, const struct walk *walk)
{
    const char *parent = xml->depth >= 2 ? xml->names[xml->depth - 2] : "";
    bool is_wanted;

    xml->text[xml->n_text] = '\0';
    is_wanted = walk->found(walk->arg, parent, xml->names[xml->depth - 1], xml->is_leaf ? xml->text : NULL);
    xml->depth--;
    xml->n_text = 0;
    xml->is_leaf = false;
    return is_wanted;
}

static bool take_begin(struct xml *xml, const struct walk *walk)
{
    size_t n;
    bool empty;

    xml->at++;
    n = name_length(xml);
    if (n == 0 || n >= NAME_BYTES || xml->depth == DEPTH_MAX)
        return false;
    memcpy(xml->names[xml->depth], xml->at, n);
    xml->names[xml->depth++][n] = '\0';
    xml->at += n;
    xml->n_text = 0;
    xml->is_leaf = true;
    if (!take_tag_end(xml, &empty))
        return false;
    return !empty || end_element(xml, walk);
}

static bool take_end(struct xml *xml, const struct walk *walk)
{
    size_t n;
    bool empty;

    xml->at += 2;
    n = name_length(xml);
    if (xml->depth == 0 || n == 0 || strncmp(xml->names[xml->depth - 1], xml->at, n) != 0 ||
        xml->names[xml->depth - 1][n] != '\0')
        return false;
    xml->at += n;
    return take_tag_end(xml, &empty) && !empty && end_element(xml, walk);
}

static bool take_declaration(struct xml *xml)
{
    while (xml->at < xml->end && !begins(xml, "?>"))
        xml->at++;
    xml->at += begins(xml, "?>") ? 2 : 0;
    return true;
}

bool s3_xml_walk(const char *bytes, size_t length,
                 bool (*found)(void *arg, const char *parent, const char *name, const char *text), void *arg)
{
    const struct walk walk = { found, arg };
    struct xml xml = { .at = bytes, .end = bytes + length };
    bool any = false, good = true;

    while (xml.at < xml.end && isspace((unsigned char)*xml.at)) /* a store that is busy sends blanks first */
        xml.at++;
    if (begins(&xml, "<?xml"))
        good = take_declaration(&xml);
    while (good && xml.at < xml.end) {
        if (begins(&xml, "</")) {
            good = take_end(&xml, &walk);
        } else if (*xml.at == '<') {
            good = !(any && xml.depth == 0) && take_begin(&xml, &walk);
            any = true;
        } else if (xml.depth == 0) {
            good = isspace((unsigned char)*xml.at++) != 0;
        } else if (*xml.at == '&') {
            good = take_entity(&xml);
        } else {
            good =
                *xml.at != '\0' && (xml.is_leaf ? add_text(&xml, *xml.at) : isspace((unsigned char)*xml.at));
            xml.at++;
        }
    }
    return good && any && xml.depth == 0;
}

static bool copy(char *out, size_t size, const char *text)
{
    return (size_t)snprintf(out, size, "%s", text) < size;
}

static bool find_error(void *arg, const char *parent, const char *name, const char *text)
{
    struct s3_error *error = arg;

    if (strcmp(parent, "Error") != 0 || text == NULL)
        return strcmp(parent, "") != 0 || strcmp(name, "Error") == 0;
    if (strcmp(name, "Code") == 0)
        (void)copy(error->code, sizeof error->code, text);
    if (strcmp(name, "Message") == 0)
        (void)copy(error->words, sizeof error->words, text);
    for (char *at = error->words; *at != '\0'; at++) /* it goes into one line for people */
        if (!isprint((unsigned char)*at))
            *at = ' ';
    return true;
}

bool s3_read_error(const char *bytes, size_t length, struct s3_error *out)
{
    *out = (struct s3_error){ .code = "" };
    if (!s3_xml_walk(bytes, length, find_error, out) || out->code[0] == '\0') {
        *out = (struct s3_error){ .code = "" };
        return false;
    }
    for (char *at = out->code; *at != '\0'; at++)
        if (!isalnum((unsigned char)*at))
            *at = '?';
    return true;
}

struct root {
    const char *name;
    bool is_it;
};

static bool find_root(void *arg, const char *parent, const char *name, const char *text)
{
    struct root *root = arg;

    (void)text;
    if (parent[0] == '\0')
        root->is_it = strcmp(name, root->name) == 0;
    return true;
}

bool s3_is_result(const char *bytes, size_t length, const char *name)
{
    struct root root = { .name = name };

    return s3_xml_walk(bytes, length, find_root, &root) && root.is_it;
}

static bool find_upload(void *arg, const char *parent, const char *name, const char *text)
{
    if (strcmp(parent, "InitiateMultipartUploadResult") == 0 && strcmp(name, "UploadId") == 0 && text != NULL)
        return copy(arg, S3_UPLOAD_BYTES, text);
    return true;
}

bool s3_read_upload(const char *bytes, size_t length, char id[S3_UPLOAD_BYTES])
{
    id[0] = '\0';
    return s3_xml_walk(bytes, length, find_upload, id) && id[0] != '\0';
}

struct listing {
    struct s3_list *list;
    char key[S3_WORD_BYTES], upload[S3_UPLOAD_BYTES]; /* of the element that is being read */
    bool is_list, no_memory;
};

static bool add_entry(struct listing *listing, bool is_prefix)
{
    struct s3_list *list = listing->list;
    struct s3_entry entry = { .is_prefix = is_prefix };

    if (listing->key[0] == '\0' || list->n >= ENTRIES_MAX)
        return false;
    if (!alloc_room(&list->entries, &list->room, list->n, sizeof *list->entries)) {
        listing->no_memory = true;
        return false;
    }
    entry.key = strdup(listing->key);
    entry.upload = listing->upload[0] != '\0' ? strdup(listing->upload) : NULL;
    listing->no_memory = entry.key == NULL || (listing->upload[0] != '\0' && entry.upload == NULL);
    list->entries[list->n++] = entry;
    listing->key[0] = listing->upload[0] = '\0';
    return !listing->no_memory;
}

static bool find_entry(void *arg, const char *parent, const char *name, const char *text)
{
    struct listing *listing = arg;
    struct s3_list *list = listing->list;
    const bool is_top =
        strcmp(parent, "ListBucketResult") == 0 || strcmp(parent, "ListMultipartUploadsResult") == 0;

    if (parent[0] == '\0') {
        listing->is_list =
            strcmp(name, "ListBucketResult") == 0 || strcmp(name, "ListMultipartUploadsResult") == 0;
        return true;
    }
    if (is_top && (strcmp(name, "Contents") == 0 || strcmp(name, "Upload") == 0))
        return text == NULL && add_entry(listing, false);
    if (is_top && strcmp(name, "CommonPrefixes") == 0)
        return text == NULL && add_entry(listing, true);
    if (text == NULL)
        return true;
    if (is_top && strcmp(name, "IsTruncated") == 0)
        list->more = strcmp(text, "true") == 0;
    if (is_top && (strcmp(name, "NextContinuationToken") == 0 || strcmp(name, "NextKeyMarker") == 0))
        return copy(list->next, sizeof list->next, text);
    if (is_top && strcmp(name, "NextUploadIdMarker") == 0)
        return copy(list->next_upload, sizeof list->next_upload, text);
    if (!is_top && (strcmp(name, "Key") == 0 || strcmp(name, "Prefix") == 0))
        return copy(listing->key, sizeof listing->key, text);
    if (!is_top && strcmp(name, "UploadId") == 0)
        return copy(listing->upload, sizeof listing->upload, text);
    return true;
}

enum fsdp_status s3_read_list(const char *bytes, size_t length, struct s3_list *list, struct fsdp_err *err)
{
    struct listing listing = { .list = list };

    list->more = false;
    list->next[0] = list->next_upload[0] = '\0';
    if (s3_xml_walk(bytes, length, find_entry, &listing) && listing.is_list &&
        !(list->more && list->next[0] == '\0'))
        return FSDP_OK;
    return listing.no_memory ? fsdp_fail(err, FSDP_ERR_NOMEM, "memory for a list of %zu objects", list->n)
                             : fsdp_fail(err, FSDP_ERR_FORMAT, "the answer is no list of objects");
}

void s3_list_free(struct s3_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        free(list->entries[i].key);
        free(list->entries[i].upload);
    }
    free(list->entries);
    *list = (struct s3_list){ .n = 0 };
}

/* Adds text between two tags. */
static void add_text_of(struct json_text *body, const char *text)
{
    for (; *text != '\0'; text++)
        if (*text == '&')
            json_add(body, "&amp;");
        else if (*text == '<')
            json_add(body, "&lt;");
        else if (*text == '>')
            json_add(body, "&gt;");
        else
            json_add_bytes(body, text, 1);
}

void s3_add_parts(struct json_text *body, const char (*etags)[S3_ETAG_BYTES], size_t n)
{
    json_add(body, "<CompleteMultipartUpload>");
    for (size_t i = 0; i < n; i++) {
        json_add(body, "<Part><PartNumber>%zu</PartNumber><ETag>", i + 1);
        add_text_of(body, etags[i]);
        json_add(body, "</ETag></Part>");
    }
    json_add(body, "</CompleteMultipartUpload>");
}

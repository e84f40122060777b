#include "agent/record/error_reader.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/os/disk.h"

/* Time is counted in looks, so a pause of this process counts as one look. */
enum { LOOK_MS = 250, LOOKS = ERROR_READER_MS / LOOK_MS };

struct question {
    struct disk_job job;
    struct error_reader *reader;
    /* NULL: answered, or not waited for any more */
    void (*done)(void *arg, struct errors_detail *detail);
    void *arg;
    int n_looks;
    struct question *next; /* asked later, and not answered either */
    struct errors_detail detail;
    char path[ERRORS_PATH_BYTES];
};

struct error_reader {
    uv_timer_t look; /* runs while `first` is there */
    bool (*read)(struct errors_detail *detail, const char *path);
    struct disk *disk; /* NULL: no file was asked for */
    struct question *first, **end;
};

enum fsdp_status error_reader_create(struct error_reader **out, uv_loop_t *loop,
                                     bool (*read)(struct errors_detail *detail, const char *path),
                                     struct fsdp_err *err)
{
    struct error_reader *reader = calloc(1, sizeof *reader);

    *out = reader;
    if (reader == NULL)
        return fsdp_fail(err, FSDP_ERR_NOMEM, "no memory for the reader of error files");
    uv_timer_init(loop, &reader->look);
    reader->look.data = reader;
    reader->read = read;
    reader->end = &reader->first;
    return FSDP_OK;
}

static void read_file(struct disk_job *job)
{
    struct question *question = (struct question *)job;

    (void)question->reader->read(&question->detail, question->path);
}

/* Answers the first question that waits. */
static void answer(struct error_reader *reader, struct errors_detail *detail)
{
    struct question *question = reader->first;
    void (*done)(void *arg, struct errors_detail *detail) = question->done;

    reader->first = question->next;
    if (reader->first == NULL) {
        reader->end = &reader->first;
        uv_timer_stop(&reader->look);
    }
    question->done = NULL;
    done(question->arg, detail);
}

/* The thread answers in the order of the questions, so the first one that waits is meant, or none. */
static void on_read(struct disk_job *job)
{
    struct question *question = (struct question *)job;

    if (question->done != NULL) {
        assert(question == question->reader->first);
        answer(question->reader, &question->detail);
    }
    free(question);
}

static void on_look(uv_timer_t *timer)
{
    struct error_reader *reader = timer->data;

    for (struct question *question = reader->first; question != NULL; question = question->next)
        question->n_looks++;
    while (reader->first != NULL && reader->first->n_looks >= LOOKS)
        answer(reader, NULL);
}

bool error_reader_ask(struct error_reader *reader, const char *path,
                      void (*done)(void *arg, struct errors_detail *detail), void *arg)
{
    struct question *question = calloc(1, sizeof *question);

    if (question == NULL ||
        (reader->disk == NULL && disk_create(&reader->disk, reader->look.loop, NULL) != FSDP_OK)) {
        free(question);
        return false;
    }
    question->job = (struct disk_job){ .work = read_file, .done = on_read };
    question->reader = reader;
    question->done = done;
    question->arg = arg;
    snprintf(question->path, sizeof question->path, "%s", path);
    if (reader->first == NULL)
        uv_timer_start(&reader->look, on_look, LOOK_MS, LOOK_MS);
    *reader->end = question;
    reader->end = &question->next;
    disk_submit(reader->disk, &question->job);
    return true;
}

void error_reader_give_up(struct error_reader *reader)
{
    while (reader->first != NULL)
        answer(reader, NULL);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

bool error_reader_close(struct error_reader *reader)
{
    if (reader == NULL)
        return true;
    assert(reader->first == NULL);
    if (!disk_is_idle(reader->disk))
        return false;
    disk_close(reader->disk);
    uv_close((uv_handle_t *)&reader->look, on_closed);
    return true;
}

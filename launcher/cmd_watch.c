/*
 * `fsdprun ps --watch`, `status --watch` and `top`: a table that is drawn again when something changes. If
 * stdout is no terminal, --watch prints one line for each job that has news, and top prints its table once.
 */
#include <cjson/cJSON.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "launcher/cmd_jobs.h"
#include "launcher/job_table.h"
#include "launcher/job_watch.h"
#include "launcher/terminal.h"
#include "shard_runtime/core/exit_status.h"

/*
 * The table is drawn at least this often: ages grow and memory changes while no job sends news. Only the
 * lines that have changed are written to the terminal.
 */
enum { REDRAW_MS = 1000 };

/* What the screen shows. */
struct view {
    bool top, one; /* top: the table of `top`; one: only a single job is shown */
    struct table_look look;
    struct job_table_part part;
};

/*
 * How many lines of `top` are not rows: two tables' titles, the empty line between them, and three other
 * lines.
 */
enum { OTHER_LINES = 6 };

/*
 * Chooses how many jobs and ranks are shown on `lines` lines. At most half of the rows are jobs, unless the
 * ranks need less than the other half.
 */
static void fit(struct view *view, const cJSON *jobs, int lines)
{
    const size_t n_jobs = (size_t)cJSON_GetArraySize(jobs), n_ranks = job_table_n_ranks(jobs);
    const size_t room = lines > OTHER_LINES + 2 ? (size_t)(lines - OTHER_LINES) : 2;
    struct job_table_part *part = &view->part;

    part->most_jobs = n_jobs > room / 2 ? room / 2 : n_jobs;
    if (n_ranks < room - part->most_jobs) /* the ranks leave lines unused, so more jobs are shown */
        part->most_jobs = n_jobs > room - n_ranks ? room - n_ranks : n_jobs;
    part->most_ranks = room - part->most_jobs;
    if (part->first + part->most_ranks > n_ranks)
        part->first = n_ranks > part->most_ranks ? n_ranks - part->most_ranks : 0;
}

/* Returns the text of a screen of `lines` lines. The caller frees it. */
static char *draw(struct view *view, struct job_watch *watch, int lines)
{
    cJSON *jobs = job_watch_now(watch, false);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    fit(view, jobs, lines);
    if (out != NULL && view->top) {
        job_table_top(jobs, &view->look, &view->part, out);
        fprintf(out, "sorted by %s; keys: q, s sort%s", job_table_sort_name(view->part.sort),
                job_table_n_ranks(jobs) > view->part.most_ranks ? ", arrows" : "");
    } else if (out != NULL && view->one) {
        if (cJSON_GetArraySize(jobs) > 0)
            job_table_status(cJSON_GetArrayItem(jobs, 0), &view->look, out);
    } else if (out != NULL) {
        job_table_jobs(jobs, &view->look, out);
    }
    cJSON_Delete(jobs);
    if (out != NULL && fclose(out) != 0) {
        free(text);
        text = NULL;
    }
    return text;
}

/* Applies the keys that the user has pressed. Returns false if one of them ends the view. */
static bool take_keys(struct screen *screen, struct view *view, int lines)
{
    const size_t page = lines > 12 ? (size_t)lines - 12 : 1;
    enum screen_key key;

    while ((key = screen_key(screen)) != SCREEN_NO_KEY) {
        const size_t by = key == SCREEN_PAGE_UP || key == SCREEN_PAGE_DOWN ? page : 1;

        if (key == SCREEN_QUIT)
            return false;
        if (key == SCREEN_SORT)
            view->part.sort = (view->part.sort + 1) % JOB_TABLE_SORTS;
        else if (key == SCREEN_DOWN || key == SCREEN_PAGE_DOWN)
            view->part.first += by;
        else
            view->part.first = view->part.first > by ? view->part.first - by : 0;
    }
    return true;
}

/*
 * Shows the table in the terminal until the user or the end of the job ends it. Returns the exit status,
 * which is 128 + n if signal n ended it.
 */
static int show_screen(struct view *view, struct job_watch *watch, struct fsdp_err *err)
{
    const bool wide = view->look.wide;
    struct screen screen;
    char *text = NULL;
    int signal_number = 0;
    bool goes_on = true;

    if (!screen_open(&screen, STDIN_FILENO, STDOUT_FILENO)) {
        fsdp_fail(err, FSDP_ERR_IO, "the terminal: %s", strerror(errno));
        return FSDP_EXIT_IO;
    }
    while (goes_on && signal_number == 0) {
        struct pollfd fds[2] = { { .fd = screen.signals, .events = POLLIN },
                                 { .fd = screen.in, .events = POLLIN } };

        view->look = terminal_look(STDOUT_FILENO);
        view->look.wide = wide;
        free(text);
        text = draw(view, watch, terminal_lines(STDOUT_FILENO));
        if (text != NULL)
            screen_draw(&screen, text);
        goes_on = job_watch_wait(watch, fds, 2, REDRAW_MS) != JOB_WATCH_ENDED;
        if (fds[0].revents != 0)
            signal_number = screen_signal(&screen);
        if ((fds[1].revents & (POLLHUP | POLLERR)) != 0 ||
            (fds[1].revents != 0 && !take_keys(&screen, view, terminal_lines(STDOUT_FILENO))))
            goes_on = false;
    }
    /* The last table stays in the terminal. */
    screen_close(&screen, text != NULL ? text : "");
    if (text != NULL && text[0] != '\0' && text[strlen(text) - 1] != '\n')
        (void)!write(STDOUT_FILENO, "\n", 1);
    free(text);
    if (signal_number != 0 && signal_number != SIGINT) {
        signal(signal_number, SIG_DFL);
        raise(signal_number);
    }
    return signal_number == 0 ? 0 : 128 + signal_number;
}

/* Prints the news of jobs as they come: one JSON value, or one line for each job. Returns the exit status. */
static int print_news(const struct view *view, struct job_watch *watch, bool json, FILE *out)
{
    enum job_watch_news news = JOB_WATCH_CHANGED;
    bool titled = false;

    do {
        cJSON *jobs = news != JOB_WATCH_CHANGED ? NULL : job_watch_now(watch, !json);
        const cJSON *job;
        char *text;

        if (json && jobs != NULL) {
            text = cJSON_PrintUnformatted(view->one ? cJSON_GetArrayItem(jobs, 0) : jobs);
            fprintf(out, "%s\n", text != NULL ? text : "");
            cJSON_free(text);
        }
        if (!json && !titled)
            job_table_jobs(jobs, &view->look, out);
        cJSON_ArrayForEach(job, jobs)
        {
            if (!json && titled)
                job_table_line(job, &view->look, out);
        }
        titled = true;
        cJSON_Delete(jobs);
        if (fflush(out) != 0 || ferror(out))
            return FSDP_EXIT_IO;
        news = job_watch_wait(watch, NULL, 0, -1);
    } while (news != JOB_WATCH_ENDED);
    return 0;
}

int cmd_watch(const struct subcommand *command, const struct registry_job *job, const struct job_words *words,
              FILE *out, struct fsdp_err *err)
{
    struct view view = { .top = strcmp(command->name, "top") == 0,
                         .one = job != NULL,
                         .look = terminal_look(STDOUT_FILENO) };
    const bool screen = isatty(STDOUT_FILENO) && !words->json;
    const bool workers = view.top || job != NULL;
    struct job_watch *watch;
    enum fsdp_status status =
        job_watch_create(&watch, workers ? DESK_WATCH_ALL : DESK_WATCH, job, words->agent, err);
    int result;

    if (status != FSDP_OK)
        return exit_status_of(status);
    view.look.wide = words->wide;
    result = screen ? show_screen(&view, watch, err) : print_news(&view, watch, words->json, out);
    job_watch_destroy(watch);
    return result;
}

/*
 * Finds out how large a terminal is and whether it shows UTF-8. It also has a full screen that is drawn
 * repeatedly, and reads the keys that the user presses.
 *
 * The screen is the terminal's alternate one (xterm's 1049). When it is closed, the terminal shows again what
 * it showed before. screen_signal() reads the signals that would end or stop this process, and restores the
 * terminal first. Only one screen may be open at a time, because it changes which signals the process blocks.
 */
#ifndef LAUNCHER_TERMINAL_H
#define LAUNCHER_TERMINAL_H

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <termios.h>

#include "launcher/table.h"

/**
 * Returns how a table is shown on `fd`. Its width is the variable COLUMNS, if that is a number above 0, else
 * the width of the terminal. If `fd` is no terminal, the width has no limit.
 */
struct table_look terminal_look(int fd);

/**
 * Returns the number of lines of the terminal `fd`: the variable LINES, or what the terminal reports, or 24.
 */
int terminal_lines(int fd);

/** Does the locale use UTF-8? The first of LC_ALL, LC_CTYPE and LANG that is set decides. */
bool terminal_has_utf8(void);

enum screen_key {
    SCREEN_NO_KEY,
    SCREEN_QUIT,
    SCREEN_UP,
    SCREEN_DOWN,
    SCREEN_PAGE_UP,
    SCREEN_PAGE_DOWN,
    SCREEN_SORT
};

struct screen {
    int in, out;   /* the terminal; `in` is -1 if no keys can be read */
    int signals;   /* signalfd for the signals that are blocked */
    sigset_t mask; /* signal mask of the process before screen_open() */
    struct termios before;
    bool raw;      /* the terminal's mode was changed: `before` must be restored */
    char *drawn;   /* the text that the screen shows; NULL: none */
    char keys[16]; /* bytes that were read but do not form a key yet */
    int n_keys;
};

/**
 * Takes over the terminal `out`. It also reads keys from `in`, if that is a terminal and this process is in
 * its foreground. From now on HUP, INT, QUIT, TERM, TSTP and WINCH are blocked and read by screen_signal().
 * Returns false, with errno set, if that fails.
 */
bool screen_open(struct screen *screen, int in, int out);

/**
 * Shows `text`, cut to the lines of the terminal. If the screen shows that text already, nothing is written.
 */
void screen_draw(struct screen *screen, const char *text);

/** Reads one key. Call it when `in` is readable, and again as long as it returns one. */
enum screen_key screen_key(struct screen *screen);

/**
 * Handles the signals that came. Call it when `signals` is readable. After TSTP it stops this process, until
 * it is continued. Returns the signal that ends this process. 0: it goes on, and the screen must be drawn
 * again.
 */
int screen_signal(struct screen *screen);

/** Restores the terminal, and prints `text` there. */
void screen_close(struct screen *screen, const char *text);

#endif

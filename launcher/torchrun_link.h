/*
 * The link torchrun in the folder of fsdprun, for scripts that call torchrun. A torchrun that is there
 * already is kept as torchrun.before-fsdprun, and comes back when the link is removed.
 *
 * At every moment the name torchrun leads to the old program or to fsdprun, and the old program has a name. A
 * call that was cut short is finished by the next one. A call with nothing left to do succeeds.
 */
#ifndef LAUNCHER_TORCHRUN_LINK_H
#define LAUNCHER_TORCHRUN_LINK_H

#include <stdbool.h>

#include <fsdp/status.h>

enum { TORCHRUN_LINK_SAID_BYTES = 512 };

/* What has the name torchrun, or the name under which the old one is kept. */
enum torchrun_entry {
    ENTRY_UNSET,
    ENTRY_NONE,
    ENTRY_LINK,   /* a link that leads to this fsdprun */
    ENTRY_OTHER,  /* any other file or link */
    ENTRY_FOLDER, /* a directory, which is never touched */
    ENTRY_COUNT
};

/* One change of the folder, or why there is none. */
enum torchrun_step {
    STEP_UNSET,
    STEP_LINK,    /* make the link: there is no torchrun */
    STEP_KEEP,    /* give torchrun its second name, then put the link in its place */
    STEP_REPLACE, /* put the link in its place: it has its second name */
    STEP_HAVE,    /* the link is there */
    STEP_REMOVE,  /* remove the link: nothing is kept */
    STEP_RESTORE, /* put what is kept in the link's place */
    STEP_FORGET,  /* remove the second name of a torchrun that was never replaced */
    STEP_NOTHING, /* there is no link to remove */
    STEP_CHANGED, /* refused: somebody has changed torchrun since */
    STEP_FOLDER,  /* refused: a directory has the name */
};

/**
 * Decide what a call does. Pure.
 *   kept   what has the name torchrun.before-fsdprun; ENTRY_LINK counts as ENTRY_OTHER
 *   equal  both names are names of the same file
 */
enum torchrun_step torchrun_link_step(bool install, enum torchrun_entry torchrun, enum torchrun_entry kept,
                                      bool equal);

/**
 * Make the link torchrun in the folder of `called`.
 *   called  the path of this fsdprun (launcher/called.h)
 *   said    gets a line about what was done, in TORCHRUN_LINK_SAID_BYTES
 *   FSDP_ERR_BUSY  refused: a directory has the name, or both names have files of others
 *   FSDP_ERR_IO    the folder cannot be changed. Nothing is, or the next call goes on with it.
 */
enum fsdp_status torchrun_link_install(const char *called, char *said, struct fsdp_err *err);

/** Undo torchrun_link_install(). Arguments and errors are the same. */
enum fsdp_status torchrun_link_uninstall(const char *called, char *said, struct fsdp_err *err);

#endif

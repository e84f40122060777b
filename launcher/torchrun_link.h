/*
 * Makes and removes the link torchrun in the folder of fsdprun, for scripts that call torchrun. If the folder
 * has a torchrun already, that file is kept as torchrun.before-fsdprun. It comes back when the link is
 * removed.
 *
 * If there was a torchrun, the name torchrun always leads to it or to fsdprun, and the old file always has a
 * name. A call that was cut short is completed by the next one. A call with nothing left to do succeeds.
 */
#ifndef LAUNCHER_TORCHRUN_LINK_H
#define LAUNCHER_TORCHRUN_LINK_H

#include <stdbool.h>

#include <fsdp/status.h>

enum { TORCHRUN_LINK_SAID_BYTES = 512 };

/* What kind of entry has the name torchrun, or the name under which the old one is kept. */
enum torchrun_entry {
    ENTRY_UNSET,
    ENTRY_NONE,
    ENTRY_LINK,   /* a link that leads to this fsdprun */
    ENTRY_OTHER,  /* any other file or link */
    ENTRY_FOLDER, /* a directory, which is never touched */
    ENTRY_COUNT
};

/* What a call changes in the folder, or why it changes nothing. */
enum torchrun_step {
    STEP_UNSET,
    STEP_LINK,    /* there is no torchrun: make the link */
    STEP_KEEP,    /* give the old torchrun its second name, then replace it by the link */
    STEP_REPLACE, /* the old torchrun has its second name already: replace it by the link */
    STEP_HAVE,    /* the link exists already */
    STEP_REMOVE,  /* no old torchrun is kept: remove the link */
    STEP_RESTORE, /* replace the link by the old torchrun */
    STEP_FORGET,  /* the old torchrun was never replaced: remove its second name */
    STEP_NOTHING, /* there is no link to remove */
    STEP_CHANGED, /* refused: another program has changed torchrun since */
    STEP_FOLDER,  /* refused: a directory has one of the two names */
};

/**
 * Decides what a call does. Pure.
 *   torchrun  what kind of entry has the name torchrun
 *   kept      what kind of entry has the name torchrun.before-fsdprun; ENTRY_LINK counts as ENTRY_OTHER
 *   equal     both names are names of the same file
 */
enum torchrun_step torchrun_link_step(bool install, enum torchrun_entry torchrun, enum torchrun_entry kept,
                                      bool equal);

/**
 * Makes the link torchrun in the folder of `called`.
 *   called  the path of this fsdprun (launcher/called.h)
 *   said    (TORCHRUN_LINK_SAID_BYTES) receives a line about what was done
 *   FSDP_ERR_BUSY  refused: a directory has one of the names, or both names have files of other programs
 *   FSDP_ERR_IO    the folder cannot be changed. Either nothing was changed, or the next call completes it.
 */
enum fsdp_status torchrun_link_install(const char *called, char *said, struct fsdp_err *err);

/** Undoes torchrun_link_install(). Arguments and errors are the same. */
enum fsdp_status torchrun_link_uninstall(const char *called, char *said, struct fsdp_err *err);

#endif

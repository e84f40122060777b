/*
 * Times of named pieces of work, added up, and the table of them. A row is a span of the engine, such as an
 * entry of the plan or the optimizer. Or it is a part of one, such as a launch of a kernel or a product.
 * Pure.
 */
#ifndef CUDA_PROFILE_TABLE_H
#define CUDA_PROFILE_TABLE_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum { PROFILE_NAME_BYTES = 96, PROFILE_WAY_BYTES = 96, PROFILE_NO_ROW = -1 };

/* The unit of a row's amount. */
enum profile_unit { PROFILE_NOTHING, PROFILE_BYTES, PROFILE_FLOPS };

struct profile_row {
    int parent; /* the row that this one is a part of, or PROFILE_NO_ROW */
    char name[PROFILE_NAME_BYTES];
    char way[PROFILE_WAY_BYTES]; /* how a product is computed; "" */
    enum profile_unit unit;
    uint64_t calls;
    double ms, amount;
};

struct profile_table {
    struct profile_row *rows;
    int n_rows;
    size_t room;
    uint64_t n_steps; /* steps over which all times and amounts are added up */
    double steps_ms;
};

/** The head of a printed table. */
struct profile_head {
    const char *who;  /* ", rank 0, device 0 (NVIDIA H100 80GB HBM3)" */
    double peak_gb_s; /* peak of the device's memory; 0: not known */
    uint64_t n_lost;  /* times that could not be read */
};

/**
 * Returns the number of a row; adds the row if it is new. `way` NULL: it has none. PROFILE_NO_ROW: out of
 * memory.
 */
int profile_table_row(struct profile_table *table, int parent, const char *name, enum profile_unit unit,
                      const char *way);
/** One more call. */
void profile_table_add(struct profile_table *table, int row, double ms, double amount);
/** Numbers become 0; the rows stay. */
void profile_table_clear(struct profile_table *table);
void profile_table_fini(struct profile_table *table);

/** Spans by their time, longest first, the parts of each below it. Times are of all steps. Shares are of the
 * steps' time on the device, where streams run at the same time: they may add up to more than 1. Nothing is
 * printed of a table without a call. */
void profile_table_print(const struct profile_table *table, const struct profile_head *head, FILE *out);

#endif

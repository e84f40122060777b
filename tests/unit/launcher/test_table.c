#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "launcher/table.h"

static const char *cut(const char *text, int columns, enum table_shape shape, bool ascii)
{
    static char cell[TABLE_CELL_BYTES];

    snprintf(cell, sizeof cell, "%s", text);
    table_cut(cell, columns, shape, ascii);
    return cell;
}

static void cuts_to(const char *text, int columns, enum table_shape shape, bool ascii, const char *want)
{
    cr_expect(eq(str, (char *)cut(text, columns, shape, ascii), (char *)want));
}

Test(table, a_cell_is_cut_with_an_ellipsis)
{
    cuts_to("abcdef", 6, TABLE_NAME, false, "abcdef");
    cuts_to("abcdef", 4, TABLE_NAME, false, "abc\u2026");
    cuts_to("abcdef", 4, TABLE_NAME, true, "abc~");
    cuts_to("/runs/tiny", 6, TABLE_PATH, false, "\u2026/tiny");
    cuts_to("/runs/tiny", 6, TABLE_PATH, true, "~/tiny");
    cuts_to("abcdef", 1, TABLE_NAME, true, "~");
    cuts_to("abcdef", 0, TABLE_NAME, true, "");
}

/* A wide character that would stand half outside goes as a whole. */
Test(table, a_cell_is_cut_between_characters_by_their_columns)
{
    cr_assert(eq(int, table_width("\u65e5\u672c\u8a9e"), 6));
    cr_assert(eq(int, table_width("e\u0301"), 1));
    cuts_to("\u65e5\u672c\u8a9e", 6, TABLE_NAME, false, "\u65e5\u672c\u8a9e");
    cuts_to("\u65e5\u672c\u8a9e", 5, TABLE_NAME, false, "\u65e5\u672c\u2026");
    cuts_to("\u65e5\u672c\u8a9e", 4, TABLE_NAME, false, "\u65e5\u2026");
    cuts_to("\u65e5\u672c\u8a9e", 4, TABLE_PATH, false, "\u2026\u8a9e");
    cuts_to("ae\u0301bcd", 4, TABLE_NAME, false, "ae\u0301b\u2026");
}

Test(table, no_length_of_a_text_or_of_a_cut_leaves_its_bounds)
{
    char text[2 * TABLE_CELL_BYTES], cell[TABLE_CELL_BYTES];

    for (size_t n = 0; n < sizeof text; n++) {
        memset(text, n % 3 == 0 ? 0xff : 'x', n);
        text[n] = '\0';
        table_text(cell, text);
        cr_assert(lt(sz, strlen(cell), sizeof cell));
        for (int columns = 0; columns < 5; columns++) {
            table_text(cell, text);
            table_cut(cell, columns, columns % 2 == 0 ? TABLE_NAME : TABLE_PATH, false);
            cr_assert(le(int, table_width(cell), columns));
        }
    }
}

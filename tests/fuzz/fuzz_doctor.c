/*
 * A report of the doctor, as another node sends it, under libFuzzer: refused with words, or printed, and the
 * same again after it was written.
 */
#include "agent/doctor/report.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct doctor_report report = { 0 }, again = { 0 };
    struct fsdp_err err = { 0 };
    FILE *out;
    char *text;

    if (!taken(doctor_report_read(&report, (const char *)data, size, &err), &err))
        return 0;
    text = doctor_report_json(&report);
    never(text == NULL || doctor_report_read(&again, text, strlen(text), &err) != FSDP_OK);
    never(again.n != report.n || doctor_report_worst(&again) != doctor_report_worst(&report));
    out = fopen("/dev/null", "we");
    never(out == NULL);
    doctor_report_print(&again, out);
    fclose(out);
    free(text);
    doctor_report_fini(&report);
    doctor_report_fini(&again);
    return 0;
}

/* What a test may ask of the stand-in for cuDNN, in addition to cuDNN's own functions. */
#ifndef EMULATED_CUDNN_STANDIN_H
#define EMULATED_CUDNN_STANDIN_H

/** The n-th call from now on that returns a status fails, that one alone; 0: none. */
void cudnn_standin_fail(int n);
/** Calls that returned a status since cudnn_standin_fail(). */
int cudnn_standin_calls(void);
/** Handles and descriptors that were made and not destroyed. */
int cudnn_standin_live(void);
/** Graphs that ran to their end. */
int cudnn_standin_runs(void);
/** Plans that were made. */
int cudnn_standin_plans(void);
/**
 * The first n engines refuse to be planned; then those that want more workspace than is sensible, m of them.
 */
void cudnn_standin_refuse(int n, int m);

#endif

/* How a scheduler written in C, C++ or Cython is given to plait.
 *
 * Fill in a plait_scheduler and hand it over in a PyCapsule named PLAIT_SCHEDULER_CAPSULE, or
 * export it from a shared library under a name of your choice; see plait.NativeScheduler. `pick` is
 * called by any worker thread at any time, several at once, without the interpreter's lock, each
 * time a worker has ended its slice: it must be fast and safe to call from several threads, and
 * must not throw. The stages are those of one job in pipeline order; the numbers are estimates.
 */
#ifndef PLAIT_SCHEDULER_ABI_H
#define PLAIT_SCHEDULER_ABI_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLAIT_SCHEDULER_ABI 1
#define PLAIT_SCHEDULER_CAPSULE "plait.scheduler"

typedef struct plait_stage {
  uint8_t ready;  /* has work and room, takes one more worker; 0: a worker would find nothing */
  uint8_t source; /* reads records in */
  uint8_t python; /* needs the interpreter */
  uint8_t reserved[5];
  int64_t workers;        /* at work in it now */
  double waiting;         /* records in its worklist */
  double waiting_output;  /* records in the worklists behind it */
  double room_output;     /* records that the fullest worklist behind it still takes */
  double cost_ns;         /* worker time per record */
  double selectivity;     /* records out for each record in */
  double selectivity_all; /* the same since the sources */
  double running_ns;      /* worker time since the start */
  double idle_ns;         /* since a worker last turned to it */
  double age_ns;          /* of the record in front, since it came into the job; 0: none waits */
} plait_stage;

typedef struct plait_scheduler {
  uint32_t abi; /* PLAIT_SCHEDULER_ABI */
  uint32_t reserved;
  const char* name; /* for errors and explain */
  /* The number of a stage below `count`, or -1 for none; any other answer ends the job. */
  int64_t (*pick)(void* context, const plait_stage* stages, size_t count, double slice_ns);
  void* context; /* given to pick; must live as long as any job that uses the scheduler */
} plait_scheduler;

#ifdef __cplusplus
}
#endif

#endif

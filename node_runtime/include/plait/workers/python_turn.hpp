// PythonTurn: the right to run Python code, held while it lives.
//
// At most one worker of an engine has it, so that no second one waits for the interpreter's lock: a
// worker that does not get it does something else. Any worker may ask at any time; asking never
// waits. When the turn ends, the crews that may have missed it are woken.
#pragma once

#include <atomic>

#include "plait/workers/bell.hpp"
#include "plait/workers/shared.hpp"
#include "plait/workers/worker.hpp"

namespace plait {

// Holds the right to run Python code, if a stage needs it and no worker has it. Meanwhile the
// thread has another name: threads that a library starts from there keep it, and are not taken for
// workers.
class PythonTurn {
 public:
  PythonTurn(Worker& worker, bool needed) : worker_(worker), needed_(needed) {
    // Acquire and release pair with each other from holder to holder.
    got_ = !needed || !worker.shared.python_busy.exchange(true, std::memory_order_acquire);
    if (needed_ && got_) name_thread("outside");
  }
  ~PythonTurn() {
    if (!needed_ || !got_) return;
    name_thread(worker_.name.c_str());
    worker_.shared.python_busy.store(false, std::memory_order_release);
    for (Bell* bell : worker_.shared.python_bells) {
      if (bell != worker_.bell) bell->ring();
    }
  }
  explicit operator bool() const { return got_; }

 private:
  Worker& worker_;
  const bool needed_;
  bool got_;
};

}  // namespace plait

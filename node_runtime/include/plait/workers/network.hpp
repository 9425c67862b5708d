// Network: what the engine's workers need of the links to other nodes: they do the input and output
// themselves, so that a node needs no more threads than it has workers.
#pragma once

#include <cstdint>

namespace plait {

class Network {
 public:
  virtual ~Network() = default;
  // Moves what can be moved and waits at most so long for more; at once false if another worker is
  // at it.
  virtual bool poll(int64_t timeout_ns) = 0;
  // Ends a waiting poll, or the next one, at once.
  virtual void wake() = 0;
  // Nobody needs this node's answers any more.
  virtual bool closed() const = 0;
};

}  // namespace plait

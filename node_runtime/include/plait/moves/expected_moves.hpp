// ExpectedMoves: what is known of bins before they move: which come here, and how large they are.
//
// All nodes that take part in a migration get its plan before its first layout. A node that gives
// bins away sends its word to those who get them: how many keys nearly every bin of its stays
// below. A node that gets bins makes memory ready for all of them at once, when it has the words of
// all who send; a word may come before the plan. Any thread may call anything, under a short mutex;
// nothing waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <tuple>
#include <utility>
#include <vector>

#include "plait/moves/state_moves.hpp"

namespace plait {

struct PlannedMove {
  uint32_t bin = 0, from = 0, to = 0;
};

class ExpectedMoves {
 public:
  // Before the start.
  void add(MovingState& state) { states_.push_back(&state); }

  // The moves of a plan; plans are numbered ascending, and one that is known changes nothing.
  // Returns those who wait for the word of this node.
  std::vector<uint32_t> plan(uint64_t number, const std::vector<PlannedMove>& moves,
                             uint32_t here) {
    std::lock_guard<std::mutex> hold(lock_);
    std::vector<uint32_t> targets, senders;
    if (number <= number_) return targets;
    number_ = number;
    coming_.clear();
    for (const PlannedMove& m : moves) {
      if (m.from == here && m.to != here) targets.push_back(m.to);
      if (m.to != here || m.from == here) continue;
      coming_.push_back(m.bin);
      senders.push_back(m.from);
    }
    senders_ = distinct(std::move(senders));
    passed_on_ = false;
    words_.erase(words_.begin(), words_.lower_bound({number, 0, 0}));
    look();
    return distinct(std::move(targets));
  }

  // What this node has to say of one of its states: operator and keys.
  std::vector<std::pair<uint32_t, uint64_t>> own_words() const {
    std::vector<std::pair<uint32_t, uint64_t>> words;
    for (const MovingState* s : states_) words.emplace_back(s->state_op(), s->keys_of_a_bin());
    return words;
  }

  void word(uint32_t from, uint64_t number, uint32_t op, uint64_t keys) {
    std::lock_guard<std::mutex> hold(lock_);
    if (number < number_ || passed_on_of(number)) return;
    words_[{number, from, op}] = keys;
    look();
  }

  // The last plan for whose bins memory is made ready in all lanes: mapped, and handed on to be
  // populated.
  uint64_t ready() {
    std::lock_guard<std::mutex> hold(lock_);
    const bool all = passed_on_ && std::all_of(states_.begin(), states_.end(),
                                               [](const MovingState* s) { return s->ready(); });
    if (all) ready_ = number_;
    return ready_;
  }

 private:
  using Word = std::tuple<uint64_t, uint32_t, uint32_t>;  // plan, sender, operator

  static std::vector<uint32_t> distinct(std::vector<uint32_t> ranks) {
    std::sort(ranks.begin(), ranks.end());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    return ranks;
  }
  bool passed_on_of(uint64_t number) const { return number == number_ && passed_on_; }

  // Hands the plan on to the states, once, when all words are there.
  void look() {
    if (passed_on_) return;
    std::vector<uint64_t> most(states_.size(), 0);
    for (size_t i = 0; i < states_.size(); ++i) {
      for (uint32_t sender : senders_) {
        const auto found = words_.find({number_, sender, states_[i]->state_op()});
        if (found == words_.end()) return;
        most[i] = std::max(most[i], found->second);
      }
    }
    passed_on_ = true;
    for (size_t i = 0; i < states_.size(); ++i) {
      states_[i]->expect(most[i] ? coming_ : std::vector<uint32_t>(), most[i]);
    }
  }

  std::mutex lock_;
  std::vector<MovingState*> states_;
  uint64_t number_ = 0, ready_ = 0;
  std::vector<uint32_t> coming_, senders_;  // bins of the plan that come here, and from whom
  bool passed_on_ = true;                   // the states know of the plan
  std::map<Word, uint64_t> words_;          // of this plan or a later one
};

}  // namespace plait

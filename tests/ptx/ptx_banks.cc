/* ptx_banks.cc: the lanes of a warp come to an instruction one after another; what they do the n-th
 * time that each comes there is one access of the warp.
 */
#include "ptx_banks.h"
#include <algorithm>
#include <unordered_map>

namespace ptx {

enum { LANES = 32, BANKS = 32, BANK_BYTES = 4 };

struct Access {
  uint32_t lanes, size, address[LANES];
};

/* The accesses of a warp by one instruction, and how often each of its lanes was there. */
struct Place {
  uint32_t visits[LANES] = {};
  std::vector<Access> all;
};
static std::unordered_map<uint64_t, Place> places;

/* The most words that lanes `first` to `last` want of one bank; 0 when none of them is there. */
static unsigned words_of_a_bank(const Access &a, unsigned first, unsigned last) {
  std::vector<uint32_t> words[BANKS];
  unsigned most = 0;
  for (unsigned lane = first; lane < last; lane++) {
    if (!(a.lanes >> lane & 1)) continue;
    for (uint32_t w = a.address[lane] / BANK_BYTES; w * BANK_BYTES < a.address[lane] + a.size;
         w++) {
      std::vector<uint32_t> &bank = words[w % BANKS];
      if (std::find(bank.begin(), bank.end(), w) == bank.end()) bank.push_back(w);
      most = std::max(most, (unsigned)bank.size());
    }
  }
  return most;
}

void banks_begin() {
  places.clear();
}

void banks_note(const Instruction &i, uint32_t thread, uint32_t address, uint32_t size) {
  const uint32_t lane = thread % LANES;
  const uint64_t number = (uint64_t)(&i - i.program->code.data());
  Place &place = places[number << 8 | thread / LANES];
  const uint32_t visit = place.visits[lane]++;
  if (visit >= place.all.size()) place.all.resize(visit + 1);
  Access &access = place.all[visit];
  access.lanes |= 1u << lane;
  access.size = size;
  access.address[lane] = address;
}

BankCount banks_end() {
  BankCount count = {0, 0};
  for (const auto &place : places)
    for (const Access &access : place.second.all) {
      const unsigned together = access.size <= 4 ? 32 : access.size <= 8 ? 16 : 8;
      for (unsigned first = 0; first < LANES; first += together) {
        const unsigned words = words_of_a_bank(access, first, first + together);
        count.wavefronts += words;
        count.ideal += words > 0;
      }
    }
  return count;
}

} // namespace ptx

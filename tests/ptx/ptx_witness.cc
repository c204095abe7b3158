/* ptx_witness.cc: the second witness: what stands between a launch and the emulator in the programs
 * of `make ptx`.
 *
 * A launch runs on the emulator; its result is kept, device and pinned memory put back, and the PTX
 * of the same kernel run over it. Then the two results are compared, and the emulator's stays. Bits
 * must be equal, but for the kernels of a short list, whose words may differ by rounding. With
 * PTX_ALONE=1 the PTX runs in the place of the emulator, and the test's own checks are the judge.
 *
 * Other settings: PTX_CODE, the folder of modules, "code" beside the program; PTX_LOG, a file that
 * gets a line for each launch; PTX_STEPS, the instructions of threads after which a kernel's
 * further launches in this process are the emulator's alone; PTX_PARTIAL=1: those of kernels that
 * no module has are, too.
 */
#include "emu_runtime.h"
#include "ptx_run.h"
#include "tests/cuda/check.h"
#include <dirent.h>
#include <dlfcn.h>
#include <string.h>
#include <unistd.h>
#include <unordered_map>

namespace ptx {

enum { MEMORY_MAX = 64 << 20, THREADS_MAX = 1 << 18, STEPS_DEFAULT = 5000000 };

static std::string setting(const char *name, const std::string &otherwise) {
  const char *text = getenv(name);
  return text ? text : otherwise;
}

static std::string folder_of_program() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof path - 1);
  const std::string name(path, size > 0 ? (size_t)size : 0);
  return name.substr(0, name.rfind('/'));
}

/* Kernels whose words may differ by rounding, and why. */
static const struct Approximate {
  const char *kernel, *why;
} approximate[] = {
    {"activation_kernel", "erff, tanhf and expf of the toolkit"},
    {"choose_kernel", "expf of the toolkit"},
    {"decode_kernel", "tanhf of a capped logit"},
    {"expert_skinny_kernel", "expf of the toolkit"},
    {"expert_tiled_kernel", "expf of the toolkit"},
    {"gate_kernel", "expf of the toolkit"},
    {"place_kernel", "expf of the toolkit"},
    {"prefill_kernel", "tanhf of a capped logit"},
    {"recur_kernel", "expf and log1pf of the toolkit"},
    {"rope_store_kernel", "multiply and add in one"},
    {"rope_table_kernel", "sinf and cosf of the toolkit"},
    {"sample_kernel", "expf and log of the toolkit"},
    {"skinny_kernel", "activations and bias in one step"},
    {"tiled_kernel", "activations and bias in one step"},
};

/* Null where bits must be equal. The name is mangled: its length and the name stand first. */
static const char *why_close(const std::string &name) {
  for (const Approximate &a : approximate) {
    const std::string plain = a.kernel;
    if (name.compare(0, plain.size() + 4, "_Z" + std::to_string(plain.size()) + plain) == 0)
      return a.why;
  }
  return nullptr;
}

/* ---- Programs ---- */

struct Place {
  const Module *module;
  size_t number;
};

static std::unordered_map<std::string, Place> read_folder(const std::string &folder) {
  std::unordered_map<std::string, Place> places;
  DIR *d = opendir(folder.c_str());
  if (!d) throw Error(folder, 0, "no such folder of PTX");
  while (const dirent *e = readdir(d)) {
    const std::string name = e->d_name;
    if (name.size() < 4 || name.substr(name.size() - 4) != ".ptx") continue;
    const Module *m = new Module(read_module_file(folder + "/" + name));
    for (size_t i = 0; i < m->names.size(); i++) places[m->names[i]] = {m, i};
  }
  closedir(d);
  return places;
}

/* The program of an entry by its mangled name; null when no module of the folder has it. */
static const Program *find_program(const std::string &name) {
  static const auto *places = new std::unordered_map<std::string, Place>(
      read_folder(setting("PTX_CODE", folder_of_program() + "/code")));
  static auto *made = new std::unordered_map<std::string, const Program *>;
  const auto found = made->find(name);
  if (found != made->end()) return found->second;
  const auto place = places->find(name);
  const Program *p = nullptr;
  if (place != places->end()) {
    const Module &m = *place->second.module;
    p = make_program(m, read_entry(m, place->second.number));
  }
  return (*made)[name] = p;
}

/* ---- Memory ---- */

typedef std::vector<std::pair<uintptr_t, size_t>> Ranges; /* address, bytes */
typedef std::vector<std::vector<char>> Snapshot;          /* of each range, in order */

/* All memory that a kernel may write to. */
static Ranges ranges_of_memory() {
  Ranges r(emu::runtime().device.begin(), emu::runtime().device.end());
  r.insert(r.end(), emu::runtime().pinned.begin(), emu::runtime().pinned.end());
  return r;
}

static bool is_small(const emu::LaunchShape &s) {
  size_t sum = 0;
  const uint64_t threads = (uint64_t)s.grid.x * s.grid.y * s.grid.z * s.block.x * s.block.y;
  if (threads > THREADS_MAX) return false;
  for (const auto &range : ranges_of_memory()) sum += range.second;
  return sum <= MEMORY_MAX;
}

static Snapshot take_snapshot() {
  Snapshot s;
  for (const auto &range : ranges_of_memory()) {
    const char *p = reinterpret_cast<const char *>(range.first);
    s.emplace_back(p, p + range.second);
  }
  return s;
}

static void put_back(const Snapshot &s) {
  size_t number = 0;
  for (const auto &range : ranges_of_memory()) {
    const std::vector<char> &bytes = s[number++];
    if (!bytes.empty()) memcpy(reinterpret_cast<char *>(range.first), bytes.data(), bytes.size());
  }
}

struct Difference {
  size_t words = 0, close = 0; /* that differ, and those that differ by rounding */
  std::string first;           /* of those that are not close, else of all */
};

static bool is_near(float a, float b, float relative, float absolute) {
  return std::fabs(a - b) <= absolute + relative * std::max(std::fabs(a), std::fabs(b));
}

/* Whole numbers look like fp32 that are tiny and not 0. */
static bool is_tiny(uint32_t word) {
  return word != 0 && (word & 0x7f800000u) == 0;
}

/* The same numbers but for rounding, as fp32 or as two of 16 bits. A word whose upper half is 0 is
 * a whole number. */
static bool is_close(uint32_t a, uint32_t b) {
  const float x = emu::bit_cast<float>(a), y = emu::bit_cast<float>(b);
  if (!is_tiny(a) && !is_tiny(b) && is_near(x, y, 0x1p-16f, 0x1p-16f)) return true;
  bool as_bf16 = (a | b) >> 16 != 0, as_f16 = as_bf16;
  for (int at = 0; at < 32; at += 16) {
    const uint16_t u = (uint16_t)(a >> at), v = (uint16_t)(b >> at);
    as_bf16 = as_bf16 &&
              is_near(emu::bf16_bits_to_float(u), emu::bf16_bits_to_float(v), 0x1p-7f, 0x1p-20f);
    as_f16 = as_f16 &&
             is_near(emu::half_bits_to_float(u), emu::half_bits_to_float(v), 0x1p-10f, 0x1p-20f);
  }
  return as_bf16 || as_f16;
}

/* Eight bytes as one double. */
static bool is_close_double(const char *a, const char *b) {
  double x, y;
  memcpy(&x, a, sizeof x);
  memcpy(&y, b, sizeof y);
  return std::fabs(x) > 1e-30 && std::fabs(x - y) <= 0x1p-20 * std::fabs(x);
}

static Difference compare(const Snapshot &expected) {
  Difference d;
  size_t number = 0;
  for (const auto &range : ranges_of_memory()) {
    const std::vector<char> &bytes = expected[number++];
    const char *p = reinterpret_cast<const char *>(range.first);
    if (bytes.empty() || !memcmp(p, bytes.data(), bytes.size())) continue;
    for (size_t at = 0; at < bytes.size(); at += 4) {
      const size_t size = std::min((size_t)4, bytes.size() - at);
      uint32_t was = 0, is = 0;
      memcpy(&was, &bytes[at], size);
      memcpy(&is, p + at, size);
      if (was == is) continue;
      const size_t pair = at & ~(size_t)7;
      const bool near = is_close(was, is) ||
                        (pair + 8 <= bytes.size() && is_close_double(&bytes[pair], p + pair));
      if (d.first.empty() || (!near && d.words == d.close)) {
        char text[120];
        snprintf(text, sizeof text, "byte %zu of %zu of allocation %zu: %08x, emulated %08x", at,
                 bytes.size(), number - 1, is, was);
        d.first = text;
      }
      d.words++;
      d.close += near;
    }
  }
  return d;
}

/* ---- Launches ---- */

static void log_line(const std::string &name, const emu::LaunchShape &shape, const char *state,
                     const Work &work, const std::string &more) {
  static FILE *log = [] {
    const std::string path = setting("PTX_LOG", "");
    return path.empty() ? nullptr : fopen(path.c_str(), "a");
  }();
  if (!log) return;
  fprintf(log, "%s\t%s\t%llu\t%s\t%u\t%zu\t%llu\t%llu\n", name.c_str(), state,
          (unsigned long long)work.steps, more.c_str(),
          shape.block.x * shape.block.y * shape.block.z, shape.shared_bytes,
          (unsigned long long)work.banks.wavefronts, (unsigned long long)work.banks.ideal);
  fflush(log);
}

static std::string name_of(const void *kernel) {
  Dl_info info;
  if (!dladdr(kernel, &info) || info.dli_saddr != kernel || !info.dli_sname) return "";
  return info.dli_sname;
}

/* Instructions that each kernel has taken in this process. */
static std::unordered_map<std::string, uint64_t> &steps_taken() {
  static auto *all = new std::unordered_map<std::string, uint64_t>;
  return *all;
}

/* The first launch a kernel always gets. */
static bool has_had_enough(const std::string &name) {
  static const uint64_t most =
      strtoull(setting("PTX_STEPS", std::to_string(STEPS_DEFAULT)).c_str(), nullptr, 0);
  return steps_taken()[name] >= most;
}

static bool compare_launch(const emu::Launch &launch, const Program &program) {
  const Snapshot before = take_snapshot();
  if (!emu::run_grid(launch)) return false;
  const Snapshot expected = take_snapshot();
  put_back(before);
  Work work;
  const bool good = run_program(program, launch, &work);
  steps_taken()[program.name] += work.steps;
  const Difference d = good ? compare(expected) : Difference();
  const char *why = why_close(program.name);
  const bool same = good && d.words == (why ? d.close : 0);
  std::string text = d.first;
  if (d.words)
    text += ", " + std::to_string(d.words) + " words differ, " + std::to_string(d.close) +
            " by rounding";
  if (d.words && same) text = why;
  log_line(program.name, launch.shape,
           !good     ? "fault"
           : !same   ? "differs"
           : d.words ? "close"
                     : "bits",
           work, good ? text : emu::fault_text());
  check_that(same, "ptx of " + program.name + ": " + (good ? text : "a fault"));
  put_back(expected);
  return good;
}

static bool run_alone(const emu::Launch &launch, const Program &program) {
  Work work;
  const bool good = run_program(program, launch, &work);
  log_line(program.name, launch.shape, good ? "alone" : "fault", work,
           good ? "" : emu::fault_text());
  return good;
}

static bool run_twice(const emu::Launch &launch) {
  static const bool is_alone = setting("PTX_ALONE", "") == "1";
  const std::string name = name_of(launch.kernel);
  try {
    const Program *program = name.empty() ? nullptr : find_program(name);
    static const bool is_partial = setting("PTX_PARTIAL", "") == "1";
    if (!program && is_partial) return emu::run_grid(launch);
    if (!program) {
      check_that(false, std::string("ptx of ") + launch.shape.name + " (" + name + "): not found");
      return emu::run_grid(launch);
    }
    const bool small = is_small(launch.shape);
    if (is_alone) return run_alone(launch, *program);
    if (small && !has_had_enough(name)) return compare_launch(launch, *program);
    log_line(name, launch.shape, small ? "enough" : "large", {}, "");
  } catch (const Error &e) {
    log_line(name, launch.shape, "unknown", {}, e.what());
    check_that(false, std::string("ptx of ") + launch.shape.name + ": " + e.what());
  }
  return emu::run_grid(launch);
}

static const bool is_installed = (emu::launch_runner = run_twice, true);

} // namespace ptx

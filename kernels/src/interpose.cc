// Puts functions of ours in the place of posix_memalign and free, for the calls of one library alone.
//
// A library calls functions of others through a table of addresses that the loader fills in. Where a runtime takes no
// allocator, that table is where its memory can be planned: nothing else in the process is touched.
#include "block.h"

#if defined(__linux__) && defined(__LP64__)
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <vector>

namespace fuseline {
namespace {

struct Module {
  const void* base = nullptr;
  const ElfW(Phdr)* headers = nullptr;
  size_t count = 0;
};

int matching(dl_phdr_info* info, size_t, void* wanted) {
  auto& module = *static_cast<Module*>(wanted);
  if (reinterpret_cast<const void*>(info->dlpi_addr) != module.base) return 0;
  module.headers = info->dlpi_phdr;
  module.count = info->dlpi_phnum;
  return 1;
}

// The entries of a library's table that hold a function's address.
class Table {
 public:
  explicit Table(const Module& module) : module_(module) {
    for (size_t i = 0; i < module.count; ++i)
      if (module.headers[i].p_type == PT_DYNAMIC) read(at<const ElfW(Dyn)>(module.headers[i].p_vaddr));
  }

  std::vector<void**> entries(const char* function) const {
    std::vector<void**> found;
    for (const auto& part : parts_)
      for (size_t i = 0; i < part.bytes / sizeof(ElfW(Rela)); ++i) {
        const ElfW(Rela)& entry = part.begin[i];
        const auto symbol = ELF64_R_SYM(entry.r_info);
        if (symbol == 0 || std::strcmp(names_ + symbols_[symbol].st_name, function) != 0) continue;
        if (symbols_[symbol].st_shndx == SHN_UNDEF && entry.r_addend == 0)
          found.push_back(at<void*>(entry.r_offset));
      }
    return found;
  }

  bool write(void** entry, void* address) const {
    const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    auto* begin = reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(entry) / page * page);
    if (mprotect(begin, page, PROT_READ | PROT_WRITE) != 0) return false;
    __atomic_store_n(entry, address, __ATOMIC_RELEASE);
    if (is_read_only(entry)) mprotect(begin, page, PROT_READ);
    return true;
  }

 private:
  struct Part {
    const ElfW(Rela) * begin;
    size_t bytes;
  };

  template <class T>
  T* at(uintptr_t address) const {
    const auto base = reinterpret_cast<uintptr_t>(module_.base);
    return reinterpret_cast<T*>(address < base ? base + address : address);  // some loaders have added it already
  }

  void read(const ElfW(Dyn) * entry) {
    Part imported{nullptr, 0}, other{nullptr, 0};
    for (; entry->d_tag != DT_NULL; ++entry) {
      if (entry->d_tag == DT_SYMTAB) symbols_ = at<const ElfW(Sym)>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_STRTAB) names_ = at<const char>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_JMPREL) imported.begin = at<const ElfW(Rela)>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_PLTRELSZ) imported.bytes = entry->d_un.d_val;
      if (entry->d_tag == DT_RELA) other.begin = at<const ElfW(Rela)>(entry->d_un.d_ptr);
      if (entry->d_tag == DT_RELASZ) other.bytes = entry->d_un.d_val;
    }
    for (const Part& part : {imported, other})
      if (part.begin != nullptr && symbols_ != nullptr && names_ != nullptr) parts_.push_back(part);
  }

  bool is_read_only(void** entry) const {
    for (size_t i = 0; i < module_.count; ++i) {
      const auto& header = module_.headers[i];
      const char* begin = at<const char>(header.p_vaddr);
      const auto* place = reinterpret_cast<const char*>(entry);
      if (header.p_type == PT_GNU_RELRO && place >= begin && place < begin + header.p_memsz) return true;
    }
    return false;
  }

  Module module_;
  const ElfW(Sym) * symbols_ = nullptr;
  const char* names_ = nullptr;
  std::vector<Part> parts_;
};

// What all entries hold; nullptr where they differ, or one still waits for its first call.
void* content(const std::vector<void**>& entries, const char* function) {
  void* found = entries.empty() ? nullptr : *entries.front();
  for (void** entry : entries)
    if (*entry != found) return nullptr;
  Dl_info info{};
  const bool resolved = found != nullptr && dladdr(found, &info) != 0 && info.dli_sname != nullptr;
  return resolved && std::strstr(info.dli_sname, function) != nullptr ? found : nullptr;
}

}  // namespace

std::string interpose(const void* inside, TakeMemory take, GiveBack give_back, TakeMemory* taken,
                      GiveBack* given_back) {
  Dl_info info{};
  if (dladdr(inside, &info) == 0) return "the runtime's library was not found";
  Module module;
  module.base = info.dli_fbase;
  dl_iterate_phdr(matching, &module);
  const Table table(module);
  const auto takers = table.entries("posix_memalign"), givers = table.entries("free");
  void* taking = content(takers, "memalign");
  void* giving = content(givers, "free");
  if (taking == nullptr || giving == nullptr) return "the runtime's library takes its memory elsewhere";
  // The functions stay in the table for good, so their library must not go.
  if (dladdr(reinterpret_cast<void*>(give_back), &info) == 0 ||
      dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE) == nullptr)
    return "this library cannot be kept";
  *taken = reinterpret_cast<TakeMemory>(taking);
  *given_back = reinterpret_cast<GiveBack>(giving);
  // First what gives back: it takes what either gave.
  for (void** entry : givers)
    if (!table.write(entry, reinterpret_cast<void*>(give_back))) return "the table of its functions is locked";
  for (void** entry : takers)
    if (!table.write(entry, reinterpret_cast<void*>(take))) return "the table of its functions is locked";
  return "";
}

}  // namespace fuseline

#else

namespace fuseline {

std::string interpose(const void*, TakeMemory, GiveBack, TakeMemory*, GiveBack*) {
  return "the runtime takes no allocator, and on this system none can be put under it";
}

}  // namespace fuseline

#endif

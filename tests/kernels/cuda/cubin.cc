// SPDX-License-Identifier: Apache-2.0

#include "tests/kernels/cuda/cubin.h"

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <iterator>

namespace quire::cuda {
namespace {

constexpr int kElfOfCuda = 190;  // e_machine
// Attributes in .nv.info: 4 (the value is a pair of words), the attribute, and the size 8; then symbol and value.
constexpr uint32_t kRegisterCount = 0x00082f04;
constexpr uint32_t kFrameSize = 0x00081104;
constexpr size_t kInstructionBytes = 16;
const std::string kCodeSection = ".text.";

template <typename T>
T Read(const std::string& bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

// An ELF file that begins at offset `start` of `bytes`.
class Cubin {
 public:
  Cubin(const std::string& bytes, size_t start)
      : bytes_(bytes), start_(start), header_(Read<Elf64_Ehdr>(bytes, start)) {
    for (int i = 0; i < header_.e_shnum; ++i) {
      sections_.push_back(Read<Elf64_Shdr>(bytes, start + header_.e_shoff + i * sizeof(Elf64_Shdr)));
    }
  }

  std::vector<MachineCode> Kernels() const {
    std::map<std::string, MachineCode> kernels;
    for (const Elf64_Shdr& section : sections_) {
      const std::string name = String(sections_[header_.e_shstrndx], section.sh_name);
      if (name.rfind(kCodeSection, 0) == 0) CountInstructions(section, &kernels[name.substr(kCodeSection.size())]);
    }
    for (const Elf64_Shdr& section : sections_) {
      if (String(sections_[header_.e_shstrndx], section.sh_name) == ".nv.info") ReadAttributes(section, &kernels);
    }
    std::vector<MachineCode> result;
    for (auto& [symbol, kernel] : kernels) {
      kernel.symbol = symbol;
      kernel.architecture = header_.e_flags >> 8 & 0xff;
      result.push_back(kernel);
    }
    return result;
  }

 private:
  std::string String(const Elf64_Shdr& table, size_t at) const {
    return bytes_.c_str() + start_ + table.sh_offset + at;
  }

  void CountInstructions(const Elf64_Shdr& section, MachineCode* kernel) const {
    for (size_t at = 0; at + kInstructionBytes <= section.sh_size; at += kInstructionBytes) {
      const uint64_t low = Read<uint64_t>(bytes_, start_ + section.sh_offset + at);
      const uint64_t high = Read<uint64_t>(bytes_, start_ + section.sh_offset + at + 8);
      const int opcode = low & 0xfff, size = high >> 9 & 7;  // 0 to 3: bytes and half words. 4 to 6: 4, 8, 16 bytes.
      const bool has_size = opcode == kLdg || opcode == kStg || opcode == kLdgsts;
      const bool is_access = has_size || opcode == kUblkcp;
      if (is_access && kernel->Count(kAcqbulk) == 0) ++kernel->accesses_before_wait;
      ++kernel->counts[{opcode, has_size ? 1 << size >> 2 : 0}];
      kernel->opcodes.push_back(opcode);
    }
  }

  void ReadAttributes(const Elf64_Shdr& section, std::map<std::string, MachineCode>* kernels) const {
    const Elf64_Shdr& symbols = SymbolTable();
    for (size_t at = start_ + section.sh_offset; at + 12 <= start_ + section.sh_offset + section.sh_size; at += 12) {
      const uint32_t attribute = Read<uint32_t>(bytes_, at), value = Read<uint32_t>(bytes_, at + 8);
      const auto symbol =
          Read<Elf64_Sym>(bytes_, start_ + symbols.sh_offset + Read<uint32_t>(bytes_, at + 4) * sizeof(Elf64_Sym));
      const auto kernel = kernels->find(String(sections_[symbols.sh_link], symbol.st_name));
      if (kernel == kernels->end()) continue;
      if (attribute == kRegisterCount) kernel->second.registers = int(value);
      if (attribute == kFrameSize) kernel->second.stack_bytes = int(value);
    }
  }

  const Elf64_Shdr& SymbolTable() const {
    size_t i = 0;
    while (i + 1 < sections_.size() && sections_[i].sh_type != SHT_SYMTAB) ++i;
    return sections_[i];
  }

  const std::string& bytes_;
  size_t start_;
  Elf64_Ehdr header_;
  std::vector<Elf64_Shdr> sections_;
};

}  // namespace

int MachineCode::Count(Opcode opcode) const {
  int count = 0;
  for (const auto& [key, number] : counts) count += key.first == opcode ? number : 0;
  return count;
}

int MachineCode::num_instructions() const {
  int count = 0;
  for (const auto& [key, number] : counts) count += number;
  return count;
}

int MachineCode::Count(Opcode opcode, int bytes) const {
  const auto it = counts.find({opcode, bytes});
  return it == counts.end() ? 0 : it->second;
}

std::vector<MachineCode> ReadMachineCode(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::vector<MachineCode> all;
  const std::string mark = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64};
  for (size_t at = bytes.find(mark); at != std::string::npos; at = bytes.find(mark, at + 1)) {
    if (at + sizeof(Elf64_Ehdr) > bytes.size() || Read<Elf64_Ehdr>(bytes, at).e_machine != kElfOfCuda) continue;
    for (MachineCode& kernel : Cubin(bytes, at).Kernels()) all.push_back(std::move(kernel));
  }
  return all;
}

}  // namespace quire::cuda

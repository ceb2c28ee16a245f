#include "runtime/files/npy.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"

namespace gcomp::runtime {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are copied as they lie in memory");

constexpr std::string_view kNpyMagic("\x93NUMPY", 6);
constexpr std::size_t kLargestNpyHeader = 1 << 16;
constexpr std::uintmax_t kLargestNpyFile = std::uintmax_t{1} << 40;

struct Code {
  std::string_view letters;  // NumPy's kind and size
  DType dtype;
};
constexpr Code kCodes[] = {{"f8", DType::f64}, {"f4", DType::f32}, {"f2", DType::f16},    {"V2", DType::bf16}, {"i1", DType::i8},
                           {"i2", DType::i16}, {"i4", DType::i32}, {"i8", DType::i64},    {"u1", DType::u8},   {"u2", DType::u16},
                           {"u4", DType::u32}, {"u8", DType::u64}, {"b1", DType::boolean}};

/// Reads the Python literal of a header: a dict of strings to a string, a bool and a tuple of integers.
class HeaderText {
 public:
  explicit HeaderText(std::string_view text) : rest_(text) {}

  bool accept(char c) {
    skip_blanks();
    if (rest_.empty() || rest_.front() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }
  void expect(char c) { check_user(accept(c), "its header lacks a '", c, "'"); }
  bool at_end() {
    skip_blanks();
    return rest_.empty();
  }

  std::string_view string() {
    check_user(!accept('['), "a record dtype, wanted plain numbers");
    const bool single = accept('\'');
    if (!single) expect('"');
    const std::size_t end = rest_.find(single ? '\'' : '"');
    check_user(end != rest_.npos, "its header has an unfinished string");
    return take(end + 1).substr(0, end);
  }
  bool boolean() {
    skip_blanks();
    for (std::string_view word : {"True", "False"})
      if (rest_.substr(0, word.size()) == word) return take(word.size()) == "True";
    throw UserError("its header has a fortran_order that is neither True nor False");
  }
  std::int64_t integer() {
    skip_blanks();
    const std::size_t digits = std::min(rest_.find_first_not_of("0123456789"), rest_.size());
    check_user(digits >= 1 && digits <= 18, "its header has a dimension that is no number below 10^18");
    const std::int64_t value = std::stoll(std::string(take(digits)));
    if (!rest_.empty() && rest_.front() == 'L') take(1);  // Python 2 wrote 3L
    return value;
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      check_user(shape.size() < kLargestRank, "more than ", kLargestRank, " dimensions");
      shape.push_back(integer());
      if (accept(',')) continue;
      expect(')');
      break;
    }
    return shape;
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }
  std::string_view take(std::size_t count) {
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_;
};

void read_dtype(std::string_view text, NpyHeader& header) {
  check_user(text.find('O') == text.npos, "an object array (pickled Python), wanted numbers");
  const bool prefixed = !text.empty() && std::string_view("<>|=").find(text.front()) != text.npos;
  header.big_endian = prefixed && text.front() == '>';
  const std::string_view letters = text.substr(prefixed ? 1 : 0);
  const auto* code = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& c) { return c.letters == letters; });
  check_user(code != std::end(kCodes), "dtype '", text,
             "' is not supported, wanted float16, 32, 64, int8 to 64, uint8 to 64 or bool");
  header.type.dtype = code->dtype;
}

void parse_literal(std::string_view literal, NpyHeader& header) {
  HeaderText text(literal);
  bool dtype = false, order = false, shape = false;
  text.expect('{');
  while (!text.accept('}')) {
    const std::string_view key = text.string();
    text.expect(':');
    bool& seen = key == "descr" ? dtype : key == "fortran_order" ? order : shape;
    check_user(&seen != &shape || key == "shape", "its header has an unknown key '", key, "'");
    check_user(!std::exchange(seen, true), "its header has the key '", key, "' twice");
    if (&seen == &dtype) read_dtype(text.string(), header);
    else if (&seen == &order) header.fortran_order = text.boolean();
    else header.type.shape = text.tuple();
    if (text.accept(',')) continue;
    text.expect('}');
    break;
  }
  check_user(text.at_end(), "its header has text after the dict");
  check_user(dtype && order && shape, "its header lacks descr, fortran_order or shape");
}

void reverse_elements(std::span<std::byte> bytes, std::size_t size) {
  for (auto element = bytes.begin(); element != bytes.end(); element += static_cast<std::ptrdiff_t>(size))
    std::reverse(element, element + static_cast<std::ptrdiff_t>(size));
}

/// Stored elements in the machine's byte order; bools become 0 or 1.
void make_native(const NpyHeader& header, std::span<std::byte> elements) {
  if (header.big_endian) reverse_elements(elements, size_of(header.type.dtype));
  if (header.type.dtype == DType::boolean)
    for (std::byte& value : elements) value = std::byte{value != std::byte{0}};
}

/// Reads elements stored first index fastest to where they belong with the last index fastest, a block at a time.
void read_fortran_order(Tensor& tensor, const ReadBytes& read) {
  constexpr std::size_t kBlockBytes = 1 << 16;
  const std::size_t size = size_of(tensor.dtype());
  const Shape& shape = tensor.shape();
  Shape strides(shape.size()), index(shape.size(), 0);
  std::int64_t stride = 1, at = 0;
  for (std::size_t i = shape.size(); i-- > 0; stride *= shape[i]) strides[i] = stride;
  const auto advance = [&] {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      at += strides[i];
      if (++index[i] < shape[i]) return;
      at -= shape[i] * strides[i];
      index[i] = 0;
    }
  };
  std::vector<std::byte> block(kBlockBytes);
  for (std::size_t left = tensor.bytes().size(); left > 0;) {
    const std::span<std::byte> part = std::span(block).first(std::min(left, kBlockBytes));
    read(part);
    for (std::size_t taken = 0; taken < part.size(); taken += size, advance())
      std::memcpy(tensor.data() + static_cast<std::size_t>(at) * size, part.data() + taken, size);
    left -= part.size();
  }
}

}  // namespace

NpyHeader read_npy_header(const ReadBytes& read) {
  std::byte start[8];
  read(start);
  check_user(std::memcmp(start, kNpyMagic.data(), kNpyMagic.size()) == 0,
             "no .npy array: it does not start with NumPy's magic bytes");
  const int version = std::to_integer<int>(start[6]);
  check_user(version >= 1 && version <= 3 && start[7] == std::byte{0}, "a .npy of version ", version, ".",
             std::to_integer<int>(start[7]), ", wanted 1.0, 2.0 or 3.0");
  const std::size_t width = version == 1 ? 2 : 4;
  std::byte stored_length[4] = {};
  read(std::span(stored_length).first(width));
  const auto length = std::bit_cast<std::uint32_t>(stored_length);
  check_user(length <= kLargestNpyHeader, "a header of ", length, " bytes, the limit is ", kLargestNpyHeader);
  std::string literal(length, '\0');
  read(std::as_writable_bytes(std::span(literal)));
  NpyHeader header;
  header.bytes = sizeof(start) + width + length;
  parse_literal(literal, header);
  return header;
}

bool is_row_major(const NpyHeader& header) { return !header.fortran_order || header.type.shape.size() <= 1; }

void read_npy_rows(const NpyHeader& header, const ReadBytes& read, std::span<std::byte> elements) {
  read(elements);
  make_native(header, elements);
}

Tensor read_npy_elements(const NpyHeader& header, const ReadBytes& read) {
  Tensor tensor(header.type);
  if (is_row_major(header)) read(tensor.bytes());
  else read_fortran_order(tensor, read);
  make_native(header, tensor.bytes());
  return tensor;
}

std::string npy_header(const TensorType& type) {
  const auto* code = std::find_if(std::begin(kCodes), std::end(kCodes), [&](const Code& c) { return c.dtype == type.dtype; });
  std::string text =
      concat("{'descr': '", size_of(type.dtype) == 1 ? '|' : '<', code->letters, "', 'fortran_order': False, 'shape': (");
  for (std::size_t i = 0; i < type.shape.size(); ++i) text += concat(i ? ", " : "", type.shape[i]);
  text += type.shape.size() == 1 ? ",), }" : "), }";
  constexpr std::size_t kPrefix = 10;  // magic, version, length
  text.append(63 - (kPrefix + text.size()) % 64, ' ');
  text += '\n';
  check_internal(text.size() <= 0xffff, "npy header of ", text.size(), " bytes");
  std::string header = concat(kNpyMagic, '\1', '\0');
  header += static_cast<char>(text.size() & 0xff);
  header += static_cast<char>(text.size() >> 8);
  return header + text;
}

Tensor read_npy(const std::filesystem::path& path) {
  const std::vector<std::byte> bytes = read_file(path, kLargestNpyFile);
  std::span<const std::byte> rest = bytes;
  const ReadBytes read = [&](std::span<std::byte> destination) {
    check_user(destination.size() <= rest.size(), "truncated: ", destination.size() - rest.size(), " bytes are missing");
    std::copy_n(rest.begin(), destination.size(), destination.begin());
    rest = rest.subspan(destination.size());
  };
  try {
    const NpyHeader header = read_npy_header(read);
    check_user(static_cast<std::uint64_t>(header.type.bytes()) == rest.size(), "it has ", rest.size(),
               " bytes of elements, wanted ", header.type.bytes(), " for ", to_string(header.type));
    return read_npy_elements(header, read);
  } catch (const UserError& error) { throw UserError(concat("'", path.string(), "': ", error.what())); }
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor) {
  AtomicFile file(path);
  file.write(npy_header(tensor.type()));
  file.write(tensor.bytes());
  file.commit();
}

}  // namespace gcomp::runtime

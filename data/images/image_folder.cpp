// A folder of images: a folder for each class, as torchvision's ImageFolder walks them, or images without classes.
//
// Classes are the folders in it, sorted by the bytes of their names; of a class, the images in it and in folders below, at any
// depth, sorted by folder and then by name. Symbolic links are followed, also out of the folder. Names that begin with a dot are
// left out.
#include <dirent.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/images/encoded_images.h"
#include "data/images/formats.h"
#include "data/random_access_file.h"
#include "ir/base/error.h"

namespace gcomp::data {
namespace {

struct CloseFolder {
  void operator()(DIR* folder) const { ::closedir(folder); }
};
using OpenFolder = std::unique_ptr<DIR, CloseFolder>;

/// Which folder it is, by whatever path.
using FolderIdentity = std::pair<dev_t, ino_t>;

struct FolderListing {
  FolderIdentity identity{};
  std::vector<std::string> folders, images;  ///< sorted by bytes
  std::vector<std::string> others;           ///< files that are no images by name
};

enum class EntryKind : std::uint8_t { folder, file, other };

EntryKind kind_of(const std::string& folder, const dirent& entry) {
  if (entry.d_type == DT_DIR) return EntryKind::folder;
  if (entry.d_type == DT_REG) return EntryKind::file;
  if (entry.d_type != DT_LNK && entry.d_type != DT_UNKNOWN) return EntryKind::other;
  struct stat facts {};
  // What a link leads to that is not there is a file that cannot be read.
  if (::stat(concat(folder, "/", entry.d_name).c_str(), &facts) != 0) return EntryKind::file;
  return S_ISDIR(facts.st_mode) ? EntryKind::folder : S_ISREG(facts.st_mode) ? EntryKind::file : EntryKind::other;
}

FolderListing list_folder(const std::string& path) {
  const OpenFolder folder(::opendir(path.c_str()));
  check_user(folder != nullptr, "'", path, "': cannot be read: ", std::strerror(errno));
  FolderListing listing;
  struct stat facts {};
  if (::fstat(::dirfd(folder.get()), &facts) == 0) listing.identity = {facts.st_dev, facts.st_ino};
  while (const dirent* entry = ::readdir(folder.get())) {
    if (entry->d_name[0] == '.') continue;
    const EntryKind kind = kind_of(path, *entry);
    if (kind == EntryKind::folder) listing.folders.emplace_back(entry->d_name);
    else if (kind == EntryKind::file && has_image_suffix(entry->d_name)) listing.images.emplace_back(entry->d_name);
    else listing.others.emplace_back(entry->d_name);
  }
  std::sort(listing.folders.begin(), listing.folders.end());
  std::sort(listing.images.begin(), listing.images.end());
  return listing;
}

struct ImageFolderOptions {
  std::int64_t max_pixels = kMostPixels;
  bool labels = true;
};

class ImageFolder final : public Source, private EncodedImages {
 public:
  ImageFolder(const std::filesystem::path& path, const ImageFolderOptions& options);

  std::string source() const override { return path_; }
  std::int64_t rows() const override { return static_cast<std::int64_t>(rows_.size()); }
  std::vector<NamedType> arrays() const override;
  void fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const override;
  std::string where(std::int64_t row) const override { return concat("'", path_of(row), "'"); }
  const ImageSource* images(std::size_t array) const override { return array == 0 ? this : nullptr; }
  std::vector<std::string> class_names(std::size_t array) const override {
    return array == 1 ? classes_ : std::vector<std::string>{};
  }
  std::vector<std::string> notes() const override { return notes_; }

 private:
  // A million rows of 16 bytes and their names in one string.
  struct Row {
    std::uint32_t folder, length;
    std::uint64_t name;
  };
  struct Folder {
    std::string path;  ///< relative to path_; "" for itself
    std::int64_t label;
  };
  using Found = std::vector<std::pair<std::string, std::vector<std::string>>>;  // folders below a class and their images

  void add_class(const std::string& name, std::vector<FolderIdentity>& above);
  void walk(const std::string& folder, FolderListing listing, std::vector<FolderIdentity>& above, Found& found);
  void add_folder(const std::string& folder, std::int64_t label, const std::vector<std::string>& images);
  void note_others(const std::string& folder, const FolderListing& listing);
  std::string path_of(std::int64_t row) const;
  void read_encoded(std::int64_t row, std::vector<std::byte>& bytes) const override {
    RandomAccessFile(path_of(row)).read_whole(bytes, kLargestImageFile);
  }
  std::string where_encoded(std::int64_t row) const override { return where(row); }

  std::string path_;
  bool labels_;
  std::vector<std::string> classes_;
  std::vector<Folder> folders_;
  std::vector<Row> rows_;
  std::string names_;
  std::int64_t others_ = 0;
  std::string first_other_;
  std::vector<std::string> notes_;
};

ImageFolder::ImageFolder(const std::filesystem::path& path, const ImageFolderOptions& options)
    : EncodedImages(options.max_pixels), path_(path.string()), labels_(options.labels) {
  check_user(std::filesystem::is_directory(path), "'", path_, "' is no folder");
  const FolderListing top = list_folder(path_);
  std::vector<FolderIdentity> above{top.identity};
  for (const std::string& name : top.folders) add_class(name, above);
  if (top.folders.empty()) {
    labels_ = false;
    add_folder("", 0, top.images);
    note_others("", top);
  } else if (!top.images.empty()) {
    notes_.push_back(concat("'", path_, "': ", top.images.size(), " images beside the class folders were left out, such as '",
                            top.images.front(), "'"));
  }
  check_user(!rows_.empty(), "'", path_, "' holds no images: wanted a folder for each class with .jpg, .jpeg or .png files in it");
  if (others_ > 0)
    notes_.push_back(concat("'", path_, "': ", others_, others_ == 1 ? " file was" : " files were",
                            " left out, being neither .jpg, .jpeg nor .png: such as '", first_other_, "'"));
}

void ImageFolder::add_class(const std::string& name, std::vector<FolderIdentity>& above) {
  Found found;
  walk(name, list_folder(concat(path_, "/", name)), above, found);
  std::sort(found.begin(), found.end());
  const std::size_t before = rows_.size();
  const auto label = static_cast<std::int64_t>(classes_.size());
  for (const auto& [folder, images] : found) add_folder(folder, label, images);
  check_user(rows_.size() > before, "'", path_, "/", name,
             "': the class folder has no images (.jpg, .jpeg or .png); remove it, or put some into it");
  classes_.push_back(name);
}

void ImageFolder::walk(const std::string& folder, FolderListing listing, std::vector<FolderIdentity>& above, Found& found) {
  check_user(std::find(above.begin(), above.end(), listing.identity) == above.end(), "'", path_, "/", folder,
             "': a symbolic link leads back to a folder that it is in");
  note_others(folder, listing);
  above.push_back(listing.identity);
  for (const std::string& name : listing.folders) {
    const std::string below = concat(folder, "/", name);
    walk(below, list_folder(concat(path_, "/", below)), above, found);
  }
  above.pop_back();
  if (!listing.images.empty()) found.emplace_back(folder, std::move(listing.images));
}

void ImageFolder::add_folder(const std::string& folder, std::int64_t label, const std::vector<std::string>& images) {
  for (const std::string& name : images) {
    rows_.push_back(
        {static_cast<std::uint32_t>(folders_.size()), static_cast<std::uint32_t>(name.size()), std::uint64_t{names_.size()}});
    names_ += name;
  }
  folders_.push_back({folder, label});
}

void ImageFolder::note_others(const std::string& folder, const FolderListing& listing) {
  if (others_ == 0 && !listing.others.empty())
    first_other_ = concat(folder, folder.empty() ? "" : "/", *std::min_element(listing.others.begin(), listing.others.end()));
  others_ += static_cast<std::int64_t>(listing.others.size());
}

std::vector<NamedType> ImageFolder::arrays() const {
  std::vector<NamedType> arrays{{"image", image_type()}};
  if (labels_) arrays.push_back({"label", {DType::i64, {}}});
  return arrays;
}

void ImageFolder::fetch(std::size_t array, std::int64_t row, std::span<std::byte> bytes) const {
  check_internal(array == 1, "an image of a size of its own was fetched as an array");
  std::memcpy(bytes.data(), &folders_[rows_[static_cast<std::size_t>(row)].folder].label, sizeof(std::int64_t));
}

std::string ImageFolder::path_of(std::int64_t row) const {
  const Row& at = rows_[static_cast<std::size_t>(row)];
  const std::string& folder = folders_[at.folder].path;
  return concat(path_, "/", folder, folder.empty() ? "" : "/", std::string_view(names_).substr(at.name, at.length));
}

/// Whether there is an image in it, or in a folder in it. Of a large folder only the beginning is looked at.
bool recognises_images(const PathFacts& facts) {
  if (!facts.folder) return false;
  constexpr int kMostLookedAt = 2000;
  int looked_at = 0;
  std::vector<std::string> folders{facts.path.string()};
  for (std::size_t i = 0; i < folders.size(); ++i) {
    const OpenFolder folder(::opendir(folders[i].c_str()));
    while (const dirent* entry = folder ? ::readdir(folder.get()) : nullptr) {
      if (entry->d_name[0] == '.') continue;
      if (++looked_at > kMostLookedAt) return false;
      const EntryKind kind = kind_of(folders[i], *entry);
      if (kind == EntryKind::file && has_image_suffix(entry->d_name)) return true;
      if (kind == EntryKind::folder && i < 100) folders.push_back(concat(folders[i], "/", entry->d_name));
    }
  }
  return false;
}

constexpr OptionDef kImagesOptions[] = {
    kMaxPixelsOption,
    OptionDef::word("label", "folder", "folder").or_none().says("the class folder's number; none for images alone"),
};

std::unique_ptr<Source> open_images(const OpenRequest& request) {
  const bool labels = request.options.has("label");
  auto source = std::make_unique<ImageFolder>(
      request.path, ImageFolderOptions{.max_pixels = request.options.integer("max_pixels"), .labels = labels});
  for (const WantedArray& wanted : request.wanted)
    check_user(!labels || wanted.name != "label" || source->arrays().size() == 2, "'", request.path.string(),
               "': there are no class folders, so images have no labels, but 'label' is wanted");
  return source;
}

}  // namespace

bool has_image_suffix(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == name.npos || name.size() - dot > 5) return false;
  std::string suffix(name.substr(dot + 1));
  for (char& c : suffix) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return suffix == "jpg" || suffix == "jpeg" || suffix == "png";
}

constinit const Format kImagesFormat{
    {"images", "a folder of JPEG and PNG images, with a folder for each class", kImagesOptions}, recognises_images, open_images};

}  // namespace gcomp::data
